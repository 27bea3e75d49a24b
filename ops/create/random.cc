// rand, randn, randint: values by philox.h, of (seed, call, global element number), so the same on any layout. Every
// device makes the stretches of its own part. scalars: [seed, call], randint: [seed, call, low, high].
#include "ops/create/operators.h"
#include "ops/create/philox.h"
#include "runtime/client/call_error.h"
#include "runtime/client/graph_core.h"

namespace dtorch {
namespace {

using namespace create;

PhiloxCall call_of(const KernelContext& context) { return {context.scalar(0).bits, context.scalar(1).bits}; }

// Makes the part with fill.operator()<T>(call, first element, values, count) a contiguous stretch.
template <class Fill>
void random_kernel(KernelContext& context, Fill&& fill) {
  bool done = false;
  NativeTensor part = make_part(context, &done);
  if (!done) {
    const PhiloxCall call = call_of(context);
    visit_dtype(part.dtype(), [&]<class T>() {
      T* values = reinterpret_cast<T*>(part.data());
      for_each_contiguous_run(context.output_meta(0).global_shape, context.output_box(0),
                              [&](int64_t global, int64_t local, int64_t length) {
                                fill.template operator()<T>(call, global, values + local, length);
                              });
    });
  }
  context.output(0) = std::move(part);
}

template <class T>
void fill_uniform(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
  if constexpr (std::is_same_v<T, double>) {
    for (int64_t e = first; e < first + count;) {
      const PhiloxBlock high = call.block(static_cast<uint64_t>(e) / 4, 0);
      const PhiloxBlock low = call.block(static_cast<uint64_t>(e) / 4, 1);
      for (size_t lane = static_cast<size_t>(e) % 4; lane < 4 && e < first + count; ++lane, ++e) {
        values[e - first] = uniform_of(high[lane], low[lane]);
      }
    }
  } else {
    // As many bits as the type represents exactly, so that no value is rounded up to 1.
    constexpr int kBits = std::is_same_v<T, Float16> ? 11 : std::is_same_v<T, BFloat16> ? 8 : 24;
    call.for_each_word(first, count,
                       [&](int64_t e, uint32_t word) { values[e - first] = static_cast<T>(uniform_of<kBits>(word)); });
  }
}

template <class T>
void fill_normal(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
  for (int64_t e = first; e < first + count;) {
    const PhiloxBlock words = call.block(static_cast<uint64_t>(e) / 4);
    const NormalPair low = normal_pair_of(words[0], words[1]);
    const NormalPair high = normal_pair_of(words[2], words[3]);
    const double normals[4] = {low.first, low.second, high.first, high.second};
    for (size_t lane = static_cast<size_t>(e) % 4; lane < 4 && e < first + count; ++lane, ++e) {
      values[e - first] = static_cast<T>(normals[lane]);
    }
  }
}

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

std::vector<OutputMeta> infer_floating_created(const InferContext& context) {
  const DType dtype = context.attributes<CreateAttrs>().dtype;
  if (!is_floating(dtype)) {
    throw DTypeError("[" + std::string(context.op) + "] dtype " + name_of(dtype) +
                     " isn't floating; integers come from randint");
  }
  return infer_created(context);
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

Tensor record_random(const OperatorDef& op, const Shape& shape, DType dtype, const Layout& layout, bool requires_grad,
                     std::initializer_list<int64_t> more, const Where& where) {
  const RandomState state = current_graph().next_random_call();
  std::vector<Scalar> scalars = {{state.seed}, {state.next_call}};
  for (int64_t number : more) scalars.push_back(Scalar::of_int(number));
  return record_created(op, {shape, dtype}, layout, scalars, requires_grad, where);
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
  return record_random(rand_op, shape, options.dtype, options.layout(shape.ndim()), options.requires_grad, {}, where);
}
Tensor randn(const Shape& shape, const TensorOptions& options, Where where) {
  return record_random(randn_op, shape, options.dtype, options.layout(shape.ndim()), options.requires_grad, {}, where);
}
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options, Where where) {
  if (low >= high) {
    throw at_line(UserError("[randint] low is " + std::to_string(low) + ", high is " + std::to_string(high) +
                            "; high must be greater"),
                  where);
  }
  const DType dtype = options.dtype.given ? options.dtype.value : kInt64;
  return record_random(randint_op, shape, dtype, options.layout(shape.ndim()), false, {low, high}, where);
}
Tensor randint(int64_t high, const Shape& shape, const TensorOptions& options, Where where) {
  return randint(0, high, shape, options, where);
}
Tensor rand_like(const Tensor& other, std::optional<DType> dtype, Where where) {
  return record_random(rand_op, other.shape(), dtype.value_or(other.dtype()), layout_like(other), false, {}, where);
}
Tensor randn_like(const Tensor& other, std::optional<DType> dtype, Where where) {
  return record_random(randn_op, other.shape(), dtype.value_or(other.dtype()), layout_like(other), false, {}, where);
}

}  // namespace dtorch
