// Nodes whose devices run nothing, all on one thread; see job.h.
#include "runtime/launch/job.h"
#include "runtime/simulation/simulated_nodes.h"

namespace dtorch {

namespace {

constexpr auto kGrace = std::chrono::seconds(2);

class SimulatedJob final : public Job {
 public:
  explicit SimulatedJob(int32_t num_nodes) : nodes_(num_nodes) {}
  ControlEndpoint& control() override { return nodes_.control(); }
  int32_t num_nodes() const override { return nodes_.num_nodes(); }
  // Nodes report what fails themselves, by message.
  void start(Watchers) override { nodes_.start(); }
  bool finish(bool clean, int) override { return nodes_.wait_ended(kGrace) && clean; }

 private:
  SimulatedNodes nodes_;
};

}  // namespace

std::unique_ptr<Job> make_simulated_job(int32_t num_nodes) { return std::make_unique<SimulatedJob>(num_nodes); }

}  // namespace dtorch
