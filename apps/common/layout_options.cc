#include "apps/common/layout_options.h"

#include <initializer_list>
#include <iostream>
#include <string>

namespace dtorch::app {

namespace po = boost::program_options;

namespace {

po::typed_value<int64_t>* integer(int64_t& at) { return po::value(&at)->default_value(at)->value_name("N"); }

}  // namespace

void LayoutOptions::add_axes_to(CommandLine& command) {
  auto add = command.options().add_options();
  add("dp", integer(dp), "data parallel: the batch is split over N devices (0: what the other axes leave)");
  add("tp", integer(tp),
      "tensor parallel: heads, FFN and vocabulary are split over N devices (0: what the other axes leave when --dp is "
      "given, else 1)");
  add("sp", po::bool_switch(&sp), "sequence parallel: between layers the sequence is split over tp");
  add("pp", integer(pp), "pipeline parallel: stages of layers on N groups of devices");
  add("cp-ulysses", integer(cp_ulysses), "context parallel: the sequence is split over N devices that exchange heads");
  add("cp-ring", integer(cp_ring),
      "context parallel: the sequence is split over N devices that pass on keys and values");
  add("ring-order", po::value(&ring_order)->default_value(ring_order)->value_name("NAME"),
      "rows that each device of --cp-ring computes: contiguous, balanced (all have the same to do) or auto (balanced "
      "for long sequences)");
  add("ep", integer(ep), "expert parallel: experts are split over N devices, which also split the batch");
  add("zero", integer(zero),
      "ZeRO stage 0 to 3: parameters and optimizer state are stored split over dp, and gathered once a step (1, 2) or "
      "for each use (3)");
}

void LayoutOptions::add_to(CommandLine& command) {
  add_axes_to(command);
  auto add = command.options().add_options();
  add("micro-batches", integer(micro_batches), "parts of a batch that go through the model one after the other");
  add("schedule", po::value(&schedule)->default_value(schedule)->value_name("NAME"),
      "order of a pipeline's micro-batches: gpipe, 1f1b or interleaved");
  add("virtual-stages", integer(virtual_stages), "chunks of layers a stage, for --schedule interleaved");
  add("recompute", po::bool_switch(&recompute),
      "compute layers again in backward instead of keeping their inner values");
}

namespace {

struct Axis {
  const char* name;
  const char* option;
  int64_t size;
  std::optional<int64_t> splits;  // dim of the tokens [B, T]
};

std::string product_text(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;
    text += (text.empty() ? "" : " x ") + std::string(axis.option) + " " + std::to_string(axis.size);
  }
  return text.empty() ? "1" : text;
}

std::string divisors_text(int64_t n) {
  std::string text;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) text += (text.empty() ? "" : ", ") + std::to_string(d);
  }
  return text;
}

// What sizes, all positive, multiply to, or most + 1 when that is more.
int64_t product_up_to(int64_t most, std::initializer_list<int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (product > most / size) return most + 1;
    product *= size;
  }
  return product;
}

void need(bool ok, const std::string& what) {
  if (!ok) throw UserError(what);
}

RingOrder ring_order_from_name(const std::string& name) {
  if (name == "auto") return RingOrder::kAuto;
  if (name == "contiguous") return RingOrder::kContiguous;
  if (name == "balanced") return RingOrder::kBalanced;
  throw UserError("--ring-order '" + name + "' isn't one of auto, contiguous, balanced");
}

void check_model(const LayoutOptions& options, int64_t tp, const nn::LlamaConfig& model) {
  need(tp <= model.heads, "--tp " + std::to_string(tp) + " is more than the model's " + std::to_string(model.heads) +
                              " heads; legal are 1 to " + std::to_string(model.heads));
  need(options.ep == 1 || model.experts > 0, "--ep needs a model with experts (--experts)");
  need(
      options.ep <= std::max<int64_t>(1, model.experts),
      "--ep " + std::to_string(options.ep) + " is more than the model's " + std::to_string(model.experts) + " experts");
  const int64_t most_chunks = std::max<int64_t>(1, model.layers);
  need(product_up_to(most_chunks, {options.pp, options.virtual_stages}) <= most_chunks,
       "--pp " + std::to_string(options.pp) + " x --virtual-stages " + std::to_string(options.virtual_stages) +
           " is more than the model's " + std::to_string(model.layers) + " layers");
  need(tp * options.cp_ulysses <= model.heads, "--cp-ulysses " + std::to_string(options.cp_ulysses) + " x --tp " +
                                                   std::to_string(tp) + " is more than the model's " +
                                                   std::to_string(model.heads) + " heads");
}

// Options that do nothing on this layout: somebody has meant something else.
void tell_options_without_effect(const LayoutOptions& options, int64_t dp, int64_t tp) {
  const auto tell = [](bool is_idle, const std::string& option, const char* needs) {
    if (is_idle) std::cerr << "warning: " + option + " has no effect without " + needs + "\n" << std::flush;
  };
  tell(options.zero > 0 && dp == 1, "--zero " + std::to_string(options.zero), "--dp of at least 2");
  tell(options.sp && tp == 1, "--sp", "--tp of at least 2");
  tell(options.ring_order != "auto" && options.cp_ring == 1, "--ring-order " + options.ring_order,
       "--cp-ring of at least 2");
  tell(options.virtual_stages > 1 && options.pp == 1, "--virtual-stages " + std::to_string(options.virtual_stages),
       "--pp of at least 2");
}

}  // namespace

ModelLayout make_layout(const LayoutOptions& options, int64_t num_devices, const nn::LlamaConfig& model,
                        std::optional<DType> compute) {
  need(options.dp >= 0 && options.tp >= 0, "--dp and --tp must not be negative");
  need(options.pp >= 1 && options.virtual_stages >= 1 && options.cp_ulysses >= 1 && options.cp_ring >= 1 &&
           options.ep >= 1 && options.micro_batches >= 1,
       "--pp, --virtual-stages, --cp-ulysses, --cp-ring, --ep and --micro-batches must be positive");
  need(options.zero >= 0 && options.zero <= 3, "--zero must be 0, 1, 2 or 3");
  const nn::PipelineSchedule schedule = nn::pipeline_schedule_from_name(options.schedule);
  need(options.virtual_stages == 1 || schedule == nn::PipelineSchedule::kInterleaved,
       "--virtual-stages needs --schedule interleaved");
  const int64_t others = product_up_to(num_devices, {options.pp, options.cp_ulysses, options.cp_ring, options.ep});
  int64_t dp = options.dp, tp = options.tp;
  if (dp == 0 && tp == 0) tp = 1;
  if (dp == 0) dp = std::max<int64_t>(1, num_devices / product_up_to(num_devices, {tp, others}));
  if (tp == 0) tp = std::max<int64_t>(1, num_devices / product_up_to(num_devices, {dp, others}));
  const std::vector<Axis> axes = {{"pp", "--pp", options.pp, {}},
                                  {"dp", "--dp", dp, 0},
                                  {"ep", "--ep", options.ep, 0},
                                  {"ulysses_cp", "--cp-ulysses", options.cp_ulysses, 1},
                                  {"ring_cp", "--cp-ring", options.cp_ring, 1},
                                  {"tp", "--tp", tp, {}}};
  need(product_up_to(num_devices, {dp, tp, others}) == num_devices,
       product_text(axes) + " isn't the job's " + std::to_string(num_devices) +
           " devices (--devices); the axes must multiply to it: each one divides it, legal are " +
           divisors_text(num_devices));
  check_model(options, tp, model);
  tell_options_without_effect(options, dp, tp);

  ModelLayout layout;
  Shape shape;
  std::vector<std::string> names;
  for (const Axis& axis : axes) {
    const std::string name = axis.name;
    if (axis.size == 1 && name != "dp" && name != "tp") continue;
    shape.push_back(axis.size);
    names.push_back(name);
    if (name != "pp") layout.batch.push_back(axis.splits ? Shard(*axis.splits) : Replicate());
  }
  layout.mesh = init_device_mesh("cpu", shape, names);
  layout.micro_batches = options.micro_batches;
  layout.parallel = {.mesh = layout.mesh,
                     .tp = "tp",
                     .zero = options.zero > 0 ? "dp" : "",
                     .zero_stage = options.zero > 0 ? static_cast<int>(options.zero) : 3,
                     .ep = options.ep > 1 ? "ep" : "",
                     .pp = options.pp > 1 ? "pp" : "",
                     .virtual_stages = options.virtual_stages,
                     .sequence_parallel = options.sp,
                     .recompute = options.recompute,
                     .compute = compute,
                     .ring_order = ring_order_from_name(options.ring_order)};
  if (options.pp > 1) {
    layout.pipeline =
        nn::pipeline_order(schedule, options.pp, options.pp * options.virtual_stages, options.micro_batches);
  }
  return layout;
}

nn::PipelineLosses accumulate_gradients(const nn::Llama& model, const ModelLayout& layout,
                                        const std::vector<Tensor>& inputs, const std::vector<Tensor>& targets,
                                        double share, const Tensor& loss_scale) {
  const double aux_share = 1.0 / static_cast<double>(std::max<size_t>(1, inputs.size()));
  if (layout.pipeline) {
    return nn::pipeline_step(model.pipeline_chunks(targets, share, aux_share), inputs, *layout.pipeline, loss_scale);
  }
  nn::PipelineLosses total;
  const auto add_to = [](Tensor& sum, const Tensor& part) {
    sum = sum.defined() ? sum + part.detach() : part.detach();
  };
  for (size_t part = 0; part < inputs.size(); ++part) {
    const nn::Llama::Losses losses = model.losses(inputs[part], targets[part]);
    const Tensor loss = losses.cross_entropy_sum * share;
    add_to(total.loss, loss);
    std::vector<Tensor> outputs = {loss};
    if (losses.aux.defined()) {
      outputs.push_back(losses.aux * aux_share);
      add_to(total.aux, outputs.back());
    }
    backward(outputs, loss_scale.defined() ? std::vector<Tensor>(outputs.size(), loss_scale) : std::vector<Tensor>());
  }
  return total;
}

}  // namespace dtorch::app
