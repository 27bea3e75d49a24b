// A template lowered to the devices of one node: its calls resolved to what each stream does, and where its transfers
// and host data are. Made by the Sub-Controller's thread when the definition arrives; a device's part is used by its
// KernelStream alone.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "runtime/graph/templates.h"
#include "runtime/worker/device_graph.h"
#include "runtime/worker/fused_run.h"
#include "runtime/worker/lowered_spec.h"

namespace dtorch {

struct TemplatePlan {
  // A call for which the Sub-Controller prepares something.
  struct Prepared {
    uint32_t call = 0;
    const LoweredSpec* spec = nullptr;
    bool goes_on = false;  // a transfer of the bucket that the one before it belongs to
  };
  struct Device {
    std::vector<const LocalSpec*> specs;     // by call: of the first compute stream; null: a release
    std::vector<FusedPlans::PlanPtr> plans;  // by call: of the run that begins with it, once it has been run
    std::vector<Scalar> scalars;             // as of the last instance
    VaryingScalars varying;
    std::unique_ptr<DeviceGraphs> graphs;  // null: none so far
  };

  std::shared_ptr<const TemplateBody> body;
  std::vector<Prepared> prepared;  // in order of the calls
  std::deque<Device> devices;      // by local index
  // The Sub-Controller's own view of the scalars, for the numbers of host data.
  VaryingScalars varying;

  // The first scalar of a call of `replay`, whose new_varying are in `varying`.
  uint64_t first_scalar_of(uint32_t call, const Replay& replay) const;

  // specs: of the Graph, by id. Throws DecodeError when a call has none.
  TemplatePlan(std::shared_ptr<const TemplateBody> of,
               const std::vector<std::unique_ptr<const LoweredSpec>>& graph_specs, size_t num_devices,
               size_t num_streams);
};

// One Replay on this node; read by all its streams.
struct ReplayRun {
  std::shared_ptr<TemplatePlan> plan;
  Replay replay;
};

}  // namespace dtorch
