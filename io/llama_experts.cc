// A dense Llama file seen as one with experts (llama_files.h).
#include <string_view>

#include "io/llama_files.h"
#include "ops/ops.h"
#include "runtime/client/gradient.h"

namespace dtorch::io {
namespace {

// "gate", "w1", ... of a layer's parameter "layers.3.w1", else "".
std::string_view part_of_layer(std::string_view name) {
  return name.starts_with("layers.") ? name.substr(name.rfind('.') + 1) : std::string_view();
}

}  // namespace

LlamaFile cut_into_experts(const LlamaFile& dense, int64_t experts) {
  const nn::LlamaConfig& was = dense.config;
  if (was.experts != 0) throw UserError("the model has " + std::to_string(was.experts) + " experts already");
  if (experts < 1 || was.ffn % experts != 0) {
    throw UserError("a feed-forward part of width " + std::to_string(was.ffn) + " can't be cut into " +
                    std::to_string(experts) + " experts; the number must divide the width");
  }
  LlamaFile cut = dense;
  nn::LlamaConfig& config = cut.config;
  config.ffn = was.ffn / experts;
  config.experts = experts;
  config.top_k = experts;
  config.gate_scale = static_cast<double>(experts);  // the router's weights, all equal, add up to 1
  for (int64_t layer = 0; layer < config.layers; ++layer)
    cut.source.names.push_back("layers." + std::to_string(layer) + ".gate");
  cut.source.shape_of = [shape_of = dense.source.shape_of, config](const std::string& name) -> Shape {
    const std::string_view part = part_of_layer(name);
    if (part == "gate") return {config.experts, config.dim};
    if (part == "w1" || part == "w3") return {config.experts, config.ffn, config.dim};
    if (part == "w2") return {config.experts, config.dim, config.ffn};
    return shape_of(name);
  };
  cut.source.load = [load = dense.source.load](const std::string& name, const nn::Parameter& parameter) {
    const std::string_view part = part_of_layer(name);
    NoGrad no_grad;
    // A router that likes all experts equally.
    if (part == "gate") return zeros_like(parameter.value());
    if (part != "w2") return load(name, parameter);  // an expert's rows are rows of the file, one after the other
    // The file has [D, E, F], a column of every expert in turn.
    const nn::Parameter stored(zeros_like(parameter.value()).permute({1, 0, 2}));
    return load(name, stored).permute({1, 0, 2});
  };
  return cut;
}

}  // namespace dtorch::io
