#include "runtime/client/client.h"

#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/cpu_time.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/thread_state.h"

namespace dtorch {

struct Client::State {
  std::shared_ptr<ClientShared> shared;
  Graph first;
  std::vector<Graph> others;
  GraphCore* current_before = nullptr;
  bool closed = false;
  std::optional<double> profile_began_cpu_s;

  std::vector<Graph> all() const {
    std::vector<Graph> graphs = {first};
    graphs.insert(graphs.end(), others.begin(), others.end());
    return graphs;
  }
  // Graphs that nobody can reach any more end, so that a program may make as many as it likes.
  void close_unreachable() {
    std::erase_if(others, [this](const Graph& graph) {
      if (graph.core().ref_count() > 1) return false;
      graph.core().close();
      if (std::exception_ptr failure = graph.core().take_failure()) shared->callbacks->keep_error(failure);
      return true;
    });
  }
};

Client::Client(std::shared_ptr<Runtime> runtime) : state_(std::make_unique<State>()) {
  state_->shared = std::make_shared<ClientShared>();
  state_->shared->runtime = std::move(runtime);
  state_->first = Graph(make_intrusive<GraphCore>(state_->shared));
  state_->current_before = std::exchange(thread_state.graph, &state_->first.core());
}

Client::~Client() {
  try {
    close();
  } catch (...) {
    // Whoever wants to know calls close().
  }
  if (thread_state.graph == &state_->first.core()) thread_state.graph = state_->current_before;
}

int64_t Client::num_devices() const { return state_->shared->runtime->binding().num_devices(); }
int32_t Client::num_nodes() const { return state_->shared->runtime->binding().num_nodes; }
Graph Client::graph() const { return state_->first; }

Graph Client::new_graph() {
  if (state_->closed) throw GraphError("[new_graph] the client is closed");
  state_->close_unreachable();
  state_->others.emplace_back(make_intrusive<GraphCore>(state_->shared));
  return state_->others.back();
}

void Client::flush() {
  for (const Graph& graph : state_->all()) {
    if (graph.core().belongs_to_this_thread()) graph.core().flush();
  }
  state_->shared->callbacks->throw_error();
}

void Client::synchronize(Where) {
  std::vector<std::pair<Graph, IntrusivePtr<ReadState>>> barriers;
  for (const Graph& graph : state_->all()) {
    if (!graph.core().belongs_to_this_thread()) continue;
    auto barrier = make_intrusive<ReadState>(Shape{0}, kFloat32, whole(Shape{0}));
    graph.core().flush(barrier);
    barriers.emplace_back(graph, std::move(barrier));
  }
  for (const auto& [graph, barrier] : barriers) barrier->wait();
  for (const auto& [graph, barrier] : barriers) {
    if (std::exception_ptr failure = graph.core().take_failure()) std::rethrow_exception(failure);
    barrier->get();
  }
  state_->shared->callbacks->throw_error();
}

ClientStats Client::stats() {
  Runtime& runtime = *state_->shared->runtime;
  ClientStats stats{runtime.stats(), {}, {}, {}};
  if (auto* templates = dynamic_cast<TemplateStatsSource*>(&runtime))
    static_cast<TemplateStats&>(stats) = templates->template_stats();
  if (auto* memory = dynamic_cast<DeviceMemorySource*>(&runtime)) memory->add_device_memory(stats);
  return stats;
}

void Client::reset_peak_bytes(Where where) {
  auto* memory = dynamic_cast<DeviceMemorySource*>(state_->shared->runtime.get());
  if (!memory) throw UserError("[reset_peak_bytes] this runtime doesn't count the memory of its devices");
  synchronize(where);
  memory->reset_peak_bytes();
}

namespace {

SightSource& sight_of(Runtime& runtime, const char* what) {
  auto* sight = dynamic_cast<SightSource*>(&runtime);
  if (!sight) throw UserError(std::string("[") + what + "] this runtime can't be asked");
  return *sight;
}

}  // namespace

std::string Client::memory_report(const std::vector<std::pair<std::string, Tensor>>& named, Where where) {
  SightSource& sight = sight_of(*state_->shared->runtime, "memory_report");
  synchronize(where);
  TensorNames names;
  for (const auto& [name, tensor] : named) {
    tensor.meta();
    names.try_emplace({tensor.value()->graph().id(), tensor.value()->slot()}, name);
  }
  return sight.memory_report(names);
}

void Client::start_profile(Where where) {
  SightSource& sight = sight_of(*state_->shared->runtime, "start_profile");
  synchronize(where);
  sight.start_profile();
  state_->profile_began_cpu_s = thread_cpu_s();
}

Profile Client::profile(Where where) {
  if (!state_->profile_began_cpu_s)
    throw UserError("[profile] nothing is counted; call start_profile() before\n  called at " +
                    SourceLine::from(where).str());
  synchronize(where);
  const double client_cpu_s = thread_cpu_s() - *state_->profile_began_cpu_s;
  Profile profile = sight_of(*state_->shared->runtime, "profile").profile();
  profile.client_cpu_s = client_cpu_s;
  return profile;
}

std::string Client::describe_nodes() { return state_->shared->runtime->describe_nodes(); }
void Client::set_implicit_redistribution(bool on) { state_->shared->implicit_redistribution.store(on); }
void Client::set_explain(bool on) { state_->shared->explain.store(on); }
void Client::set_check_replicas(bool on) { state_->shared->check_replicas.store(on); }
bool Client::stop_requested() const { return state_->shared->runtime->stop_requested(); }

void Client::close() {
  if (std::exchange(state_->closed, true)) return;
  std::exception_ptr first_failure;
  for (const Graph& graph : state_->all()) {
    graph.core().close();
    std::exception_ptr failure = graph.core().take_failure();
    if (!first_failure) first_failure = std::move(failure);
  }
  state_->shared->callbacks->stop();
  std::exception_ptr callback_error = state_->shared->callbacks->take_error();
  if (!first_failure) first_failure = std::move(callback_error);
  if (first_failure) std::rethrow_exception(first_failure);
}

}  // namespace dtorch
