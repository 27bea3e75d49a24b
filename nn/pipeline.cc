#include "nn/pipeline.h"

#include <algorithm>
#include <limits>

#include "ops/ops.h"
#include "runtime/autograd/backward.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {
namespace {

constexpr int64_t kForwardCost = 1, kBackwardCost = 2;

// Plays the stages through in time: each one takes, when it is free, the best action that is ready.
class Simulation {
 public:
  Simulation(PipelineSchedule schedule, int64_t num_stages, int64_t num_chunks, int64_t num_micro)
      : schedule_(schedule),
        stages_(num_stages),
        chunks_(num_chunks),
        micros_(num_micro),
        free_at_(static_cast<size_t>(num_stages), 0),
        in_flight_(static_cast<size_t>(num_stages), 0),
        forward_done_(static_cast<size_t>(num_chunks * num_micro), kNever),
        backward_done_(forward_done_) {}

  // Every stage takes the parts of its list in their order; false when they wait for each other for ever.
  bool run_lists(const std::vector<std::vector<PipelineAction>>& lists, PipelineOrder* order) {
    std::vector<size_t> next(lists.size(), 0);
    const auto total = static_cast<size_t>(2 * chunks_ * micros_);
    for (int64_t time = 0; order->actions.size() < total; ++time) {
      bool any_moves = false;
      for (size_t stage = 0; stage < lists.size(); ++stage) {
        any_moves |= free_at_[stage] > time;
        if (free_at_[stage] > time || next[stage] == lists[stage].size()) continue;
        const PipelineAction& action = lists[stage][next[stage]];
        if (action.is_forward ? !forward_ready(action.chunk, action.micro, time)
                              : !backward_ready(action.chunk, action.micro, time))
          continue;
        take(static_cast<int64_t>(stage), action, time, *order);
        ++next[stage];
        any_moves = true;
      }
      if (!any_moves) return false;
    }
    finish(*order);
    return true;
  }

  PipelineOrder run() {
    PipelineOrder order;
    const int64_t total = 2 * chunks_ * micros_;
    for (int64_t time = 0; static_cast<int64_t>(order.actions.size()) < total; ++time) {
      bool any_running = false;
      for (int64_t stage = 0; stage < stages_; ++stage) any_running |= free_at_[static_cast<size_t>(stage)] > time;
      bool any_started = false;
      for (int64_t stage = 0; stage < stages_; ++stage) any_started |= start(stage, time, false, order);
      // Nothing runs and limits keep everything from starting: one stage goes beyond its limit.
      for (int64_t stage = 0; !any_running && !any_started && stage < stages_; ++stage)
        any_started = start(stage, time, true, order);
    }
    finish(order);
    return order;
  }

 private:
  void finish(PipelineOrder& order) const {
    const int64_t end = *std::max_element(free_at_.begin(), free_at_.end());
    const int64_t busy = micros_ * chunks_ * (kForwardCost + kBackwardCost);
    if (end > 0) order.bubble = 1.0 - static_cast<double>(busy) / static_cast<double>(end * stages_);
  }

  void take(int64_t stage, const PipelineAction& action, int64_t time, PipelineOrder& order) {
    int64_t& kept = in_flight_[static_cast<size_t>(stage)];
    const int64_t done = time + (action.is_forward ? kForwardCost : kBackwardCost);
    free_at_[static_cast<size_t>(stage)] = done;
    (action.is_forward ? forward_done_ : backward_done_)[at(action.chunk, action.micro)] = done;
    kept += action.is_forward ? 1 : -1;
    order.most_in_flight = std::max(order.most_in_flight, kept);
    order.actions.push_back(action);
  }

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  size_t at(int64_t chunk, int64_t micro) const { return static_cast<size_t>(chunk * micros_ + micro); }

  int64_t limit_of(int64_t stage) const {
    switch (schedule_) {
      case PipelineSchedule::kGPipe:
        return kNever;
      case PipelineSchedule::k1F1B:
        return stages_ - stage;
      case PipelineSchedule::kInterleaved:
        return 2 * (stages_ - stage - 1) + (chunks_ / stages_ - 1) * stages_ + 1;
    }
    return kNever;
  }

  bool forward_ready(int64_t chunk, int64_t micro, int64_t time) const {
    return forward_done_[at(chunk, micro)] == kNever && (chunk == 0 || forward_done_[at(chunk - 1, micro)] <= time);
  }
  bool backward_ready(int64_t chunk, int64_t micro, int64_t time) const {
    return backward_done_[at(chunk, micro)] == kNever && forward_done_[at(chunk, micro)] <= time &&
           (chunk == chunks_ - 1 || backward_done_[at(chunk + 1, micro)] <= time);
  }

  bool start(int64_t stage, int64_t time, bool beyond_limit, PipelineOrder& order) {
    if (free_at_[static_cast<size_t>(stage)] > time) return false;
    const bool forwards_first = schedule_ == PipelineSchedule::kGPipe;
    return forwards_first ? start_forward(stage, time, beyond_limit, order) || start_backward(stage, time, order)
                          : start_backward(stage, time, order) || start_forward(stage, time, beyond_limit, order);
  }

  // Forwards by groups of as many micro-batches as there are stages: a group goes through all chunks of a stage before
  // the next group starts.
  bool start_forward(int64_t stage, int64_t time, bool beyond_limit, PipelineOrder& order) {
    if (!beyond_limit && in_flight_[static_cast<size_t>(stage)] >= limit_of(stage)) return false;
    for (int64_t group = 0; group < micros_; group += stages_) {
      for (int64_t chunk = stage; chunk < chunks_; chunk += stages_) {
        for (int64_t micro = group; micro < std::min(micros_, group + stages_); ++micro) {
          if (!forward_ready(chunk, micro, time)) continue;
          take(stage, {chunk, micro, true}, time, order);
          return true;
        }
      }
    }
    return false;
  }

  bool start_backward(int64_t stage, int64_t time, PipelineOrder& order) {
    if (schedule_ == PipelineSchedule::kGPipe && !all_forwards_done(stage)) return false;
    for (int64_t micro = 0; micro < micros_; ++micro) {
      for (int64_t chunk = chunks_ - stages_ + stage; chunk >= 0; chunk -= stages_) {
        if (!backward_ready(chunk, micro, time)) continue;
        take(stage, {chunk, micro, false}, time, order);
        return true;
      }
    }
    return false;
  }

  bool all_forwards_done(int64_t stage) const {
    for (int64_t chunk = stage; chunk < chunks_; chunk += stages_) {
      for (int64_t micro = 0; micro < micros_; ++micro) {
        if (forward_done_[at(chunk, micro)] == kNever) return false;
      }
    }
    return true;
  }

  const PipelineSchedule schedule_;
  const int64_t stages_, chunks_, micros_;
  std::vector<int64_t> free_at_, in_flight_;           // by stage
  std::vector<int64_t> forward_done_, backward_done_;  // by chunk and micro-batch; kNever: not started
};

// What one stage does in an interleaved schedule (Narayanan et al. 2021): forwards by groups of as many micro-batches
// as there are stages, a group through all chunks of the stage; after a warm-up every forward is followed by a
// backward.
std::vector<PipelineAction> interleaved_list(int64_t stage, int64_t stages, int64_t chunks, int64_t micros) {
  const int64_t own = chunks / stages;
  std::vector<PipelineAction> forwards, backwards, list;
  for (int64_t group = 0; group < micros; group += stages) {
    for (int64_t c = 0; c < own; ++c) {
      for (int64_t micro = group; micro < std::min(micros, group + stages); ++micro) {
        forwards.push_back({c * stages + stage, micro, true});
        backwards.push_back({(own - 1 - c) * stages + stage, micro, false});
      }
    }
  }
  const auto warm_up = static_cast<size_t>(
      std::min<int64_t>(2 * (stages - stage - 1) + (own - 1) * stages, static_cast<int64_t>(forwards.size())));
  size_t done = 0;
  for (size_t i = 0; i < forwards.size(); ++i) {
    list.push_back(forwards[i]);
    if (i >= warm_up) list.push_back(backwards[done++]);
  }
  list.insert(list.end(), backwards.begin() + static_cast<std::ptrdiff_t>(done), backwards.end());
  return list;
}

Tensor on_mesh(const Tensor& x, const DeviceMesh& mesh, const Where& where) {
  return x.redistribute(Layout(mesh, x.placements(), x.ndim(), x.layout().shard_order()), where);
}

// What one chunk keeps of one micro-batch from forward to backward.
struct Kept {
  Tensor input;  // a leaf but for the first chunk
  PipelineOutput output;
  Tensor gradient;  // of the activation, when it has arrived
};

}  // namespace

PipelineSchedule pipeline_schedule_from_name(const std::string& name) {
  if (name == "gpipe") return PipelineSchedule::kGPipe;
  if (name == "1f1b") return PipelineSchedule::k1F1B;
  if (name == "interleaved") return PipelineSchedule::kInterleaved;
  throw UserError("[pipeline] '" + name + "' isn't one of gpipe, 1f1b, interleaved");
}

PipelineOrder pipeline_order(PipelineSchedule schedule, int64_t num_stages, int64_t num_chunks, int64_t num_micro) {
  if (num_stages < 1 || num_chunks < num_stages || num_chunks % num_stages != 0 || num_micro < 1) {
    throw UserError("[pipeline] " + std::to_string(num_chunks) + " chunks on " + std::to_string(num_stages) +
                    " stages with " + std::to_string(num_micro) +
                    " micro-batches: chunks must be a positive multiple of stages, and micro-batches positive");
  }
  if (schedule == PipelineSchedule::kInterleaved) {
    std::vector<std::vector<PipelineAction>> lists;
    for (int64_t stage = 0; stage < num_stages; ++stage)
      lists.push_back(interleaved_list(stage, num_stages, num_chunks, num_micro));
    PipelineOrder order;
    if (Simulation(schedule, num_stages, num_chunks, num_micro).run_lists(lists, &order)) return order;
    // A last group that is smaller can make the lists wait for each other; then each stage takes what is ready.
  }
  return Simulation(schedule, num_stages, num_chunks, num_micro).run();
}

PipelineLosses pipeline_step(const std::vector<PipelineChunk>& chunks, const std::vector<Tensor>& inputs,
                             const PipelineOrder& order, const Tensor& loss_scale, Where where) {
  SourceScope scope(where);
  const size_t num_micro = inputs.size();
  if (chunks.empty()) throw UserError("[pipeline] no chunks");
  for (const PipelineAction& action : order.actions) {
    const bool fits = action.chunk >= 0 && action.chunk < static_cast<int64_t>(chunks.size()) && action.micro >= 0 &&
                      action.micro < static_cast<int64_t>(num_micro);
    if (!fits || order.actions.size() != 2 * chunks.size() * num_micro) {
      throw UserError("[pipeline] the order was made for another number of chunks or micro-batches than " +
                      std::to_string(chunks.size()) + " and " + std::to_string(num_micro));
    }
  }
  std::vector<Kept> kept(chunks.size() * num_micro);
  const auto at = [&](size_t chunk, size_t micro) -> Kept& { return kept.at(chunk * num_micro + micro); };
  for (size_t micro = 0; micro < num_micro; ++micro) at(0, micro).input = inputs[micro];
  const DeviceMesh& home = chunks.back().mesh;
  PipelineLosses total;
  const auto add_to = [&](Tensor& sum, const Tensor& loss) {
    if (!loss.defined()) return;
    const Tensor part = on_mesh(loss.detach(), home, where);
    sum = sum.defined() ? add(sum, part, where) : part;
  };
  for (const PipelineAction& action : order.actions) {
    const auto chunk = static_cast<size_t>(action.chunk), micro = static_cast<size_t>(action.micro);
    Kept& here = at(chunk, micro);
    if (action.is_forward) {
      here.output = chunks[chunk].forward(here.input, action.micro);
      add_to(total.loss, here.output.loss);
      add_to(total.aux, here.output.aux);
      // On its way to the next stage at once.
      if (chunk + 1 < chunks.size()) {
        at(chunk + 1, micro).input = on_mesh(here.output.activation.detach(), chunks[chunk + 1].mesh, where);
        at(chunk + 1, micro).input.requires_grad_();
      }
      continue;
    }
    std::vector<Tensor> outputs, gradients;
    if (here.output.activation.defined()) {
      outputs.push_back(here.output.activation);
      gradients.push_back(here.gradient);
    }
    for (const Tensor* loss : {&here.output.loss, &here.output.aux}) {
      if (!loss->defined()) continue;
      outputs.push_back(*loss);
      gradients.push_back(loss_scale.defined() ? on_mesh(loss_scale, loss->mesh(), where) : Tensor());
    }
    backward(outputs, gradients, {}, {}, where);
    if (chunk > 0) {
      Kept& before = at(chunk - 1, micro);
      before.gradient = on_mesh(here.input.grad(where), chunks[chunk - 1].mesh, where);
    }
    here = {};
  }
  return total;
}

}  // namespace dtorch::nn
