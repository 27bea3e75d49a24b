#include "checker/sample_run.h"

#include <algorithm>

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

}  // namespace

SampleRun::SampleRun(const OperatorDef& op, const Sample& sample, const CheckOptions& options, OperatorReport& report)
    : op_(op), sample_(sample), options_(options), report_(report), choices_(sample, options) {
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
  for (const Choice& choice : choices_.pairs_of(accepted)) try_choice(mesh, choice);
  for (const Choice& choice : choices_.other_pairs()) try_choice(mesh, choice);
  finish_checks();
}

void SampleRun::run_one_axis(int64_t devices, const std::vector<Choice>& choices, const std::vector<Choice>& required,
                             std::vector<Choice>* accepted) {
  const DeviceMesh mesh = init_device_mesh("cpu", {devices});
  std::vector<bool> tried(required.size(), false);
  const auto run = [&](const Choice& choice) {
    const bool legal = try_choice(mesh, choice);
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
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    if (!weights[i].defined()) weights[i] = normal(outputs[i].shape(), outputs[i].dtype(), 77 + i);
    const Tensor weight = distribute(weights[i], Layout::replicated(outputs[i].mesh()));
    const Tensor term = sum(mul(without_extremes(outputs[i]), weight));
    // Outputs may be pending in different ways.
    const bool alike = loss.defined() && loss.placements() == term.placements();
    loss = !loss.defined() ? term : alike ? add(loss, term) : add(loss.reduced(), term.reduced());
  }
  return loss;
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
    report_.problems.push_back(op_.name + (": sample '" + sample_.name) + "' on one device: " + error.what());
    return false;
  }
}

double SampleRun::tolerance(DType dtype) const {
  return is_floating(dtype) && sample_.tolerance > 0 ? sample_.tolerance : default_tolerance(dtype);
}

void SampleRun::problem(const std::vector<Layout>& layouts, const std::string& what) {
  std::string text = op_.name + (": sample '" + sample_.name) + "' on " + layouts[0].mesh().sizes_str() + ", inputs";
  for (const Layout& layout : layouts) text += " " + layout.str();
  report_.problems.push_back(text + ": " + what);
}

bool SampleRun::try_choice(const DeviceMesh& mesh, const Choice& choice) {
  const std::vector<Layout> layouts = layouts_of(mesh, choice);
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
  check_later(layouts, name,
              [check = TensorCheck(gradient, want, 10 * tolerance(want.dtype()))] { return check.finish(); });
}

// A refusal names the operator and offers a way out that works.
void SampleRun::check_refusal(const std::vector<Layout>& layouts, const PlacementError& error) {
  if (error.op().empty() || error.inputs().empty())
    return problem(layouts, "the PlacementError doesn't say what was refused");
  bool of_this_call =
      error.op() == op_.called() && std::ranges::equal(error.inputs(), layouts, {}, &PlacementError::Input::layout);
  for (size_t i = 0; of_this_call && i < layouts.size(); ++i)
    of_this_call = error.inputs()[i].shape == values_[i].shape();
  if (!of_this_call) return;  // an operator inside a composite: its inputs aren't the caller's
  if (error.fix().empty()) return problem(layouts, "the PlacementError suggests nothing");
  if (report_.counts.fixes_executed < 4 * options_.max_tuples) execute_fixes(layouts, error);
}

// A sample may call several operators: each may refuse once, with rows of its own.
void SampleRun::execute_fixes(const std::vector<Layout>& layouts, PlacementError error) {
  std::vector<Tensor> tensors = inputs(layouts, false);
  for (int i = 0; i < 4; ++i) {
    for (const Conversion& conversion : error.fix()) {
      Tensor& tensor = tensors.at(static_cast<size_t>(conversion.input));
      tensor = tensor.redistribute(conversion.layout);
    }
    try {
      call(tensors);
      ++report_.counts.fixes_executed;
      return;
    } catch (const PlacementError& again) {
      if (again.legal_rows() == error.legal_rows() || again.fix().empty()) {
        return problem(layouts, "the suggestion '" + error.suggestion() + "' doesn't make it legal: " + again.what());
      }
      error = again;
    }
  }
  problem(layouts, "suggestions don't come to an end: " + std::string(error.what()));
}

}  // namespace dtorch::checker
