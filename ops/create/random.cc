// rand, randn, randint: values by philox.h, of (seed, call, global element number), so the same on any layout. Every
// device makes the stretches of its own part. scalars: [seed, call], randint: [seed, call, low, high].
#include "ops/create/random_fill.h"
#include "runtime/client/call_error.h"

namespace dtorch {
namespace {

using namespace create;

void rand_kernel(KernelContext& context) {
  random_kernel(context, []<class T>(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
    fill_uniform(call, first, values, count);
  });
}
void randn_kernel(KernelContext& context) {
  random_kernel(context, []<class T>(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
    fill_normal(call, first, values, count);
  });
}
void randint_kernel(KernelContext& context) {
  const int64_t low = context.scalar(2).as_int();
  const uint64_t range = static_cast<uint64_t>(context.scalar(3).as_int()) - static_cast<uint64_t>(low);
  random_kernel(context, [&]<class T>(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
    for (int64_t e = first; e < first + count;) {
      const PhiloxBlock high = call.block(static_cast<uint64_t>(e) / 4, 0);
      const PhiloxBlock rest = call.block(static_cast<uint64_t>(e) / 4, 1);
      for (size_t lane = static_cast<size_t>(e) % 4; lane < 4 && e < first + count; ++lane, ++e) {
        const uint64_t word = uint64_t{high[lane]} << 32 | rest[lane];
        const auto scaled = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * range >> 64);
        values[e - first] = static_cast<T>(static_cast<int64_t>(static_cast<uint64_t>(low) + scaled));
      }
    }
  });
}

template <Tensor (*kFunction)(const Shape&, const TensorOptions&, Where)>
std::vector<Sample> random_samples() {
  return {{.name = "uneven",
           .inputs = {},
           .call =
               [](const std::vector<Tensor>&) {
                 return std::vector<Tensor>{kFunction({5, 3}, {}, Where::current())};
               }},
          {.name = "size 1, float64", .inputs = {}, .call = [](const std::vector<Tensor>&) {
             return std::vector<Tensor>{kFunction({7, 1}, {.dtype = kFloat64}, Where::current())};
           }}};
}
std::vector<Sample> randint_samples() {
  return {{.name = "uneven",
           .inputs = {},
           .call =
               [](const std::vector<Tensor>&) {
                 return std::vector<Tensor>{randint(-3, 9, {5, 3}, {.dtype = kInt64})};
               }},
          {.name = "empty", .inputs = {}, .call = [](const std::vector<Tensor>&) {
             return std::vector<Tensor>{randint(4, {0, 2}, {.dtype = kInt32})};
           }}};
}

}  // namespace

constinit OperatorDef rand_op = {
    .name = "rand",
    .signature = "rand(shape, options) -> Tensor",
    .attributes = attribute_codec<CreateAttrs>(),
    .infer = infer_floating_created,
    .kernel = rand_kernel,
    .samples = random_samples<rand>,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};
constinit OperatorDef randn_op = {
    .name = "randn",
    .signature = "randn(shape, options) -> Tensor",
    .attributes = attribute_codec<CreateAttrs>(),
    .infer = infer_floating_created,
    .kernel = randn_kernel,
    .samples = random_samples<randn>,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};
constinit OperatorDef randint_op = {
    .name = "randint",
    .signature = "randint(low, high, shape, options) -> Tensor",
    .attributes = attribute_codec<CreateAttrs>(),
    .infer = infer_created,
    .kernel = randint_kernel,
    .samples = randint_samples,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};

Tensor rand(const Shape& shape, const TensorOptions& options, Where where) {
  return record_random(rand_op, shape, options.dtype, options.layout(shape.ndim(), where), options.requires_grad, {},
                       where);
}
Tensor randn(const Shape& shape, const TensorOptions& options, Where where) {
  return record_random(randn_op, shape, options.dtype, options.layout(shape.ndim(), where), options.requires_grad, {},
                       where);
}
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options, Where where) {
  if (low >= high) {
    throw at_line(UserError("[randint] low is " + std::to_string(low) + ", high is " + std::to_string(high) +
                            "; high must be greater"),
                  where);
  }
  const DType dtype = options.dtype.given ? options.dtype.value : kInt64;
  return record_random(randint_op, shape, dtype, options.layout(shape.ndim(), where), false,
                       {Scalar::of_int(low), Scalar::of_int(high)}, where);
}
Tensor randint(int64_t high, const Shape& shape, const TensorOptions& options, Where where) {
  return randint(0, high, shape, options, where);
}
Tensor randint_like(const Tensor& other, int64_t low, int64_t high, std::optional<DType> dtype, Where where) {
  if (low >= high) {
    throw UserError("[randint_like] low is " + std::to_string(low) + ", high is " + std::to_string(high) +
                    "; high must be greater");
  }
  const DrawScope draw(other);
  return record_random(randint_op, other.shape(), dtype.value_or(other.dtype()), layout_like(other), false,
                       {Scalar::of_int(low), Scalar::of_int(high)}, where);
}
Tensor randint_like(const Tensor& other, int64_t high, std::optional<DType> dtype, Where where) {
  return randint_like(other, 0, high, dtype, where);
}
Tensor rand_like(const Tensor& other, std::optional<DType> dtype, Where where) {
  const DrawScope draw(other);
  return record_random(rand_op, other.shape(), dtype.value_or(other.dtype()), layout_like(other), false, {}, where);
}
Tensor randn_like(const Tensor& other, std::optional<DType> dtype, Where where) {
  const DrawScope draw(other);
  return record_random(randn_op, other.shape(), dtype.value_or(other.dtype()), layout_like(other), false, {}, where);
}

}  // namespace dtorch
