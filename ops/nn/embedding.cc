// embedding(ids [...], weight [V, D]) -> [..., D]: rows of weight. ids Shard(d) -> Shard(d); weight Shard(1) ->
// Shard(last); weight Shard(0): each device looks up its own rows, zeros elsewhere, Partial(sum), reduced by the user's
// function. Gradient of weight: rows of g added up by id; it has the weight's layout, Partial where ids were sharded.
#include "ops/move/combine.h"
#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#include "ops/create/checked_index.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

struct EmbeddingGradAttrs {
  int64_t count = 0;  // V
  template <class V>
  void fields(V& v) {
    v("count", count);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  if (!is_integral(context.dtype(0))) {
    throw DTypeError(std::string("[embedding] ids are ") + name_of(context.dtype(0)) + ", allowed are integers");
  }
  if (context.shape(1).ndim() != 2)
    throw ShapeError("[embedding] weight has shape " + context.shape(1).str() + ", expected [V, D]");
  Shape out = context.shape(0);
  out.push_back(context.shape(1)[1]);
  return {{out, context.dtype(1)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int16_t dim_letter = static_cast<int16_t>(ndim + 1), row_letter = static_cast<int16_t>(ndim + 2);
  return rule_of({letters(ndim), Letters{row_letter, dim_letter}}, {letters(ndim + 1)}, {}, {{1}});
}

std::vector<OutputMeta> grad_infer(const InferContext& context) {
  const Shape& g = context.shape(0);
  return {{Shape{context.attributes<EmbeddingGradAttrs>().count, g.back()}, context.dtype(0)}};
}

#if DTORCH_WITH_KERNELS
// The ids as int64, each checked against the whole vocabulary.
at::Tensor checked_ids(const at::Tensor& ids, int64_t count) {
  at::Tensor wide = ids.to(at::kLong).contiguous();
  if (!wide.is_cpu()) return checked_on_device(wide, 0, count, "id");
  const int64_t* data = wide.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < wide.numel(); ++i) {
    if (data[i] < 0 || data[i] >= count) {
      throw RuntimeFault("id " + std::to_string(data[i]) + " is outside [0, " + std::to_string(count) + ")");
    }
  }
  return wide;
}

void kernel(KernelContext& context) {
  const at::Tensor& weight = input(context, 1);
  at::Tensor ids = checked_ids(input(context, 0), context.input_meta(1).global_shape[0]);
  const Box& rows = context.input_box(1);
  if (rows.size[0] == context.input_meta(1).global_shape[0]) {
    set_output(context, 0, at::embedding(weight, ids));
    return;
  }
  at::Tensor out = at::zeros(output_sizes(context, 0), weight.options());
  if (!out.is_cpu()) {
    if (out.numel() == 0 || rows.size[0] == 0) return set_output(context, 0, out);
    const at::Tensor local = ids.sub(rows.offset[0]), inside = local.clamp(0, rows.size[0] - 1);
    set_output(context, 0, at::embedding(weight, inside).masked_fill_(local.ne(inside).unsqueeze(-1), 0));
    return;
  }
  at::Tensor flat = out.view({ids.numel(), weight.size(1)});
  const int64_t* data = ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel() && weight.size(1) > 0; ++i) {
    const int64_t row = data[i] - rows.offset[0];
    if (row >= 0 && row < rows.size[0]) flat.select(0, i).copy_(weight.select(0, row));
  }
  set_output(context, 0, std::move(out));
}

// Adds rows in the order of the ids, so that repeated runs are bitwise equal.
template <class T>
void add_rows(const T* g, const int64_t* ids, int64_t num_ids, int64_t width, int64_t first, int64_t num_rows, T* out) {
  for (int64_t i = 0; i < num_ids; ++i) {
    const int64_t row = ids[i] - first;
    if (row < 0 || row >= num_rows) continue;
    T* target = out + row * width;
    const T* from = g + i * width;
    for (int64_t k = 0; k < width; ++k) target[k] += from[k];
  }
}

void grad_kernel(KernelContext& context) {
  const at::Tensor& g = input(context, 0);
  const bool half = g.scalar_type() == at::kHalf || g.scalar_type() == at::kBFloat16;
  at::Tensor wide = (half ? g.to(at::kFloat) : g).contiguous();
  at::Tensor ids = checked_ids(input(context, 1), context.attributes<EmbeddingGradAttrs>().count);
  const Box& box = context.output_box(0);
  if (!wide.is_cpu() && wide.numel() > 0) {
    // One row more takes what other devices hold.
    const int64_t count = box.size[0];
    const at::Tensor local = ids.sub(box.offset[0]);
    const at::Tensor rows = local.masked_fill(local.lt(0).logical_or_(local.ge(count)), count);
    const at::Tensor sums = at::embedding_dense_backward(wide, rows, count + 1, /*padding_idx=*/count, false);
    set_output(context, 0, sums.narrow(0, 0, count).to(g.scalar_type()));
    return;
  }
  at::Tensor out = at::zeros(output_sizes(context, 0), wide.options());
  if (wide.scalar_type() == at::kDouble) {
    add_rows(wide.const_data_ptr<double>(), ids.const_data_ptr<int64_t>(), ids.numel(), box.size[1], box.offset[0],
             box.size[0], out.mutable_data_ptr<double>());
  } else {
    add_rows(wide.const_data_ptr<float>(), ids.const_data_ptr<int64_t>(), ids.numel(), box.size[1], box.offset[0],
             box.size[0], out.mutable_data_ptr<float>());
  }
  set_output(context, 0, half ? out.to(g.scalar_type()) : out);
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  const Where where = Where::current();
  Tensor ids = context.input(0);
  const Layout& weight = context.input_meta(1).layout;
  const Layout& id_layout = ids.layout();
  const int64_t last = ids.ndim();
  // g must be placed as the ids on the axes that shard them, Shard(last) where the weight's columns are, Replicate (or
  // pending) elsewhere.
  Tensor g = context.grad_output(0);
  Placements g_target = g.placements(), out;
  for (int64_t axis = 0; axis < weight.mesh().num_axes(); ++axis) {
    const Placement& w = weight.placement(axis);
    const Placement& i = id_layout.placement(axis);
    if (w.is_shard(0)) {
      g_target[axis] = Replicate();
      out.push_back(Shard(0));
    } else if (w.is_shard(1)) {
      g_target[axis] = Shard(last);
      out.push_back(Shard(1));
    } else if (i.is_shard()) {
      g_target[axis] = i;
      out.push_back(Partial());
    } else if (g_target[axis].is_partial(kSum)) {
      out.push_back(Partial());
    } else {
      g_target[axis] = Replicate();
      out.push_back(Replicate());
    }
  }
  AxisList g_order = id_layout.shard_order();
  for (int8_t axis : weight.axes_of_dim(1)) g_order.push_back(axis);
  g = g.redistribute(Layout(weight.mesh(), g_target, last + 1, g_order), where);
  const Layout result(weight.mesh(), out, 2, weight.shard_order());
  const Layout layouts[] = {result};
  return {Tensor(), record(embedding_grad_op, EmbeddingGradAttrs{context.input_meta(1).global_shape[0]}, {&g, &ids},
                           where, {.output_layouts = layouts})};
}

std::vector<Sample> samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{embedding(in[0], in[1])}; };
  SampleInput ids{{5, 3}, kInt64, SampleFill::kIndices, 7, false};
  SampleInput one{{1}, kInt64, SampleFill::kIndices, 4, false};
  return {{.name = "uneven", .inputs = {ids, {{7, 5}}}, .call = call},
          {.name = "one id", .inputs = {one, {{4, 6}, kFloat64}}, .call = call}};
}

}  // namespace

constinit OperatorDef embedding_op = {.name = "embedding",
                                      .signature = "embedding(ids, weight) -> Tensor",
                                      .infer = infer,
                                      .rule = rule,
                                      .kernel = DTORCH_KERNEL(kernel),
                                      .gradient = gradient,
                                      .samples = samples,
                                      .placement_class = PlacementClass::kCombines,
                                      .linear_in = "weight",
                                      .saved_inputs = 1};
constinit OperatorDef embedding_grad_op = {.name = "embedding_grad",
                                           .signature = "embedding_grad(g, ids, count) -> Tensor",
                                           .attributes = attribute_codec<EmbeddingGradAttrs>(),
                                           .infer = grad_infer,
                                           .kernel = DTORCH_KERNEL(grad_kernel),
                                           .linear_in = "g"};

Tensor embedding(const Tensor& ids, const Tensor& weight, Where where) {
  SourceScope scope(where);
  if (weight.ndim() == 2) require_implicit_redistribution("embedding", weight, unsharded_layout(weight, 0), where);
  Tensor out = record(embedding_op, NoAttrs{}, {&ids, &weight}, where);
  // Only the lookup's own sum over the vocabulary's axes is combined; a weight that was Partial stays so.
  Placements target = out.placements();
  for (int64_t axis = 0; axis < target.size(); ++axis) {
    if (weight.placements()[axis].is_shard(0) && target[axis].is_partial()) target[axis] = Replicate();
  }
  return target == out.placements() ? out : out.redistribute(target, where);
}

}  // namespace dtorch
