// TraceBook: what the operators of a timeline are called, by their place: noted when a piece is sent, since what the
// ledger knows of a piece is gone when the piece is. Bounded: places beyond the limit have no name. Thread-safe.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/graph/inspection.h"

namespace dtorch {

class SpecTable;

class TraceBook {
 public:
  static constexpr size_t kMaxOperators = size_t{1} << 20;
  struct Named {
    const char* name = "an operator";  // static storage
    std::string values;                // "float32 [8] ..., 32 bytes"
    SourceLine where;
  };
  void add(GraphId graph, Sequence sequence, const LogicalGraph& operators, const SpecTable& specs);
  Named find(const Place& place) const;

 private:
  struct Call {
    uint32_t spec = 0;
    SourceLine where;
  };
  struct Piece {
    GraphId graph = 0;
    std::vector<Call> calls;
  };
  struct Spec {
    const char* name = "";
    std::string values;
  };
  static uint64_t key(GraphId graph, uint32_t spec) { return uint64_t{graph} << 32 | spec; }
  mutable std::mutex mutex_;
  std::unordered_map<Sequence, Piece> pieces_;
  std::unordered_map<uint64_t, Spec> specs_;
  size_t num_operators_ = 0;
};

}  // namespace dtorch
