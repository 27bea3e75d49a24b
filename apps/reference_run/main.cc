// reference_run --reference FILE.json [--dtype float64] [--accumulate N] [layout options]: trains the model of a
// reference file and prints {"step", "loss", "cross_entropy", "grad_norm"} a line and the parameters' norms at the end,
// for comparison with PyTorch's results.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/common/layout_options.h"
#include "apps/reference_run/reference.h"
#include "dtorch/io.h"
#include "dtorch/nn.h"

namespace dtorch::app {
namespace {

namespace po = boost::program_options;

struct Options {
  std::string reference, dtype = "float64";
  int64_t accumulate = 1;
  LayoutOptions layout;
};

CommandLine command_line(Options& options) {
  CommandLine command("reference_run --reference FILE.json [options]",
                      "Trains the model of a reference file and prints its losses.");
  auto add = command.options().add_options();
  add("reference", po::value(&options.reference)->required()->value_name("FILE.json"),
      "FILE.safetensors beside it holds the first weights");
  add("dtype", po::value(&options.dtype)->default_value(options.dtype)->value_name("TYPE"), "float64 or float32");
  add("accumulate", po::value(&options.accumulate)->default_value(options.accumulate)->value_name("N"),
      "parts of a step's batch");
  options.layout.add_to(command);
  return command;
}

// One step's losses (over all parts) and gradients.
nn::PipelineLosses step_gradients(const nn::Llama& model, const Reference& reference, const ReferenceBatch& batch,
                                  const Options& options, const ModelLayout& layout) {
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(batch.num_valid, 1));
  const int64_t parts = options.accumulate * layout.micro_batches;
  const auto rows_of = [&](const std::vector<int64_t>& all, int64_t part, const DeviceMesh& stage) {
    const Span1 rows = split_part(reference.batch, parts, part);
    const std::vector<int64_t> some(all.begin() + rows.offset * reference.length,
                                    all.begin() + (rows.offset + rows.size) * reference.length);
    return from_host(HostTensor::of<int64_t>({rows.size, reference.length}, some), layout.batch_options(stage));
  };
  nn::PipelineLosses total;
  const auto add_to = [](Tensor& sum, const Tensor& part) {
    if (part.defined()) sum = sum.defined() ? sum + part : part;
  };
  for (int64_t round = 0; round < options.accumulate; ++round) {
    std::vector<Tensor> inputs, targets;
    for (int64_t part = round * layout.micro_batches; part < (round + 1) * layout.micro_batches; ++part) {
      inputs.push_back(rows_of(batch.inputs, part, model.chunk_mesh(0)));
      targets.push_back(rows_of(batch.targets, part, model.chunk_mesh(model.num_chunks() - 1)));
    }
    const nn::PipelineLosses losses = accumulate_gradients(model, layout, inputs, targets, share);
    add_to(total.loss, losses.loss);
    add_to(total.aux, losses.aux);
  }
  return total;
}

int run_reference(Client& client, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  Reference reference = read_reference(options.reference);
  if (options.dtype != "float64" && options.dtype != "float32") throw UserError("--dtype must be float64 or float32");
  reference.model.dtype = dtype_from_name(options.dtype);
  const ModelLayout layout = make_layout(options.layout, client.num_devices(), reference.model);
  if (options.accumulate < 1 || options.accumulate * layout.micro_batches > reference.batch) {
    throw UserError("--accumulate x --micro-batches must be 1 to " + std::to_string(reference.batch) +
                    ", the rows of a batch");
  }
  if (options.accumulate > 1 && reference.model.aux_coef != 0) {
    throw UserError(
        "--accumulate: the balance of experts is of one batch; use --micro-batches for its mean over parts");
  }
  nn::Llama model(reference.model, layout.parallel);
  model.load_state_dict(safetensors::open(reference.weights));
  optim::AdamW optimizer(model.parameters(), {.lr = reference.lr,
                                              .betas = {reference.beta1, reference.beta2},
                                              .eps = reference.adam_eps,
                                              .weight_decay = reference.weight_decay});
  for (int64_t step = 0; step < reference.steps; ++step) {
    const nn::PipelineLosses losses =
        step_gradients(model, reference, reference_batch(reference, step), options, layout);
    Tensor norm = nn::clip_grad_norm(model.parameters(), reference.clip, {.eps = 0});
    optimizer.step();
    optimizer.zero_grad();
    const double cross_entropy = losses.loss.item<double>();
    const double aux = losses.aux.defined() ? losses.aux.item<double>() : 0;
    std::cout << nlohmann::json{{"step", step},
                                {"loss", cross_entropy + aux},
                                {"cross_entropy", cross_entropy},
                                {"grad_norm", norm.item<double>()}}
                     .dump()
              << '\n'
              << std::flush;
  }
  NoGrad no_grad;
  nlohmann::json norms = nlohmann::json::object();
  for (const auto& [name, parameter] : model.named_parameters()) {
    norms[name] = sum_of_squares({parameter.value().detach()}).sqrt().item<double>();
  }
  std::cout << nlohmann::json{{"final_param_norms", norms}}.dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace dtorch::app

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--help") {
      dtorch::app::Options options;
      std::cout << dtorch::app::command_line(options).help();
      return 0;
    }
  }
  return dtorch::run(argc, argv, dtorch::app::run_reference);
}
