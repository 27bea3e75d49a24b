// Pipeline parallelism: chunks of a model on meshes of their own, micro-batches that flow through them, and the order
// in which their forward and backward parts are issued (a total order, so that every stage is kept busy and
// communication can't deadlock). Values don't depend on the schedule, but for the order of sums.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/client/tensor.h"

namespace dtorch::nn {

enum class PipelineSchedule : uint8_t {
  kGPipe,        // all forwards, then all backwards: every activation is kept
  k1F1B,         // a backward as soon as there is one: at most as many micro-batches are kept as there are stages left
  kInterleaved,  // 1F1B with several chunks a stage: a smaller bubble, more transfers
};
PipelineSchedule pipeline_schedule_from_name(const std::string& name);  // gpipe, 1f1b, interleaved; else UserError

struct PipelineAction {
  int64_t chunk = 0, micro = 0;
  bool is_forward = true;
  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};
struct PipelineOrder {
  std::vector<PipelineAction> actions;
  double bubble = 0;           // idle share of the stages, with backward twice as long as forward
  int64_t most_in_flight = 0;  // micro-batch activations that one stage keeps at once
};
// chunk c runs on stage c % num_stages; num_chunks is a multiple of num_stages. Pure.
PipelineOrder pipeline_order(PipelineSchedule schedule, int64_t num_stages, int64_t num_chunks, int64_t num_micro);

struct PipelineOutput {
  Tensor activation;  // for the next chunk; undefined for the last one
  Tensor loss;        // what this chunk adds to the loss, a scalar; undefined: nothing
  Tensor aux;         // the same, reported apart (a router's balance)
};
struct PipelineChunk {
  DeviceMesh mesh;
  std::function<PipelineOutput(const Tensor& input, int64_t micro)> forward;
};
struct PipelineLosses {
  Tensor loss, aux;  // of all micro-batches together, on the mesh of the last chunk, without gradient; may be undefined
};
// One forward and backward pass of all micro-batches; adds to the gradients of the parameters used. inputs: one a
// micro-batch, on the mesh of chunk 0. loss_scale: a scalar on any mesh, by which gradients (not the losses) are
// multiplied; undefined: 1. Never waits.
PipelineLosses pipeline_step(const std::vector<PipelineChunk>& chunks, const std::vector<Tensor>& inputs,
                             const PipelineOrder& order, const Tensor& loss_scale = {}, Where where = Where::current());

}  // namespace dtorch::nn
