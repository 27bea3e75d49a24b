#include "checker/row_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "checker/part_results.h"
#include "checker/sample_values.h"
#include "checker/values.h"
#include "dtorch/dtorch.h"
#include "runtime/client/graph_core.h"

namespace dtorch::checker {
namespace {

using Tuple = std::vector<Placement>;
constexpr size_t kBatch = 48;  // tuples whose reads are under way at a time

// How one input may be held on an axis, so that a result says something: dims of one element are the same whole and
// cut.
bool is_possible(const SampleInput& input, const Placement& placement) {
  if (placement.is_shard()) return placement.dim < input.global_shape.ndim() && input.global_shape[placement.dim] >= 2;
  if (!placement.is_partial()) return true;
  return input.dtype != kBool && input.dtype != kUInt8 && input.fill != SampleFill::kIndices;
}

bool has_elements(const std::vector<HostTensor>& tensors) {
  return std::ranges::all_of(tensors, [](const HostTensor& tensor) { return tensor.num_elements() > 0; });
}

// A sample with one set of values.
class Subject {
 public:
  Subject(const Sample& sample, uint64_t seed) : sample_(sample), seed_(seed) {
    for (size_t i = 0; i < sample.inputs.size(); ++i) values_.push_back(sample_value(sample.inputs[i], seed * 131 + i));
  }
  const Sample& sample() const { return sample_; }
  const std::vector<HostTensor>& whole() const { return whole_; }

  // The result for the whole, with what was recorded for it: operators and attributes. Throws what the call throws.
  std::string run_whole(GraphCore& graph) {
    InferenceCache& cache = graph.cache();
    const size_t before = cache.uncached().size();
    cache.set_enabled(false);
    std::vector<Tensor> outputs;
    try {
      std::vector<Tensor> inputs;
      for (const HostTensor& value : values_) inputs.push_back(from_host(value));
      outputs = call(inputs);
    } catch (...) {
      cache.set_enabled(true);
      throw;
    }
    cache.set_enabled(true);
    std::string trace;
    for (size_t i = before; i < cache.uncached().size(); ++i) {
      const Inference& inference = *cache.uncached()[i];
      if (!inference.inputs.empty()) trace += std::string(inference.op->name) + "(" + inference.attributes + ")";
    }
    for (const Tensor& output : outputs) whole_.push_back(output.to_host());
    return trace;
  }
  bool is_usable() const { return !whole_.empty() && has_elements(values_) && has_elements(whole_); }

  std::vector<Tensor> call(const std::vector<Tensor>& inputs) const {
    manual_seed(seed_);
    return sample_.call(inputs);
  }
  // The call on part `index` of `parts`.
  std::vector<Tensor> call_part(const Tuple& tuple, int64_t parts, int64_t index) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < tuple.size(); ++i) inputs.push_back(part(i, tuple[i], parts, index));
    return call(inputs);
  }

 private:
  Tensor part(size_t input, const Placement& placement, int64_t parts, int64_t index) {
    const Key key{input, placement.is_replicate() ? -2 : placement.is_shard() ? placement.dim : -1, parts};
    std::vector<Tensor>& all = parts_[key];
    if (all.empty()) {
      for (const HostTensor& value : make_parts(input, placement, parts)) all.push_back(from_host(value));
    }
    return all[static_cast<size_t>(index)];
  }
  std::vector<HostTensor> make_parts(size_t input, const Placement& placement, int64_t parts) const {
    const HostTensor& value = values_[input];
    if (placement.is_partial()) return random_parts(value, parts, seed_ * 31 + input);
    std::vector<HostTensor> all;
    for (int64_t i = 0; i < parts; ++i) {
      Box box = whole_box(value.shape());
      if (placement.is_shard()) {
        const Span1 span = split_part(value.shape()[placement.dim], parts, i);
        box.offset[placement.dim] = span.offset;
        box.size[placement.dim] = span.size;
      }
      all.push_back(part_of(value, box));
    }
    return all;
  }
  static Box whole_box(const Shape& shape) { return {Shape(shape.ndim(), 0), shape}; }

  using Key = std::tuple<size_t, int64_t, int64_t>;
  const Sample& sample_;
  const uint64_t seed_;
  std::vector<HostTensor> values_, whole_;
  std::map<Key, std::vector<Tensor>> parts_;
};

// Samples of equal ndims, operators and attributes; of each, one Subject a seed.
struct Group {
  std::vector<size_t> samples;
  std::vector<std::vector<Subject>> subjects;
};

struct Candidate {
  Tuple inputs;
  std::vector<Tuple> outputs;  // what is left for each output; empty before the first test
  std::vector<size_t> samples;
  bool holds = true;
};

struct Launch {
  Candidate* candidate;
  std::vector<std::vector<TensorFuture>> reads;  // [part][output]
};

class GroupSearch {
 public:
  GroupSearch(Group& group, uint64_t seed, int64_t max_tuples) : group_(group), random_(seed) {
    for (Tuple& tuple : tuples(max_tuples)) candidates_.push_back({std::move(tuple), {}, {}, true});
  }

  std::vector<Candidate> run() {
    for (size_t s = 0; s < group_.samples.size(); ++s) {
      for (Candidate& candidate : candidates_) {
        if (applies(s, candidate)) candidate.samples.push_back(group_.samples[s]);
      }
      for (Subject& subject : group_.subjects[s]) {
        for (int64_t parts : {2, 3}) test(s, subject, parts);
      }
    }
    std::vector<Candidate> found;
    for (Candidate& candidate : candidates_) {
      if (candidate.holds && !candidate.samples.empty()) found.push_back(std::move(candidate));
    }
    return found;
  }

 private:
  const std::vector<SampleInput>& inputs_of(size_t s) const { return group_.subjects[s][0].sample().inputs; }

  bool applies(size_t s, const Candidate& candidate) const {
    for (size_t i = 0; i < candidate.inputs.size(); ++i) {
      if (!is_possible(inputs_of(s)[i], candidate.inputs[i])) return false;
    }
    return true;
  }

  std::vector<Tuple> tuples(int64_t max_tuples) {
    std::vector<Tuple> choices;
    for (size_t i = 0; i < inputs_of(0).size(); ++i) {
      Tuple own = {Replicate()};
      std::vector<Placement> wanted = {Partial()};
      for (int64_t d = 0; d < inputs_of(0)[i].global_shape.ndim(); ++d) wanted.push_back(Shard(d));
      for (const Placement& placement : wanted) {
        for (size_t s = 0; s < group_.samples.size(); ++s) {
          if (!is_possible(inputs_of(s)[i], placement)) continue;
          own.push_back(placement);
          break;
        }
      }
      choices.push_back(std::move(own));
    }
    return chosen_tuples(choices, max_tuples, random_);
  }

  void test(size_t s, Subject& subject, int64_t parts) {
    std::vector<Launch> launches;
    for (Candidate& candidate : candidates_) {
      if (!candidate.holds || !applies(s, candidate)) continue;
      launch(subject, candidate, parts, launches);
      if (launches.size() >= kBatch) collect(subject, launches);
    }
    collect(subject, launches);
  }

  // Starts the call on every part; a call that is refused, or results that are no parts by their shapes, end it.
  static void launch(Subject& subject, Candidate& candidate, int64_t parts, std::vector<Launch>& launches) {
    std::vector<std::vector<Tensor>> results;
    try {
      for (int64_t i = 0; i < parts; ++i) results.push_back(subject.call_part(candidate.inputs, parts, i));
    } catch (const std::exception&) {
      candidate.holds = false;
      return;
    }
    for (size_t o = 0; o < subject.whole().size() && candidate.holds; ++o) {
      std::vector<Shape> shapes;
      for (const std::vector<Tensor>& outputs : results) {
        if (outputs.size() != subject.whole().size()) candidate.holds = false;
        if (candidate.holds) shapes.push_back(outputs[o].shape());
      }
      candidate.holds = candidate.holds && are_shapes_of_parts(shapes, subject.whole()[o].shape());
    }
    if (!candidate.holds) return;
    Launch launch{&candidate, {}};
    for (const std::vector<Tensor>& outputs : results) {
      std::vector<TensorFuture>& reads = launch.reads.emplace_back();
      for (const Tensor& output : outputs) reads.push_back(output.to_host_async());
    }
    launches.push_back(std::move(launch));
  }

  static void collect(const Subject& subject, std::vector<Launch>& launches) {
    for (Launch& launch : launches) {
      Candidate& candidate = *launch.candidate;
      const bool is_first = candidate.outputs.empty();
      for (size_t o = 0; o < subject.whole().size() && candidate.holds; ++o) {
        try {
          std::vector<HostTensor> parts;
          for (const std::vector<TensorFuture>& reads : launch.reads) parts.push_back(reads[o].get());
          Tuple fitting = fitting_placements(parts, subject.whole()[o], candidate.inputs);
          if (is_first) {
            candidate.outputs.push_back(std::move(fitting));
          } else {
            std::erase_if(candidate.outputs[o],
                          [&](const Placement& p) { return std::ranges::find(fitting, p) == fitting.end(); });
          }
          candidate.holds = !candidate.outputs[o].empty();
        } catch (const RuntimeFault&) {  // a kernel that can't do the part
          candidate.holds = false;
        }
      }
    }
    launches.clear();
  }

  Group& group_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
};

std::string group_key(const Sample& sample, const std::string& trace) {
  std::string key;
  for (const SampleInput& input : sample.inputs) key += std::to_string(input.global_shape.ndim()) + ",";
  return key + trace;
}

// Waits for everything and forgets what failed: kernels may refuse parts.
void forget_failures(Client& client) {
  while (true) {
    try {
      return client.synchronize();
    } catch (const RuntimeFault&) {  // one at a time
    }
  }
}

}  // namespace

std::vector<FoundRow> find_rows(Client& client, const std::vector<Sample>& samples, uint64_t seed, int64_t max_tuples) {
  const Graph graph = client.new_graph();
  std::vector<FoundRow> rows;
  {
    const GraphScope scope(graph);
    std::map<std::string, Group> groups;
    for (size_t s = 0; s < samples.size(); ++s) {
      if (samples[s].inputs.empty()) continue;
      std::vector<Subject> subjects;
      std::string key;
      for (uint64_t round : {1, 2}) {
        Subject subject(samples[s], seed * 10 + round);
        key = group_key(samples[s], subject.run_whole(graph.core()));
        subjects.push_back(std::move(subject));
      }
      if (!std::ranges::all_of(subjects, &Subject::is_usable)) continue;
      groups[key].samples.push_back(s);
      groups[key].subjects.push_back(std::move(subjects));
    }
    size_t number = 0;
    for (auto& [key, group] : groups) {
      for (Candidate& candidate : GroupSearch(group, seed, max_tuples).run()) {
        Row row{std::move(candidate.inputs), {}};
        for (const Tuple& fitting : candidate.outputs) row.outputs.push_back(fitting[0]);
        rows.push_back({std::move(row), number, std::move(candidate.samples)});
      }
      ++number;
    }
    forget_failures(client);
  }
  return rows;
}

std::vector<HostTensor> random_parts(const HostTensor& value, int64_t parts, uint64_t seed) {
  std::vector<HostTensor> all;
  std::vector<double> rest = value.to_vector<double>();
  const bool floating = is_floating(value.dtype());
  for (int64_t i = 0; i + 1 < parts; ++i) {
    const HostTensor noise = normal(value.shape(), kFloat64, seed * 7 + static_cast<uint64_t>(i));
    std::vector<double> part = noise.to_vector<double>();
    for (double& x : part) x = floating ? 1.3 * x : std::round(3 * x);
    HostTensor rounded = HostTensor::of<double>(value.shape(), part).to(value.dtype());
    for (size_t e = 0; e < rest.size(); ++e) rest[e] -= rounded.element<double>(static_cast<int64_t>(e));
    all.push_back(std::move(rounded));
  }
  all.push_back(HostTensor::of<double>(value.shape(), rest).to(value.dtype()));
  return all;
}

}  // namespace dtorch::checker
