// `dtorch_app plan`: two training steps on devices that compute nothing (--device null); the second one is looked at.
// All but the arithmetic is the real thing: inference, placements, passes, messages, redistribution plans.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/dtorch_app/commands.h"
#include "apps/dtorch_app/train_options.h"
#include "dtorch/io.h"
#include "dtorch/nn.h"

namespace dtorch::app {
namespace {

// Bytes by device number.
using DeviceBytes = std::vector<int64_t>;

void add_parts(const Tensor& tensor, DeviceBytes& bytes) {
  for (int64_t device : tensor.mesh().devices()) {
    bytes.at(static_cast<size_t>(device)) +=
        tensor.layout().local_shape(tensor.shape(), device).num_elements() * size_of(tensor.dtype());
  }
}

struct Plan {
  int64_t num_parameters = 0;
  DeviceBytes parameters, optimizer, peak;
  int64_t operators = 0, control_messages = 0, control_bytes = 0;  // of the step
  bool has_ragged_rows = false;  // of experts: how many there are is data, so as many as there can be are counted
  Profile profile;
};

class Planner {
 public:
  Planner(Client& client, TrainOptions options) : client_(client), options_(std::move(options)) {
    if (!options_.data.empty()) options_.model.vocab = TokenData::open(options_.data).vocab();
    if (!options_.init_from.empty()) options_.model = io::open_llama(options_.init_from).config;
    const DType dtype = dtype_from_name(options_.dtype);
    const bool is_narrow = dtype == kBFloat16 || dtype == kFloat16;  // with parameters in float32
    options_.model.dtype = is_narrow ? kFloat32 : dtype;
    options_.model = options_.model.resolved();
    layout_ = make_layout(options_.layout, client.num_devices(), options_.model,
                          is_narrow ? std::optional(dtype) : std::nullopt);
    model_.emplace(options_.model, layout_.parallel);
    optimizer_.emplace(model_->parameters(), optim::AdamWOptions{});
  }

  Plan plan() {
    step();
    client_.reset_peak_bytes();
    client_.start_profile();
    const ClientStats before = client_.stats();
    step();
    Plan plan;
    plan.profile = client_.profile();
    const ClientStats after = client_.stats();
    plan.operators = after.operators - before.operators;
    plan.control_messages = after.control_messages - before.control_messages;
    plan.control_bytes = after.control_bytes - before.control_bytes;
    plan.peak = after.peak_bytes_per_device;
    plan.has_ragged_rows = !layout_.parallel.ep.empty();
    plan.num_parameters = model_->num_parameters();
    const auto num_devices = static_cast<size_t>(client_.num_devices());
    plan.parameters.assign(num_devices, 0);
    plan.optimizer.assign(num_devices, 0);
    for (const nn::Parameter& parameter : model_->parameters()) add_parts(parameter.value(), plan.parameters);
    for (const optim::StateTensors& state : optimizer_->state()) {
      for (const auto& [name, tensor] : state) add_parts(tensor, plan.optimizer);
    }
    return plan;
  }
  const ModelLayout& layout() const { return layout_; }
  const TrainOptions& options() const { return options_; }

 private:
  // As train's, with tokens that are all 0.
  void step() {
    const int64_t parts = options_.accumulate * layout_.micro_batches, rows = options_.batch / parts;
    const double share = 1.0 / static_cast<double>(options_.batch * options_.length);
    const auto tokens = [&](const DeviceMesh& stage) {
      std::vector<Tensor> all;
      for (int64_t part = 0; part < layout_.micro_batches; ++part)
        all.push_back(zeros({rows, options_.length}, layout_.batch_options(stage)));
      return all;
    };
    Tensor loss;
    for (int64_t round = 0; round < options_.accumulate; ++round) {
      const nn::PipelineLosses losses = accumulate_gradients(
          *model_, layout_, tokens(model_->chunk_mesh(0)), tokens(model_->chunk_mesh(model_->num_chunks() - 1)), share);
      loss = loss.defined() ? loss + losses.loss : losses.loss;
    }
    const Tensor norm = nn::clip_grad_norm(model_->parameters(), options_.clip);
    optimizer_->step();
    optimizer_->zero_grad();
    const TensorFuture read_loss = loss.to_host_async(), read_norm = norm.to_host_async();
    read_loss.wait();
    read_norm.wait();
  }

  Client& client_;
  TrainOptions options_;
  ModelLayout layout_;
  std::optional<nn::Llama> model_;
  std::optional<optim::AdamW> optimizer_;
};

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

template <class... Args>
std::string line(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return std::string(text) + "\n";
}

double us_per_operator(double seconds, const Plan& plan) {
  return seconds * 1e6 / static_cast<double>(std::max<int64_t>(plan.operators, 1));
}

// Devices that need the same are one line, with the first and the number of them.
std::string memory_text(const Plan& plan) {
  struct Group {
    size_t first = 0, count = 0;
  };
  std::map<std::vector<int64_t>, Group, std::greater<>> groups;  // by peak, parameters, optimizer
  for (size_t device = 0; device < plan.peak.size(); ++device) {
    Group& group = groups[{plan.peak[device], plan.parameters[device], plan.optimizer[device]}];
    if (group.count++ == 0) group.first = device;
  }
  std::string text = "Memory of a device in a step, MiB:\n" +
                     line("  %8s %12s %12s %12s  %s", "devices", "parameters", "optimizer", "peak", "first of them");
  for (const auto& [figures, group] : groups) {
    text += line("  %8zu %12.1f %12.1f %12.1f  %zu", group.count, mib(figures[1]), mib(figures[2]), mib(figures[0]),
                 group.first);
  }
  return text;
}

std::string communication_text(const Plan& plan) {
  if (plan.profile.communication.empty()) return "No data moves between devices in a step.\n";
  std::string text = "Moved between devices in a step, all devices together:\n" +
                     line("  %-28s %-20s %8s %12s", "what", "over", "calls", "MiB");
  for (const CommunicationEntry& entry : plan.profile.communication) {
    text += line("  %-28s %-20s %8lld %12.1f", entry.kind.c_str(), entry.axes.c_str(),
                 static_cast<long long>(entry.calls), mib(entry.bytes));
  }
  if (plan.has_ragged_rows)
    text +=
        "At most: rows for experts are counted, here and in the peak, as if every token went to every part of "
        "\"ep\".\n";
  return text;
}

std::string control_text(const Plan& plan) {
  return "Control: " +
         line("%lld operators a step; client %.1f us, controller %.1f us an operator; %lld messages, %.2f MiB",
              static_cast<long long>(plan.operators), us_per_operator(plan.profile.client_cpu_s, plan),
              us_per_operator(plan.profile.controller_cpu_s, plan), static_cast<long long>(plan.control_messages),
              mib(plan.control_bytes));
}

std::string json_text(const Plan& plan) {
  nlohmann::json communication = nlohmann::json::array();
  for (const CommunicationEntry& entry : plan.profile.communication)
    communication.push_back(
        {{"kind", entry.kind}, {"axes", entry.axes}, {"calls", entry.calls}, {"bytes", entry.bytes}});
  const nlohmann::json json{{"num_parameters", plan.num_parameters},
                            {"parameter_bytes_per_device", plan.parameters},
                            {"optimizer_bytes_per_device", plan.optimizer},
                            {"peak_bytes_per_device", plan.peak},
                            {"operators", plan.operators},
                            {"control_messages", plan.control_messages},
                            {"control_bytes", plan.control_bytes},
                            {"client_us_per_operator", us_per_operator(plan.profile.client_cpu_s, plan)},
                            {"controller_us_per_operator", us_per_operator(plan.profile.controller_cpu_s, plan)},
                            {"communication", communication},
                            {"counts_all_expert_rows", plan.has_ragged_rows}};
  return json.dump() + "\n";
}

}  // namespace

std::string help_plan() {
  TrainOptions options;
  return options.plan_command_line().help();
}

int run_plan(Client& client, int argc, char** argv) {
  TrainOptions options;
  options.plan_command_line().parse(argc, argv);
  options.check();
  Planner planner(client, options);
  const Plan plan = planner.plan();
  if (options.json) {
    std::cout << json_text(plan);
    return 0;
  }
  std::cout << plan.num_parameters << " parameters, " << planner.layout().mesh.str() << ", " << client.num_nodes()
            << " nodes\n"
            << memory_text(plan) << communication_text(plan) << control_text(plan);
  if (planner.layout().pipeline)
    std::cout << line("Pipeline: %.1f %% of the stages' time idle in theory", 100 * planner.layout().pipeline->bubble);
  return 0;
}

}  // namespace dtorch::app
