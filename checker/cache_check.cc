#include "checker/cache_check.h"

#include <algorithm>
#include <optional>

#include "checker/sample_values.h"
#include "checker/values.h"
#include "dtorch/dtorch.h"
#include "runtime/client/graph_core.h"

namespace dtorch::checker {
namespace {

// What a call gave: metadata and values on their way, or the first line of its refusal.
struct Outcome {
  std::optional<std::string> refusal;
  std::vector<const TensorMeta*> metas;
  std::vector<TensorFuture> values;
};

Outcome outcome_of(const Sample& sample, const std::vector<Tensor>& inputs, uint64_t seed, bool reads) {
  Outcome outcome;
  try {
    manual_seed(seed);
    for (const Tensor& output : sample.call(inputs)) {
      outcome.metas.push_back(&output.meta());
      if (reads) outcome.values.push_back(output.to_host_async());
    }
  } catch (const std::exception& error) {
    const std::string text = error.what();
    outcome.refusal = text.substr(0, text.find('\n'));
  }
  return outcome;
}

// The value; null when a kernel has failed, as it may on another sample's inputs.
std::optional<HostTensor> value_of(const TensorFuture& read) {
  try {
    return read.get();
  } catch (const RuntimeFault&) {
    return std::nullopt;
  }
}

std::string difference_of(const Outcome& got, const Outcome& want) {
  if (got.refusal != want.refusal)
    return got.refusal ? "is refused: " + *got.refusal : "isn't refused; alone it is: " + *want.refusal;
  if (got.metas.size() != want.metas.size()) return "has another number of outputs";
  for (size_t i = 0; i < got.metas.size(); ++i) {
    if (got.metas[i] != want.metas[i])
      return "output " + std::to_string(i) + " is " + got.metas[i]->str() + ", should be " + want.metas[i]->str();
    const std::optional<HostTensor> value = value_of(got.values[i]), wanted = value_of(want.values[i]);
    if (value.has_value() != wanted.has_value())
      return "output " + std::to_string(i) + (value ? " is there, alone it fails" : " fails, alone it doesn't");
    const std::string wrong = value ? difference(*value, *wanted, 0) : "";
    if (!wrong.empty()) return "output " + std::to_string(i) + ": " + wrong;
  }
  return "";
}

enum class Holding { kOneDevice, kSharded, kPending };

Layout layout_for(const SampleInput& input, Holding holding) {
  const DeviceMesh mesh = init_device_mesh("cpu", {holding == Holding::kOneDevice ? 1 : 2});
  const int64_t ndim = input.global_shape.ndim();
  if (holding == Holding::kSharded && ndim > 0) return Layout(mesh, {Shard(0)}, ndim);
  if (holding == Holding::kPending && is_floating(input.dtype)) return Layout(mesh, {Partial()}, ndim);
  return Layout::replicated(mesh);
}

class Repeats {
 public:
  Repeats(const OperatorDef& op, uint64_t seed, int64_t* num_compared)
      : op_(op), seed_(seed), num_compared_(num_compared) {}

  // `second` on the inputs of `owner`, with `first` just before it.
  void run_pair(const Sample& first, const Sample& second, const Sample& owner, Holding holding) {
    const std::vector<Tensor> inputs = inputs_of(owner, seed_, holding);
    compare({&first, &inputs}, {&second, &inputs}, holding);
  }
  // `sample` with other values, and reversed where its inputs are alike.
  void run_again(const Sample& sample, Holding holding) {
    const std::vector<Tensor> inputs = inputs_of(sample, seed_, holding),
                              others = inputs_of(sample, seed_ + 1, holding);
    compare({&sample, &inputs}, {&sample, &others}, holding);
    const auto alike = [&](const Tensor& input) { return &input.meta() == &inputs[0].meta(); };
    if (inputs.size() < 2 || !std::ranges::all_of(inputs, alike)) return;
    const std::vector<Tensor> reversed(inputs.rbegin(), inputs.rend());
    compare({&sample, &inputs}, {&sample, &reversed}, holding);
  }
  std::vector<std::string> finish() {
    std::vector<std::string> problems;
    for (const Comparison& comparison : comparisons_) {
      const std::string wrong = difference_of(comparison.got, comparison.want);
      if (!wrong.empty()) problems.push_back(comparison.name + wrong);
    }
    return problems;
  }

 private:
  struct CallOf {
    const Sample* sample;
    const std::vector<Tensor>* inputs;
  };

  static std::vector<Tensor> inputs_of(const Sample& sample, uint64_t seed, Holding holding) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      inputs.push_back(
          distribute(sample_value(sample.inputs[i], seed * 2000 + i), layout_for(sample.inputs[i], holding)));
    }
    return inputs;
  }

  void compare(const CallOf& first, const CallOf& second, Holding holding) {
    Comparison comparison;
    {
      const CacheOff off(current_graph().cache());
      comparison.want = outcome_of(*second.sample, *second.inputs, seed_, true);
    }
    outcome_of(*first.sample, *first.inputs, seed_, false);
    comparison.got = outcome_of(*second.sample, *second.inputs, seed_, true);
    ++*num_compared_;
    const char* names[] = {"one device", "two devices, inputs Shard(0)", "two devices, inputs Partial"};
    comparison.name = std::string(op_.name) + ": the call of sample '" + second.sample->name +
                      "' right after that of '" + first.sample->name + "' on " + names[static_cast<size_t>(holding)] +
                      ": ";
    comparisons_.push_back(std::move(comparison));
  }

  struct Comparison {
    std::string name;
    Outcome got, want;
  };

  const OperatorDef& op_;
  const uint64_t seed_;
  int64_t* num_compared_;
  std::vector<Comparison> comparisons_;
};

// Attributes and numbers may have other names in other samples, but inputs must be as many and of equal dtypes.
bool may_swap(const Sample& a, const Sample& b) {
  return std::ranges::equal(a.inputs, b.inputs, [](const SampleInput& x, const SampleInput& y) {
    return x.dtype == y.dtype && x.fill == y.fill && x.index_bound == y.index_bound;
  });
}

}  // namespace

std::vector<std::string> check_repeated_calls(Client& client, const OperatorDef& op, const std::vector<Sample>& samples,
                                              uint64_t seed, size_t max_pairs, int64_t* num_compared) {
  const Graph graph = client.new_graph();
  std::vector<std::string> problems;
  {
    const GraphScope scope(graph);
    Repeats repeats(op, seed, num_compared);
    std::vector<std::pair<size_t, size_t>> pairs;
    for (size_t a = 0; a < samples.size(); ++a) {
      for (size_t b = 0; b < samples.size(); ++b) {
        if (a != b && !samples[a].inputs.empty() && may_swap(samples[a], samples[b])) pairs.emplace_back(a, b);
      }
    }
    const size_t stride = pairs.size() / std::max<size_t>(max_pairs, 1) + 1;
    for (const Holding holding : {Holding::kOneDevice, Holding::kSharded, Holding::kPending}) {
      for (const Sample& sample : samples) {
        if (!sample.inputs.empty()) repeats.run_again(sample, holding);
      }
      for (size_t i = 0; i < pairs.size(); i += stride) {
        const auto& [a, b] = pairs[i];
        repeats.run_pair(samples[a], samples[b], samples[a], holding);
      }
    }
    problems = repeats.finish();
    auto barrier = make_intrusive<ReadState>(Shape{0}, kFloat32, Box{Shape{0}, Shape{0}});
    graph.core().flush(barrier);
    barrier->wait();
    // A call on another sample's inputs may fail in its kernel; both runs then do.
    while (graph.core().take_failure()) {
    }
  }
  return problems;
}

}  // namespace dtorch::checker
