#include "runtime/client/placement_error.h"

#include <algorithm>

#include "mesh/redistribute_plan.h"
#include "runtime/client/inference_errors.h"

namespace dtorch {
namespace {

std::string suggestion_text(const MatchFailure& failure) {
  std::string text;
  for (const Conversion& conversion : failure.fix) {
    if (!text.empty()) text += ", and ";
    text += "for input " + std::to_string(conversion.input) + ": " + redistribute_text(conversion.layout, "x");
  }
  return text;
}

std::string axis_text(const std::vector<PlacementError::Input>& inputs, int64_t axis) {
  return axis < 0 || inputs.empty() ? "" : inputs.front().mesh.axis_label(axis);
}

std::string input_line(size_t number, const Shape& shape, DType dtype, const Layout& layout) {
  return "\n  input " + std::to_string(number) + ": " + name_of(dtype) + " " + shape.str() + " " + layout.str() +
         " on " + layout.mesh().sizes_str();
}

std::string message_of(const std::string& op, const std::vector<PlacementError::Input>& inputs,
                       const MatchFailure& failure, const SourceLine& where) {
  const std::string axis = axis_text(inputs, failure.axis);
  std::string text = "[" + op + "] no legal placement";
  if (!axis.empty()) text += axis.starts_with("axis ") ? " on " + axis : " on axis " + axis;
  if (!failure.reason.empty()) text += ": " + failure.reason;
  for (size_t i = 0; i < inputs.size(); ++i) text += input_line(i, inputs[i].shape, inputs[i].dtype, inputs[i].layout);
  if (!failure.legal_rows.empty()) {
    text += "\n  legal on one axis:";
    for (const std::string& row : failure.legal_rows) text += "\n    " + row;
  }
  if (!failure.fix.empty()) text += "\n  make it legal with " + suggestion_text(failure);
  return text + called_at(where);
}

}  // namespace

PlacementError::PlacementError(std::string op, std::vector<Input> inputs, MatchFailure failure, SourceLine where)
    : UserError(message_of(op, inputs, failure, where)),
      op_(std::move(op)),
      axis_(axis_text(inputs, failure.axis)),
      suggestion_(suggestion_text(failure)),
      inputs_(std::move(inputs)),
      failure_(std::move(failure)),
      where_(where) {}

std::string redistribute_text(const Layout& layout, const std::string& tensor) {
  std::string text = tensor + ".redistribute(" + layout.placements().str();
  if (!layout.order_is_default()) {
    text += ", {.order = {";
    for (int64_t i = 0; i < layout.shard_order().size(); ++i) {
      text += (i > 0 ? ", \"" : "\"") + layout.mesh().axis_label(layout.shard_order()[i]) + "\"";
    }
    text += "}}";
  }
  return text + ")";
}

PlacementError placement_error(const OperatorDef& op, std::span<const TensorMeta* const> inputs, MatchFailure failure,
                               const SourceLine& where) {
  std::vector<PlacementError::Input> described;
  for (const TensorMeta* meta : inputs)
    described.push_back({meta->global_shape, meta->dtype, meta->layout.mesh(), meta->layout});
  return {op.called(), std::move(described), std::move(failure), where};
}

void check_one_mesh(const OperatorDef& op, std::span<const TensorMeta* const> inputs) {
  const DeviceMesh& first = inputs.front()->layout.mesh();
  for (size_t i = 1; i < inputs.size(); ++i) {
    const DeviceMesh& other = inputs[i]->layout.mesh();
    if (other == first) continue;
    throw MeshError(std::string("[") + op.called() + "] inputs are on different meshes: input 0 on " + first.str() +
                    ", input " + std::to_string(i) + " on " + other.str() +
                    "; redistribute(mesh, placements) moves one");
  }
}

std::vector<Conversion> cheapest_fix(const InferContext& context, LayoutFn layouts,
                                     std::span<const OutputMeta> outputs) {
  std::vector<Conversion> best;
  int64_t best_bytes = 0;
  for (size_t input = 0; input < context.inputs.size(); ++input) {
    const TensorMeta& meta = *context.inputs[input];
    const int64_t num_axes = meta.layout.mesh().num_axes();
    for (uint32_t subset = 1; subset < (1u << num_axes); ++subset) {
      Placements target = meta.layout.placements();
      for (int64_t axis = 0; axis < num_axes; ++axis) {
        if (subset >> axis & 1u) target[axis] = Replicate();
      }
      const Layout layout = meta.layout.with_placements(target, meta.global_shape.ndim());
      std::vector<const TensorMeta*> changed(context.inputs.begin(), context.inputs.end());
      changed[input] = intern_meta(meta.global_shape, meta.dtype, layout);
      std::string reason;
      if (layout == meta.layout || !layouts({context.op, changed, context.attributes_}, outputs, &reason)) continue;
      const int64_t bytes = redistribute_bytes(meta.global_shape, meta.dtype, meta.layout, layout);
      if (best.empty() || bytes < best_bytes) {
        best = {{static_cast<int32_t>(input), layout}};
        best_bytes = bytes;
      }
    }
  }
  return best;
}

std::vector<std::string> legal_rows_of(const InferContext& context, LayoutFn layouts,
                                       std::span<const OutputMeta> outputs) {
  constexpr size_t kMaxTuples = 256;
  const DeviceMesh& mesh = context.inputs[0]->layout.mesh();
  int64_t axis = 0;
  while (axis < mesh.num_axes() && mesh.shape()[axis] == 1) ++axis;
  if (axis == mesh.num_axes()) return {};
  std::vector<std::vector<Placement>> options;
  size_t num_tuples = 1;
  for (const TensorMeta* meta : context.inputs) {
    std::vector<Placement>& own = options.emplace_back(std::vector<Placement>{Replicate(), Partial()});
    for (int64_t dim = 0; dim < meta->global_shape.ndim(); ++dim) own.insert(own.end() - 1, Shard(dim));
    num_tuples *= own.size();
    if (num_tuples > kMaxTuples) return {};
  }
  std::vector<std::string> rows;
  for (size_t number = 0; number < num_tuples; ++number) {
    Row row;
    std::vector<const TensorMeta*> metas;
    size_t rest = number;
    for (size_t i = 0; i < options.size(); ++i) {
      const TensorMeta& meta = *context.inputs[i];
      row.inputs.push_back(options[i][rest % options[i].size()]);
      rest /= options[i].size();
      Placements placements(mesh.num_axes(), Replicate());
      placements[axis] = row.inputs.back();
      metas.push_back(intern_meta(meta.global_shape, meta.dtype, Layout(mesh, placements, meta.global_shape.ndim())));
    }
    std::string reason;
    const auto found = layouts({context.op, metas, context.attributes_}, outputs, &reason);
    if (!found) continue;
    for (const Layout& layout : *found) row.outputs.push_back(layout.placement(axis));
    rows.push_back(row.str());
  }
  return rows;
}

void rethrow_with_call(const OperatorDef& op, const std::string& attributes, std::span<const TensorMeta* const> inputs,
                       const SourceLine& where) {
  std::string context;
  for (size_t i = 0; i < inputs.size(); ++i)
    context += input_line(i, inputs[i]->global_shape, inputs[i]->dtype, inputs[i]->layout);
  if (!attributes.empty()) context += "\n  attributes: " + op.attributes.print(attributes);
  context += called_at(where);
  try {
    throw;
  } catch (const ShapeError& e) {
    throw ShapeError(e.what() + context);
  } catch (const DTypeError& e) {
    throw DTypeError(e.what() + context);
  } catch (const MeshError& e) {
    throw MeshError(e.what() + context);
  } catch (const KeyError& e) {
    throw KeyError(e.what() + context);
  } catch (const UserError& e) {
    throw UserError(e.what() + context);
  }
}

}  // namespace dtorch
