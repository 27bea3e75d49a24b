// What the controller needs to know of a Graph's operator specs, looked up once.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/graph/logical_graph.h"

namespace dtorch {

struct SpecInfo {
  const OperatorSpec* spec = nullptr;  // the client's; lives as long as its Graph
  const char* op_name = "";
  int64_t output_bytes = 0;  // of the logical tensors
  bool is_read = false;
  bool is_step = false;        // an optimizer's
  bool redistributes = false;  // the same elements in another layout
  bool moves_data = false;     // draws a transfer number
  bool has_effect = false;     // outside
  bool has_feed = false;       // from_host: bytes travel beside the piece
  bool droppable = false;      // pure and without a feed
  // Calls whose outputs have one shape and layout may be fused: the output's metadata; null: never.
  const TensorMeta* fusable = nullptr;
  bool defined_on_nodes = false;  // a piece that was sent defines it
};

// Filled and read by the executor of the Graph; other threads only ask for names.
class SpecTable {
 public:
  SpecInfo& find_or_add(const OperatorSpec& spec, bool has_feed) {
    if (spec.id < infos_.size() && infos_[spec.id].spec == &spec) return infos_[spec.id];
    return add(spec, has_feed);
  }
  SpecInfo& at(uint32_t id) { return infos_[id]; }
  const SpecInfo& at(uint32_t id) const { return infos_[id]; }
  // Any thread. Of an id that a piece of this Graph uses.
  const char* op_name(uint32_t id) const;
  const OperatorSpec* spec(uint32_t id) const;  // as op_name; null when unknown
  // Its results, or its inputs when it has none: "float32 [8] ..., 32 bytes". As op_name; "" for a release.
  std::string describe_values(uint32_t id) const;
  std::string describe_output(uint32_t id, size_t output) const;  // "float32 [8] ..."

 private:
  SpecInfo& add(const OperatorSpec& spec, bool has_feed);
  mutable std::mutex mutex_;  // taken to grow, and by other threads
  std::vector<SpecInfo> infos_;
};

}  // namespace dtorch
