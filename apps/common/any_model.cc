#include "apps/common/any_model.h"

#include "apps/common/model_config.h"

namespace dtorch::app {

namespace po = boost::program_options;

void ModelChoice::add_to(CommandLine& command) {
  auto add = command.options().add_options();
  add("checkpoint", po::value(&checkpoint)->value_name("DIR"),
      "a checkpoint of `dtorch_app train`, or a folder of them (the newest complete one)");
  add("model", po::value(&model)->value_name("FILE"),
      "a Llama of another program: FILE.gguf, FILE.safetensors, or a folder with config.json and safetensors");
  add("tokenizer", po::value(&tokenizer)->value_name("FILE.gguf"),
      "where --model has no tokenizer that is known here (safetensors): a GGUF file of the same model");
  add("dtype", po::value(&dtype)->default_value(dtype)->value_name("TYPE"),
      "of --model's parameters: float32, bfloat16 or float64");
  add("cut-experts", po::value(&cut_experts)->default_value(cut_experts)->value_name("N"),
      "cut --model's feed-forward parts into N experts that compute every token, so that --ep can spread them (0: no)");
}

LoadedModel load_model(const ModelChoice& choice, const LayoutOptions& layout, int64_t num_devices) {
  if (choice.checkpoint.empty() == choice.model.empty()) throw UserError("give one of --checkpoint and --model");
  LoadedModel loaded;
  if (choice.model.empty() && !choice.tokenizer.empty())
    throw UserError("--tokenizer goes with --model; a checkpoint has its own");
  if (choice.model.empty() && choice.cut_experts != 0)
    throw UserError("--cut-experts is for --model; a checkpoint has its experts already");
  if (!choice.model.empty()) {
    io::LlamaFile file = io::open_llama(choice.model);
    if (choice.cut_experts != 0) file = io::cut_into_experts(file, choice.cut_experts);
    if (!choice.tokenizer.empty()) file.tokenizer = choice.tokenizer;
    if (file.tokenizer.empty()) {
      throw UserError("'" + choice.model +
                      "' has no tokenizer that is known here; give --tokenizer, a GGUF file of the same model");
    }
    file.config.dtype = dtype_from_name(choice.dtype);
    loaded.layout = make_layout(layout, num_devices, file.config);
    loaded.model = std::make_unique<nn::Llama>(file.config, loaded.layout.parallel);
    loaded.model->load_state_dict(file.source);
    loaded.tokenizer = open_tokenizer(file.tokenizer);
    if (loaded.tokenizer->vocab() > file.config.vocab) {
      throw UserError("'" + file.tokenizer + "' has a vocabulary of " + std::to_string(loaded.tokenizer->vocab()) +
                      ", '" + choice.model + "' of " + std::to_string(file.config.vocab));
    }
    loaded.context_length = file.context_length;
    return loaded;
  }
  const auto found = checkpoint::latest(choice.checkpoint);
  if (!found) throw RuntimeFault("no complete checkpoint in '" + choice.checkpoint + "'");
  const SavedModel saved = saved_model_from_json(found->config);
  loaded.layout = make_layout(layout, num_devices, saved.model);
  loaded.model = std::make_unique<nn::Llama>(saved.model, loaded.layout.parallel);
  checkpoint::Contents contents{.model = *loaded.model};
  checkpoint::load(found->path, contents);
  loaded.tokenizer = open_tokenizer(saved.tokenizer);
  loaded.context_length = saved.length;
  return loaded;
}

}  // namespace dtorch::app
