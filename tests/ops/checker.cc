#include "tests/ops/checker.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "dtorch/dtorch.h"
#include "runtime/client/graph_core.h"
#include "tests/ops/sample_values.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using Choice = std::vector<Placements>;  // placements of every input

struct Reference {
  std::vector<HostTensor> outputs;
  std::vector<HostTensor> weights;    // of the loss, one an output; undefined where there is no gradient
  std::vector<HostTensor> gradients;  // one an input; undefined where there is none
  bool has_gradients = false;
};

bool is_differentiable(const SampleInput& input) { return input.differentiable && is_floating(input.dtype); }

class SampleRun {
 public:
  SampleRun(const OperatorDef& op, const Sample& sample, const CheckOptions& options, OperatorReport& report)
      : op_(op), sample_(sample), options_(options), report_(report), random_(options.seed) {
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      values_.push_back(sample_value(sample.inputs[i], options.seed * 1000 + i));
  }

  void run() {
    if (!make_reference()) return;
    if (sample_.inputs.empty()) return;  // nothing to place: the one call has run
    std::vector<Choice> accepted;
    for (int64_t devices : {2, 3}) {
      const DeviceMesh mesh = cpu_mesh({devices});
      for (const Choice& choice : one_axis_choices()) {
        if (try_choice(mesh, choice) && devices == 2) accepted.push_back(choice);
      }
    }
    const DeviceMesh mesh = cpu_mesh({2, 2});
    for (const Choice& choice : pairs_of(accepted)) try_choice(mesh, choice);
    for (const Choice& choice : other_pairs()) try_choice(mesh, choice);
  }

 private:
  // --- choices of placements
  std::vector<Placement> choices_of(size_t input) const {
    return axis_choices(sample_.inputs[input], options_.every_reduction);
  }

  Choice choice_number(int64_t number) const {
    Choice choice;
    for (size_t i = 0; i < sample_.inputs.size(); ++i) {
      const std::vector<Placement> choices = choices_of(i);
      const int64_t count = static_cast<int64_t>(choices.size());
      choice.push_back({choices[static_cast<size_t>(number % count)]});
      number /= count;
    }
    return choice;
  }

  bool inputs_agree(const Choice& choice) const {
    return std::ranges::all_of(choice, [&](const Placements& p) { return p[0] == choice[0][0]; });
  }

  // Every tuple, or a sample of at most max_tuples and those in which all inputs have the same placement.
  std::vector<Choice> one_axis_choices() {
    int64_t total = 1;
    for (size_t i = 0; i < sample_.inputs.size(); ++i) total *= static_cast<int64_t>(choices_of(i).size());
    std::vector<Choice> all;
    const auto kept_of = static_cast<uint64_t>(options_.max_tuples);
    for (int64_t number = 0; number < total; ++number) {
      if (total > options_.max_tuples && random_() % static_cast<uint64_t>(total) >= kept_of) {
        const Choice choice = choice_number(number);
        if (inputs_agree(choice)) all.push_back(choice);
      } else {
        all.push_back(choice_number(number));
      }
    }
    return all;
  }

  static Choice both(const Choice& first, const Choice& second) {
    Choice choice;
    for (size_t i = 0; i < first.size(); ++i) choice.push_back({first[i][0], second[i][0]});
    return choice;
  }

  std::vector<Choice> pairs_of(const std::vector<Choice>& accepted) {
    std::vector<Choice> pairs;
    const uint64_t total = accepted.size() * accepted.size(), limit = static_cast<uint64_t>(options_.max_pairs);
    for (const Choice& first : accepted) {
      for (const Choice& second : accepted) {
        if (total <= limit || random_() % total < limit) pairs.push_back(both(first, second));
      }
    }
    return pairs;
  }

  std::vector<Choice> other_pairs() {
    int64_t total = 1;
    for (size_t i = 0; i < sample_.inputs.size(); ++i) total *= static_cast<int64_t>(choices_of(i).size());
    std::vector<Choice> pairs;
    for (int64_t i = 0; i < std::min(options_.max_others, total * total); ++i) {
      const auto any = [&] { return choice_number(static_cast<int64_t>(random_() % static_cast<uint64_t>(total))); };
      pairs.push_back(both(any(), any()));
    }
    return pairs;
  }

  // --- running
  std::vector<Tensor> call(const std::vector<Tensor>& inputs) const {
    manual_seed(options_.seed);
    return sample_.call(inputs);
  }

  // Shards split by both axes are split in the other order every third time.
  Layout layout_of(const DeviceMesh& mesh, const Placements& placements, int64_t ndim) {
    const Layout layout(mesh, placements, ndim);
    if (layout.shard_order().size() < 2 || num_layouts_++ % 3 != 0) return layout;
    return Layout(mesh, placements, ndim, AxisList{1, 0});
  }

  std::vector<Layout> layouts_of(const DeviceMesh& mesh, const Choice& choice) {
    std::vector<Layout> layouts;
    for (size_t i = 0; i < choice.size(); ++i) layouts.push_back(layout_of(mesh, choice[i], values_[i].shape().ndim()));
    return layouts;
  }

  Tensor input(size_t i, const Layout& layout) {
    Tensor& tensor = inputs_[{i, layout.data()}];
    if (!tensor.defined()) tensor = distribute(values_[i], layout);
    return tensor;
  }

  std::vector<Tensor> inputs(const std::vector<Layout>& layouts, bool leaves) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < layouts.size(); ++i) {
      Tensor tensor = input(i, layouts[i]);
      if (leaves && is_differentiable(sample_.inputs[i])) tensor = tensor.detach().requires_grad_();
      tensors.push_back(tensor);
    }
    return tensors;
  }

  // Sum of all differentiable outputs, each times fixed weights. Undefined when there is none.
  // A pending maximum or minimum can't be multiplied by weights of either sign.
  static Tensor without_extremes(const Tensor& x) {
    Placements target = x.placements();
    for (Placement& p : target) {
      if (p.is_partial(kMax) || p.is_partial(kMin)) p = Replicate();
    }
    return target == x.placements() ? x : x.redistribute(target);
  }

  Tensor loss_of(const std::vector<Tensor>& outputs, std::vector<HostTensor>* weights) {
    Tensor loss;
    weights->resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad()) continue;
      if (!(*weights)[i].defined()) (*weights)[i] = normal(outputs[i].shape(), outputs[i].dtype(), 77 + i);
      const Tensor weight = distribute((*weights)[i], Layout::replicated(outputs[i].mesh()));
      const Tensor term = sum(mul(without_extremes(outputs[i]), weight));
      loss = loss.defined() ? sum_of(loss, term) : term;
    }
    return loss;
  }
  // Outputs may be pending in different ways.
  static Tensor sum_of(const Tensor& a, const Tensor& b) {
    return a.placements() == b.placements() ? add(a, b) : add(a.reduced(), b.reduced());
  }

  bool make_reference() {
    const DeviceMesh one = cpu_mesh({1});
    std::vector<Layout> layouts(values_.size(), Layout::replicated(one));
    try {
      for (const Tensor& output : call(inputs(layouts, false))) reference_.outputs.push_back(output.to_host());
      const std::vector<Tensor> leaves = inputs(layouts, true);
      const Tensor loss = loss_of(call(leaves), &reference_.weights);
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

  double tolerance(DType dtype) const {
    return is_floating(dtype) && sample_.tolerance > 0 ? sample_.tolerance : default_tolerance(dtype);
  }

  void problem(const std::vector<Layout>& layouts, const std::string& what) {
    std::string text = op_.name + (": sample '" + sample_.name) + "' on " + layouts[0].mesh().sizes_str() + ", inputs";
    for (const Layout& layout : layouts) text += " " + layout.str();
    report_.problems.push_back(text + ": " + what);
  }

  // True when the call was legal.
  bool try_choice(const DeviceMesh& mesh, const Choice& choice) {
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

  // Throws PlacementError when the call is refused.
  void check_values(const std::vector<Layout>& layouts) {
    std::vector<Tensor> outputs;
    if (report_.counts.accepted % 5 == 4) {
      // Handles that end with the call: kernels may take over their storage.
      std::vector<Tensor> fresh;
      for (size_t i = 0; i < layouts.size(); ++i) fresh.push_back(distribute(values_[i], layouts[i]));
      outputs = call(fresh);
    } else {
      outputs = call(inputs(layouts, false));
    }
    if (outputs.size() != reference_.outputs.size()) {
      return problem(
          layouts, std::to_string(outputs.size()) + " outputs, should be " + std::to_string(reference_.outputs.size()));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const HostTensor& want = reference_.outputs[i];
      const std::string wrong = check_tensor(outputs[i], want, tolerance(want.dtype()));
      if (!wrong.empty()) problem(layouts, "output " + std::to_string(i) + ": " + wrong);
    }
  }

  // The call is legal; whatever is thrown here is wrong, a PlacementError of backward too.
  void check_gradients(const std::vector<Layout>& layouts) {
    try {
      const std::vector<Tensor> leaves = inputs(layouts, true);
      const Tensor loss = loss_of(call(leaves), &reference_.weights);
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

  void check_gradient(const std::vector<Layout>& layouts, size_t i, const Tensor& gradient) {
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
    const std::string wrong = check_tensor(gradient, want, 10 * tolerance(want.dtype()));
    if (!wrong.empty()) problem(layouts, name + wrong);
  }

  // A refusal names the operator and offers a way out that works.
  void check_refusal(const std::vector<Layout>& layouts, const PlacementError& error) {
    if (error.op().empty() || error.inputs().empty())
      return problem(layouts, "the PlacementError doesn't say what was refused");
    const bool of_this_call =
        error.op() == op_.name && std::ranges::equal(error.inputs(), layouts, {}, &PlacementError::Input::layout);
    if (!of_this_call) return;  // an operator inside a composite: its inputs aren't the caller's
    if (error.fix().empty()) return problem(layouts, "the PlacementError suggests nothing");
    if (report_.counts.fixes_executed < 4 * options_.max_tuples) execute_fixes(layouts, error);
  }

  // A sample may call several operators: each may refuse once, with rows of its own.
  void execute_fixes(const std::vector<Layout>& layouts, PlacementError error) {
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

  const OperatorDef& op_;
  const Sample& sample_;
  const CheckOptions& options_;
  OperatorReport& report_;
  std::mt19937_64 random_;
  std::vector<HostTensor> values_;
  Reference reference_;
  std::map<std::pair<size_t, const LayoutData*>, Tensor> inputs_;
  int64_t num_layouts_ = 0;
};

}  // namespace

CheckCounts& CheckCounts::operator+=(const CheckCounts& other) {
  operators += other.operators;
  samples += other.samples;
  tuples_tried += other.tuples_tried;
  accepted += other.accepted;
  refused += other.refused;
  fixes_executed += other.fixes_executed;
  gradients_checked += other.gradients_checked;
  return *this;
}

OperatorReport check_operator(const OperatorDef& op, const CheckOptions& options) {
  OperatorReport report;
  if (op.samples == nullptr) return report;
  report.counts.operators = 1;
  const Graph graph = client().new_graph();
  {
    const GraphScope scope(graph);
    for (const Sample& sample : op.samples()) {
      ++report.counts.samples;
      SampleRun(op, sample, options, report).run();
    }
  }
  for (std::string& wrong : check_codecs(graph)) report.problems.push_back(std::move(wrong));
  for (const auto& spec : graph.core().cache().specs()) {
    report.operators_run.insert(OperatorRegistry::global().at(spec->op).name);
  }
  return report;
}

std::vector<std::string> check_codecs(const Graph& graph) {
  std::vector<std::string> problems;
  const auto refuses = [](const AttributeCodec& codec, const std::string& bytes) {
    try {
      codec.decode(bytes);
      return false;
    } catch (const DecodeError&) {
      return true;
    }
  };
  for (const auto& spec : graph.core().cache().specs()) {
    const OperatorDef& op = OperatorRegistry::global().at(spec->op);
    const std::string& bytes = spec->attributes;
    const std::string name = std::string("attributes of ") + op.name + " (" + op.attributes.print(bytes) + ")";
    if (op.attributes.encode(op.attributes.decode(bytes).get()) != bytes)
      problems.push_back(name + " don't survive a round trip");
    if (!refuses(op.attributes, bytes + '\0')) problems.push_back(name + ": a byte too many is accepted");
    if (!bytes.empty() && !refuses(op.attributes, bytes.substr(0, bytes.size() - 1))) {
      problems.push_back(name + ": a byte too few is accepted");
    }
  }
  return problems;
}

}  // namespace dtorch::test
