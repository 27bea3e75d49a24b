// How much of what devices run behind the host they run as device graphs (docs/gpu.md), and why they don't where it is
// walked instead.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace dtorch {

// Why a stretch of a template that could be one graph was walked.
enum class GraphFallback : uint8_t {
  kInParts,         // the instance came in parts, of which none holds the stretch
  kMoved,           // a value that the graph reads where it lies is somewhere else now
  kHeld,            // somebody else holds a value whose memory the graph writes to
  kLayout,          // a value has other strides, or is missing
  kPoisoned,        // a value it needs has failed
  kRefused,         // the device couldn't capture a call
  kNoMemory,        // for what the graph hands out
  kObserved,        // a timeline or a profile wants to see every call
  kComputeStreams,  // the device has several
};
inline constexpr size_t kNumGraphFallbacks = 9;
inline constexpr std::array<const char*, kNumGraphFallbacks> kGraphFallbackNames = {
    "in parts", "moved", "held", "layout", "poisoned", "refused", "no memory", "observed", "compute streams"};

// Sums over devices.
struct DeviceGraphStats {
  int64_t captured = 0;                                    // graphs
  int64_t launched = 0;                                    // times that one ran
  int64_t kernels = 0;                                     // kernels that ran so, of RuntimeStats::kernels_run
  std::array<int64_t, kNumGraphFallbacks> fallbacks = {};  // stretches that were walked, by GraphFallback
  int64_t fallbacks_for(GraphFallback reason) const { return fallbacks[static_cast<size_t>(reason)]; }
  friend bool operator==(const DeviceGraphStats&, const DeviceGraphStats&) = default;
};

}  // namespace dtorch
