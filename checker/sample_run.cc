#include "checker/sample_run.h"

#include <algorithm>
#include <numeric>

#include "checker/cache_check.h"
#include "checker/sample_values.h"
#include "checker/values.h"
#include "runtime/client/graph_core.h"

namespace dtorch::checker {
namespace {

constexpr size_t kMostPending = 200;  // comparisons whose reads are under way

bool is_differentiable(const SampleInput& input) { return input.differentiable && is_floating(input.dtype); }

// A pending maximum or minimum can't be multiplied by weights of either sign.
Tensor without_extremes(const Tensor& x) {
  Placements target = x.placements();
  for (Placement& p : target) {
    if (p.is_partial(kMax) || p.is_partial(kMin)) p = Replicate();
  }
  return target == x.placements() ? x : x.redistribute(target);
}

// `again` refuses what `error` suggested. (A sample may call an operator twice with other attributes.)
bool is_same_call(const PlacementError& error, const PlacementError& again) {
  if (again.op() != error.op() || again.inputs().size() != error.inputs().size()) return false;
  if (again.legal_rows() != error.legal_rows()) return false;
  std::vector<Layout> suggested;
  for (const PlacementError::Input& input : error.inputs()) suggested.push_back(input.layout);
  for (const Conversion& conversion : error.fix())
    suggested.at(static_cast<size_t>(conversion.input)) = conversion.layout;
  for (size_t i = 0; i < suggested.size(); ++i) {
    if (again.inputs()[i].layout != suggested[i] || again.inputs()[i].shape != error.inputs()[i].shape) return false;
  }
  return true;
}

}  // namespace

SampleRun::SampleRun(std::string name, const Sample& sample, const CheckOptions& options, OperatorReport& report)
    : name_(std::move(name)), sample_(sample), options_(options), report_(report), choices_(sample, options) {
  for (size_t i = 0; i < sample.inputs.size(); ++i)
    values_.push_back(sample_value(sample.inputs[i], options.seed * 1000 + i));
}

void SampleRun::run(const std::vector<std::vector<Placement>>& required) {
  if (!make_reference()) return;
  if (sample_.inputs.empty()) return;  // nothing to place: the one call has run
  std::vector<Choice> wanted, accepted;
  for (const std::vector<Placement>& tuple : required) {
    Choice& choice = wanted.emplace_back();
    for (const Placement& placement : tuple) choice.push_back({placement});
  }
  const std::vector<Choice> choices = choices_.one_axis();
  run_one_axis(2, choices, wanted, &accepted);
  run_one_axis(3, choices, wanted, nullptr);
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
  for (const Choice& choice : choices_.pairs_of(accepted)) try_layouts(layouts_of(mesh, choice));
  for (const Choice& choice : choices_.other_pairs()) try_layouts(layouts_of(mesh, choice));
  run_wide(accepted);
  finish_checks();
}

void SampleRun::run_one_axis(int64_t devices, const std::vector<Choice>& choices, const std::vector<Choice>& required,
                             std::vector<Choice>* accepted) {
  const DeviceMesh mesh = init_device_mesh("cpu", {devices});
  std::vector<bool> tried(required.size(), false);
  const auto run = [&](const Choice& choice) {
    const bool legal = try_layouts(layouts_of(mesh, choice));
    if (legal && accepted != nullptr) accepted->push_back(choice);
    const auto found = std::ranges::find(required, choice);
    if (found == required.end()) return;
    const auto number = static_cast<size_t>(found - required.begin());
    tried[number] = true;
    if (!legal && std::ranges::find(refused_, number) == refused_.end()) refused_.push_back(number);
  };
  for (const Choice& choice : choices) run(choice);
  for (size_t i = 0; i < required.size(); ++i) {
    if (!tried[i]) run(required[i]);
  }
}

// Parts are often empty here.
void SampleRun::run_wide(const std::vector<Choice>& accepted) {
  const int64_t num_devices = current_graph().client().runtime->binding().num_devices();
  std::vector<Shape> shapes = {{4}, {2, 3}, {2, 2, 2}, {5}, {4, 2}, {8}, {3, 1}, {3, 2}, {1, 2, 3}, {7}};
  std::erase_if(shapes, [&](const Shape& shape) { return shape.num_elements() > num_devices; });
  for (int64_t i = 0; i < options_.max_wide && !shapes.empty(); ++i) {
    const DeviceMesh mesh = wide_mesh(shapes[static_cast<size_t>(i) % shapes.size()]);
    try_layouts(wide_layouts(mesh, choices_.wide(mesh.num_axes(), accepted)));
  }
}

// --- running
std::vector<Tensor> SampleRun::call(const std::vector<Tensor>& inputs) const {
  manual_seed(options_.seed);
  return sample_.call(inputs);
}

// Shards split by both axes are split in the other order every third time.
Layout SampleRun::layout_of(const DeviceMesh& mesh, const Placements& placements, int64_t ndim) {
  const Layout layout(mesh, placements, ndim);
  if (layout.shard_order().size() < 2 || num_layouts_++ % 3 != 0) return layout;
  return Layout(mesh, placements, ndim, AxisList{1, 0});
}

std::vector<Layout> SampleRun::layouts_of(const DeviceMesh& mesh, const Choice& choice) {
  std::vector<Layout> layouts;
  for (size_t i = 0; i < choice.size(); ++i) layouts.push_back(layout_of(mesh, choice[i], values_[i].shape().ndim()));
  return layouts;
}

// Devices in order, or turned round.
DeviceMesh SampleRun::wide_mesh(const Shape& shape) {
  std::vector<int64_t> devices(static_cast<size_t>(shape.num_elements()));
  std::iota(devices.begin(), devices.end(), 0);
  if (choices_.draw(2) == 0) {
    std::ranges::rotate(devices, devices.begin() + choices_.draw(static_cast<int64_t>(devices.size())));
  }
  return DeviceMesh("cpu", shape, devices);
}

// The axes split in any order, two of three times in the same one for every input.
std::vector<Layout> SampleRun::wide_layouts(const DeviceMesh& mesh, const Choice& choice) {
  const auto any_order = [&] {
    AxisList order;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
      order.insert(order.begin() + choices_.draw(order.size() + 1), static_cast<int8_t>(axis));
    }
    return order;
  };
  const AxisList common = any_order();
  const bool alike = choices_.draw(3) != 0;
  std::vector<Layout> layouts;
  for (size_t i = 0; i < choice.size(); ++i) {
    layouts.emplace_back(mesh, choice[i], values_[i].shape().ndim(), alike ? common : any_order());
  }
  return layouts;
}

Tensor SampleRun::input(size_t i, const Layout& layout) {
  Tensor& tensor = inputs_[{i, layout.data()}];
  if (!tensor.defined()) tensor = distribute(values_[i], layout);
  return tensor;
}

std::vector<Tensor> SampleRun::inputs(const std::vector<Layout>& layouts, bool leaves) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < layouts.size(); ++i) {
    Tensor tensor = input(i, layouts[i]);
    if (leaves && is_differentiable(sample_.inputs[i])) tensor = tensor.detach().requires_grad_();
    tensors.push_back(tensor);
  }
  return tensors;
}

// Sum of all differentiable outputs, each times fixed weights. Undefined when there is none.
Tensor SampleRun::loss_of(const std::vector<Tensor>& outputs) {
  Tensor loss;
  std::vector<HostTensor>& weights = reference_.weights;
  weights.resize(outputs.size());
  pending_weights_ = false;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    if (!weights[i].defined()) weights[i] = normal(outputs[i].shape(), outputs[i].dtype(), 77 + i);
    const Tensor weight = distribute(weights[i], weight_layout(outputs[i]));
    const Tensor term = sum(mul(without_extremes(outputs[i]), weight));
    // Outputs may be pending in different ways.
    const bool alike = loss.defined() && loss.placements() == term.placements();
    loss = !loss.defined() ? term : alike ? add(loss, term) : add(loss.reduced(), term.reduced());
  }
  return loss;
}

// Every third time pending wherever a float64 output is whole: then so is the gradient that arrives.
Layout SampleRun::weight_layout(const Tensor& output) {
  const Layout whole = Layout::replicated(output.mesh());
  if (num_losses_++ % 3 != 2 || output.dtype() != kFloat64) return whole;
  pending_weights_ = true;
  Placements placements = output.placements();
  for (Placement& placement : placements) placement = placement.is_replicate() ? Partial() : Replicate();
  return Layout(output.mesh(), placements, output.ndim());
}

bool SampleRun::make_reference() {
  const DeviceMesh one = init_device_mesh("cpu", {1});
  std::vector<Layout> layouts(values_.size(), Layout::replicated(one));
  try {
    for (const Tensor& output : call(inputs(layouts, false))) reference_.outputs.push_back(output.to_host());
    const std::vector<Tensor> leaves = inputs(layouts, true);
    const Tensor loss = loss_of(call(leaves));
    if (loss.defined()) {
      loss.backward();
      reference_.has_gradients = true;
      for (const Tensor& leaf : leaves) {
        const Tensor gradient = leaf.requires_grad() ? leaf.grad() : Tensor();
        reference_.gradients.push_back(gradient.defined() ? gradient.to_host() : HostTensor());
      }
    }
    return true;
  } catch (const std::exception& error) {
    report_.problems.push_back(name_ + (": sample '" + sample_.name) + "' on one device: " + error.what());
    return false;
  }
}

double SampleRun::tolerance(DType dtype) const {
  return is_floating(dtype) && sample_.tolerance > 0 ? sample_.tolerance : default_tolerance(dtype);
}

void SampleRun::problem(const std::vector<Layout>& layouts, const std::string& what) {
  std::string text = name_ + (": sample '" + sample_.name) + "' on " + layouts[0].mesh().sizes_str() + ", inputs";
  for (const Layout& layout : layouts) text += " " + layout.str();
  report_.problems.push_back(text + ": " + what);
}

bool SampleRun::try_layouts(const std::vector<Layout>& layouts) {
  ++report_.counts.tuples_tried;
  std::optional<PlacementError> refused;
  try {
    check_values(layouts);
    ++report_.counts.accepted;
    if (reference_.has_gradients) check_gradients(layouts);
    return true;
  } catch (const PlacementError& error) {
    refused = error;
  } catch (const std::exception& error) {
    problem(layouts, error.what());
    return true;
  }
  ++report_.counts.refused;
  check_refusal(layouts, *refused);
  return false;
}

void SampleRun::check_values(const std::vector<Layout>& layouts) {
  std::vector<Tensor> outputs;
  if (report_.counts.accepted % 5 == 4) {
    // Handles that end with the call: kernels may take over their storage.
    std::vector<Tensor> fresh;
    for (size_t i = 0; i < layouts.size(); ++i) fresh.push_back(distribute(values_[i], layouts[i]));
    outputs = call(fresh);
  } else {
    outputs = call(inputs(layouts, false));
    check_without_cache(layouts, outputs);
  }
  if (outputs.size() != reference_.outputs.size()) {
    return problem(layouts,
                   std::to_string(outputs.size()) + " outputs, should be " + std::to_string(reference_.outputs.size()));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const HostTensor& want = reference_.outputs[i];
    check_later(layouts, "output " + std::to_string(i) + ": ",
                [check = TensorCheck(outputs[i], want, tolerance(want.dtype()))] { return check.finish(); });
  }
}

void SampleRun::check_later(const std::vector<Layout>& layouts, std::string name, std::function<std::string()> finish) {
  pending_.push_back({layouts, std::move(name), std::move(finish)});
  if (pending_.size() >= kMostPending) finish_checks();
}

void SampleRun::finish_checks() {
  for (const Pending& pending : pending_) {
    std::string wrong;
    try {
      wrong = pending.finish();
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    if (!wrong.empty()) problem(pending.layouts, pending.name + wrong);
  }
  pending_.clear();
}

// Inferred anew, the call must give the same specs, and so the same metadata; now and then values are compared too.
void SampleRun::check_without_cache(const std::vector<Layout>& layouts, const std::vector<Tensor>& outputs) {
  InferenceCache& cache = current_graph().cache();
  const size_t num_specs = cache.num_specs();
  std::vector<Tensor> again;
  {
    const CacheOff off(cache);
    again = call(inputs(layouts, false));
  }
  if (cache.num_specs() != num_specs) problem(layouts, "with the inference cache off it has other specs");
  if (again.size() != outputs.size()) return problem(layouts, "with the inference cache off it has other outputs");
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (&again[i].meta() != &outputs[i].meta()) {
      problem(layouts, "output " + std::to_string(i) + " is " + outputs[i].str() + ", with the inference cache off " +
                           again[i].str());
    } else if (report_.counts.accepted % 8 == 0) {
      check_later(layouts, "with the inference cache off it gives other values: ",
                  [one = outputs[i].to_host_async(), other = again[i].to_host_async()] {
                    return difference(one.get(), other.get(), 0);
                  });
    }
  }
}

// The call is legal; whatever is thrown here is wrong, a PlacementError of backward too.
void SampleRun::check_gradients(const std::vector<Layout>& layouts) {
  try {
    const std::vector<Tensor> leaves = inputs(layouts, true);
    const Tensor loss = loss_of(call(leaves));
    if (!loss.defined()) return problem(layouts, "no output has a gradient, on one device one has");
    loss.backward();
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].requires_grad()) continue;
      check_gradient(layouts, i, leaves[i].grad());
    }
    ++report_.counts.gradients_checked;
  } catch (const std::exception& error) {
    problem(layouts, std::string("gradient: ") + error.what());
  }
}

void SampleRun::check_gradient(const std::vector<Layout>& layouts, size_t i, const Tensor& gradient) {
  const HostTensor& want = reference_.gradients[i];
  const std::string name = "gradient of input " + std::to_string(i) + ": ";
  if (gradient.defined() != want.defined()) {
    return problem(layouts, name + (want.defined() ? "is missing" : "there is one, on one device there is none"));
  }
  if (!want.defined()) return;
  Placements placements = layouts[i].placements();
  for (Placement& placement : placements) {
    if (placement.is_partial()) placement = Replicate();
  }
  if (gradient.placements() != placements) {
    problem(layouts, name + "has placements " + gradient.placements().str() + ", should have " + placements.str());
  }
  // Where parts of what arrives cancel out they are rounded as numbers of the weights' size.
  const double least_scale = pending_weights_ ? 1 : 0;
  check_later(layouts, name, [check = TensorCheck(gradient, want, 10 * tolerance(want.dtype()), least_scale)] {
    return check.finish();
  });
}

// A refusal names the operator and offers a way out that works.
void SampleRun::check_refusal(const std::vector<Layout>& layouts, const PlacementError& error) {
  ++report_.refused_by[error.op()];
  if (error.op().empty() || error.inputs().empty())
    return problem(layouts, "the PlacementError doesn't say what was refused");
  if (error.fix().empty()) return problem(layouts, "the PlacementError suggests nothing");
  if (report_.counts.fixes_executed < 4 * options_.max_tuples) execute_fixes(layouts, error);
}

// What the error suggests, by number of the sample's input. Nothing when it speaks of values that the sample computes.
std::optional<std::map<size_t, Layout>> SampleRun::fix_of(const PlacementError& error,
                                                          const std::vector<Tensor>& inputs) const {
  const auto is_meant = [&](size_t of_error, size_t of_sample) {
    const PlacementError::Input& meant = error.inputs()[of_error];
    const Tensor& input = inputs[of_sample];
    return meant.layout == input.layout() && meant.shape == input.shape() && meant.dtype == input.dtype();
  };
  bool one_by_one = error.inputs().size() == inputs.size();
  for (size_t i = 0; one_by_one && i < inputs.size(); ++i) one_by_one = is_meant(i, i);
  std::map<size_t, Layout> fix;
  for (const Conversion& conversion : error.fix()) {
    const auto number = static_cast<size_t>(conversion.input);
    std::vector<size_t> meant;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (one_by_one ? i == number : is_meant(number, i)) meant.push_back(i);
    }
    if (meant.size() != 1) return std::nullopt;
    fix[meant[0]] = conversion.layout;
  }
  return fix;
}

// A sample may call several operators: each may refuse once, with rows of its own, and what suits one may not suit
// another.
void SampleRun::execute_fixes(const std::vector<Layout>& layouts, PlacementError error) {
  std::vector<Tensor> tensors = inputs(layouts, false);
  for (int i = 0; i < 8; ++i) {
    const auto fix = fix_of(error, tensors);
    if (!fix) return;
    for (const auto& [number, layout] : *fix) tensors.at(number) = tensors.at(number).redistribute(layout);
    try {
      call(tensors);
      ++report_.counts.fixes_executed;
      return;
    } catch (const PlacementError& again) {
      if (again.fix().empty() || is_same_call(error, again)) {
        return problem(layouts, "the suggestion '" + error.suggestion() + "' doesn't make it legal: " + again.what());
      }
      error = again;
    }
  }
}

}  // namespace dtorch::checker
