#include "tests/random/builder.h"

#include <algorithm>
#include <cmath>

#include "checker/sample_values.h"
#include "tests/support/values.h"

namespace dtorch::test {
using namespace checker;
namespace {

constexpr double kMostError = 1e4;

std::vector<DeviceMesh> all_meshes() {
  return {DeviceMesh("cpu", {2}, {0, 1}),
          DeviceMesh("cpu", {2, 2}, {0, 1, 2, 3}, {"dp", "tp"}),
          DeviceMesh("cpu", {3}, {1, 2, 3}),
          DeviceMesh("cpu", {4}, {0, 1, 2, 3}, {"dp"}),
          DeviceMesh("cpu", {2, 2}, {3, 1, 0, 2}, {"dp", "tp"}),
          DeviceMesh("cpu", {2}, {3, 0}),
          DeviceMesh("cpu", {1, 3}, {0, 2, 1}),
          DeviceMesh("cpu", {1}, {2})};
}

bool may_be_pending(DType dtype) {
  return dtype == kFloat64 || dtype == kFloat32 || dtype == kInt64 || dtype == kInt32;
}

}  // namespace

HostTensor quantized(const HostTensor& value) {
  if (value.dtype() != kFloat64 && value.dtype() != kFloat32) return value;
  std::vector<double> values = value.to_vector<double>();
  for (double& x : values) x = std::round(x * 0x1p16) * 0x1p-16 + 0.0;  // no -0, which sums don't keep
  return HostTensor::of<double>(value.shape(), values).to(value.dtype());
}

Builder::Builder(uint64_t number, uint64_t seed, bool gradients, int num_meshes)
    : random_(seed * 1000003 + number * 7919 + 17) {
  program_.number = number;
  program_.gradients = gradients;
  std::vector<DeviceMesh> meshes = all_meshes();
  for (int i = 0; i < num_meshes; ++i) {
    // The first ones, which split more, more often.
    const size_t at = std::min(below(meshes.size()), below(meshes.size()));
    meshes_.push_back(meshes[at]);
    meshes.erase(meshes.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

bool Builder::is_real(const Known& known, double most) const {
  return known.dtype() == kFloat64 && known.finite && known.largest <= most &&
         facts(known.number).error <= kMostError && facts(known.number).tolerance <= 1e-12;
}

const Known& Builder::known(int number) const { return *std::ranges::find(known_, number, &Known::number); }

Shape Builder::random_shape(int64_t min_ndim, int64_t max_ndim) {
  constexpr int64_t kSizes[] = {5, 4, 3, 7, 2, 6, 1, 8};
  Shape shape;
  const int64_t ndim = between(min_ndim, max_ndim);
  for (int64_t d = 0; d < ndim; ++d) shape.push_back(kSizes[std::min(below(8), below(8))]);
  return shape;
}

Placements Builder::random_placements(const DeviceMesh& mesh, int64_t ndim, DType dtype, bool only_sum) {
  Placements placements;
  std::optional<ReduceOp> reduce;  // parts of different reductions don't say what they are together
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    Placement placement;
    if (may_be_pending(dtype) && chance(0.25)) {
      if (!reduce) reduce = only_sum || chance(0.8) ? kSum : chance(0.5) ? kMax : kMin;
      placement = Partial(*reduce);
    } else if (ndim > 0 && chance(0.75)) {
      placement = Shard(between(0, ndim - 1));
    }
    placements.push_back(placement);
  }
  return placements;
}

HostTensor Builder::leaf_value(const LeafWish& wish) {
  const HostTensor value =
      sample_value({wish.shape, wish.dtype, wish.fill, wish.index_bound, wish.differentiable}, random_());
  return quantized(value);
}

int Builder::add_value(const Tensor& tensor, const HostTensor& value, int mesh, ValueFacts facts, bool readable) {
  const int number = static_cast<int>(program_.values.size());
  Known known{.number = number, .tensor = tensor, .mesh = mesh, .readable = readable};
  for (double x : value.to_vector<double>()) {
    known.finite = known.finite && std::isfinite(x);
    if (std::isfinite(x)) known.largest = std::max(known.largest, std::abs(x));
  }
  facts.error += std::max(known.largest, 1.0);
  program_.values.push_back(facts);
  known_.push_back(std::move(known));
  return number;
}

int Builder::leaf(const LeafWish& wish) {
  Step step{.kind = Step::Kind::kLeaf, .value = leaf_value(wish), .seed = random_()};
  const int mesh = static_cast<int>(below(meshes_.size()));
  step.mesh = meshes_[static_cast<size_t>(mesh)];
  step.placements = random_placements(step.mesh, wish.shape.ndim(), wish.dtype, !is_floating(wish.dtype));
  step.inner_first = step.mesh.num_axes() == 2 && chance(0.2);
  step.requires_grad = program_.gradients && wish.differentiable && is_floating(wish.dtype) && chance(0.7);
  const Tensor tensor = from_host(step.value);
  step.outputs = {
      add_value(tensor, step.value, mesh, {.exact = true, .tolerance = default_tolerance(wish.dtype)}, true)};
  program_.steps.push_back(std::move(step));
  return program_.steps.back().outputs[0];
}

int Builder::on_mesh(int value, int mesh) {
  if (known(value).mesh == mesh) return value;
  const Known from = known(value);
  Step step{.kind = Step::Kind::kRedistribute, .inputs = {value}};
  step.mesh = meshes_[static_cast<size_t>(mesh)];
  step.placements = random_placements(step.mesh, from.ndim(), from.dtype(), true);
  step.inner_first = step.mesh.num_axes() == 2 && chance(0.2);
  ValueFacts facts = this->facts(value);
  step.outputs = {static_cast<int>(program_.values.size())};
  Known to = from;
  to.number = step.outputs[0];
  to.mesh = mesh;
  program_.values.push_back(facts);
  known_.push_back(std::move(to));
  program_.steps.push_back(std::move(step));
  return program_.steps.back().outputs[0];
}

int Builder::redistribute(int value) {
  const int to = static_cast<int>(below(meshes_.size()));
  const int before = known(value).mesh;
  if (to != before) return on_mesh(value, to);
  // On its own mesh: the same step, which on_mesh takes for nothing to do.
  std::ranges::find(known_, value, &Known::number)->mesh = -1;
  const int result = on_mesh(value, to);
  std::ranges::find(known_, value, &Known::number)->mesh = before;
  return result;
}

bool Builder::call(Proposal proposal) {
  const uint64_t seed = random_();
  std::vector<Tensor> inputs, outputs;
  for (int input : proposal.inputs) inputs.push_back(known(input).tensor);
  std::vector<HostTensor> values;
  try {
    manual_seed(seed);
    outputs = proposal.run(inputs);
    for (const Tensor& output : outputs) values.push_back(output.to_host());
  } catch (const UserError&) {
    return false;
  }
  if (outputs.empty()) return false;
  for (const HostTensor& value : values) {
    if (value.num_elements() > 2000) return false;
  }
  const int mesh = proposal.inputs.empty() ? 0 : known(proposal.inputs[below(proposal.inputs.size())]).mesh;
  Step step{.kind = Step::Kind::kCall, .seed = seed, .text = std::move(proposal.text), .run = std::move(proposal.run)};
  ValueFacts from{.exact = proposal.keeps_exact};
  double tolerance = proposal.tolerance;
  for (int input : proposal.inputs) {
    from.exact = from.exact && facts(input).exact;
    from.error += proposal.gain * facts(input).error;
    if (is_floating(known(input).dtype())) tolerance = std::max(tolerance, facts(input).tolerance);
    step.inputs.push_back(on_mesh(input, mesh));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    ValueFacts own = from;
    own.exact = own.exact || !is_floating(outputs[i].dtype());
    own.tolerance = std::max(tolerance, default_tolerance(outputs[i].dtype()));
    step.outputs.push_back(add_value(outputs[i], values[i], mesh, own, proposal.results_readable));
  }
  program_.steps.push_back(std::move(step));
  return true;
}

}  // namespace dtorch::test
