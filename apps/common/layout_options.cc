#include "apps/common/layout_options.h"

#include <string>

namespace dtorch::app {

namespace po = boost::program_options;

void LayoutOptions::add_to(CommandLine& command) {
  command.options().add_options()("dp", po::value(&dp)->default_value(0)->value_name("N"),
                                  "data parallel: the batch is split over N devices (0: devices / tp)")(
      "tp", po::value(&tp)->default_value(0)->value_name("N"),
      "tensor parallel: heads, FFN and vocabulary are split over N devices (0: devices / dp, or 1 when dp isn't "
      "given)");
}

ModelLayout make_layout(const LayoutOptions& options, int64_t num_devices, const nn::LlamaConfig& model) {
  int64_t dp = options.dp, tp = options.tp;
  if (dp < 0 || tp < 0) throw UserError("--dp and --tp must be positive");
  if (dp == 0 && tp == 0) tp = 1;
  if (dp == 0) dp = num_devices / tp;
  if (tp == 0) tp = num_devices / dp;
  if (dp * tp != num_devices) {
    std::string legal;
    for (int64_t d = 1; d <= num_devices; ++d) {
      if (num_devices % d == 0)
        legal += (legal.empty() ? "" : ", ") + std::to_string(d) + "x" + std::to_string(num_devices / d);
    }
    throw UserError("--dp " + std::to_string(dp) + " x --tp " + std::to_string(tp) + " isn't the job's " +
                    std::to_string(num_devices) + " devices (--devices); legal are dp x tp = " + legal);
  }
  if (tp > model.heads) {
    throw UserError("--tp " + std::to_string(tp) + " is more than the model's " + std::to_string(model.heads) +
                    " heads; legal are 1 to " + std::to_string(model.heads));
  }
  ModelLayout layout;
  layout.mesh = init_device_mesh("cpu", {dp, tp}, {"dp", "tp"});
  layout.parallel = {.mesh = layout.mesh, .tp = "tp"};
  layout.batch = {Shard(0), Replicate()};
  return layout;
}

}  // namespace dtorch::app
