// Graph: an independent stream of operators with its own executor; GraphScope makes one current on this thread.
// GraphCore (graph_core.h): the client's side of a Graph: slots, inference cache, specs, the ring, random state.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/client/link.h"
#include "runtime/client/tensor.h"

namespace dtorch {

struct RandomState {
  uint64_t seed = 0;
  uint64_t next_call = 0;
  friend bool operator==(const RandomState&, const RandomState&) = default;
};

class Graph {
 public:
  Graph() = default;
  explicit Graph(IntrusivePtr<GraphCore> core) : core_(std::move(core)) {}
  GraphCore& core() const { return *core_; }
  const IntrusivePtr<GraphCore>& core_ptr() const { return core_; }
  GraphId id() const;
  void manual_seed(uint64_t seed);
  RandomState random_state() const;
  void set_random_state(const RandomState& state);
  // Ends the current subgraph; doesn't wait.
  void flush();

 private:
  IntrusivePtr<GraphCore> core_;
};

class GraphScope {
 public:
  explicit GraphScope(const Graph& graph);
  ~GraphScope();
  GraphScope(const GraphScope&) = delete;
  GraphScope& operator=(const GraphScope&) = delete;

 private:
  IntrusivePtr<GraphCore> keep_;
  GraphCore* before_;
};
GraphCore& current_graph();  // throws GraphError outside of dtorch::run
// Operators that combine across shards inside their own plan (class (b) of distribution.md) ask this before they do so.
bool implicit_redistribution_allowed();

// The first source line set on a thread wins until its scope ends: an operator recorded inside a layer reports the
// user's line.
class SourceScope {
 public:
  explicit SourceScope(const Where& where);
  ~SourceScope();
  SourceScope(const SourceScope&) = delete;
  SourceScope& operator=(const SourceScope&) = delete;

 private:
  bool set_;
};

// Which conversions record() may insert on this thread; kReduce inside backward.
class ConversionScope {
 public:
  explicit ConversionScope(ConversionPolicy policy);
  ~ConversionScope();
  ConversionScope(const ConversionScope&) = delete;
  ConversionScope& operator=(const ConversionScope&) = delete;

 private:
  ConversionPolicy before_;
};

}  // namespace dtorch
