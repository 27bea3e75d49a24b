#include "apps/common/model_config.h"

#include <nlohmann/json.hpp>

namespace dtorch::app {

std::string to_json(const SavedModel& saved) {
  const nn::LlamaConfig& m = saved.model;
  nlohmann::json json{{"dim", m.dim},
                      {"layers", m.layers},
                      {"heads", m.heads},
                      {"kv_heads", m.kv_heads},
                      {"vocab", m.vocab},
                      {"ffn", m.ffn},
                      {"experts", m.experts},
                      {"top_k", m.top_k},
                      {"capacity_factor", m.capacity_factor},
                      {"gate_scale", m.gate_scale},
                      {"rope_theta", m.rope_theta},
                      {"norm_eps", m.norm_eps},
                      {"tied", m.tied},
                      {"dtype", name_of(m.dtype)},
                      {"length", saved.length},
                      {"tokenizer", saved.tokenizer}};
  if (saved.loss_scaler) {
    json["loss_scaler"] = {{"scale", saved.loss_scaler->scale},
                           {"good_steps", saved.loss_scaler->good_steps},
                           {"steps", saved.loss_scaler->steps}};
  }
  return json.dump();
}

SavedModel saved_model_from_json(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    SavedModel saved;
    nn::LlamaConfig& m = saved.model;
    json.at("dim").get_to(m.dim);
    json.at("layers").get_to(m.layers);
    json.at("heads").get_to(m.heads);
    json.at("kv_heads").get_to(m.kv_heads);
    json.at("vocab").get_to(m.vocab);
    json.at("ffn").get_to(m.ffn);
    m.experts = json.value("experts", int64_t{0});
    m.top_k = json.value("top_k", m.top_k);
    m.capacity_factor = json.value("capacity_factor", 0.0);
    m.gate_scale = json.value("gate_scale", 1.0);
    json.at("rope_theta").get_to(m.rope_theta);
    json.at("norm_eps").get_to(m.norm_eps);
    json.at("tied").get_to(m.tied);
    m.dtype = dtype_from_name(json.at("dtype").get<std::string>());
    json.at("length").get_to(saved.length);
    json.at("tokenizer").get_to(saved.tokenizer);
    if (json.contains("loss_scaler")) {
      const nlohmann::json& scaler = json.at("loss_scaler");
      saved.loss_scaler = nn::LossScaler::State{.scale = scaler.at("scale").get<double>(),
                                                .good_steps = scaler.at("good_steps").get<int64_t>(),
                                                .steps = scaler.at("steps").get<int64_t>()};
    }
    saved.model = m.resolved();
    return saved;
  } catch (const std::exception& error) {
    throw RuntimeFault(std::string("the checkpoint doesn't describe a model of dtorch_app: ") + error.what());
  }
}

}  // namespace dtorch::app
