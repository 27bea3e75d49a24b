#include "io/llama_files.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "io/slices.h"

namespace dtorch::io {
namespace {

namespace fs = std::filesystem;

// Our names of a layer's parameters, and theirs.
struct LayerName {
  const char* ours;
  const char* gguf;
  const char* hugging_face;
};
constexpr LayerName kLayerNames[] = {
    {"norm1", "attn_norm", "input_layernorm"}, {"wq", "attn_q", "self_attn.q_proj"},
    {"wk", "attn_k", "self_attn.k_proj"},      {"wv", "attn_v", "self_attn.v_proj"},
    {"wo", "attn_output", "self_attn.o_proj"}, {"norm2", "ffn_norm", "post_attention_layernorm"},
    {"w1", "ffn_gate", "mlp.gate_proj"},       {"w3", "ffn_up", "mlp.up_proj"},
    {"w2", "ffn_down", "mlp.down_proj"},
};
constexpr LayerName kModelNames[] = {{"embed", "token_embd", "model.embed_tokens"},
                                     {"norm", "output_norm", "model.norm"},
                                     {"head", "output", "lm_head"}};

// Our name -> the file's, for a model of so many layers.
std::map<std::string, std::string> names_of(const nn::LlamaConfig& config, bool is_gguf) {
  std::map<std::string, std::string> names;
  for (const LayerName& name : kModelNames) {
    if (config.tied && std::string(name.ours) == "head") continue;
    names[name.ours] = std::string(is_gguf ? name.gguf : name.hugging_face) + ".weight";
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string number = std::to_string(layer);
    for (const LayerName& name : kLayerNames) {
      names["layers." + number + "." + name.ours] =
          is_gguf ? "blk." + number + "." + name.gguf + ".weight"
                  : "model.layers." + number + "." + name.hugging_face + ".weight";
    }
  }
  return names;
}

bool is_rotated(const std::string& name) { return name.ends_with(".wq") || name.ends_with(".wk"); }

LlamaFile open_gguf(const fs::path& path) {
  const auto file = std::make_shared<const gguf::File>(gguf::open(path));
  if (file->text("general.architecture") != "llama") {
    throw UserError("'" + path.string() + "' is a model of architecture '" + file->text("general.architecture") +
                    "', known is llama");
  }
  LlamaFile out;
  nn::LlamaConfig& c = out.config;
  c.layers = file->integer("llama.block_count");
  c.dim = file->integer("llama.embedding_length");
  c.heads = file->integer("llama.attention.head_count");
  c.kv_heads = file->integer("llama.attention.head_count_kv");
  c.ffn = file->integer("llama.feed_forward_length");
  if (file->values().contains("llama.rope.freq_base")) c.rope_theta = file->number("llama.rope.freq_base");
  c.norm_eps = file->number("llama.attention.layer_norm_rms_epsilon");
  c.tied = !file->entries().contains("output.weight");
  const auto embed = file->entries().find("token_embd.weight");
  if (embed == file->entries().end() || embed->second.shape.ndim() != 2)
    throw KeyError("'" + path.string() + "' has no tensor 'token_embd.weight' with two dims");
  c.vocab = embed->second.shape[0];
  c = c.resolved();
  out.context_length = file->integer("llama.context_length");
  out.tokenizer = file->values().contains("tokenizer.ggml.tokens") ? path.string() : "";

  const auto names = std::make_shared<const std::map<std::string, std::string>>(names_of(c, true));
  for (const auto& [ours, theirs] : *names) {
    if (file->entries().contains(theirs)) out.source.names.push_back(ours);
  }
  out.source.shape_of = [=](const std::string& name) { return file->entries().at(names->at(name)).shape; };
  const int64_t head_rows = c.dim / c.heads;
  out.source.load = [=](const std::string& name, const nn::Parameter& parameter) {
    return file->load(names->at(name), parameter.shape(), parameter.value().dtype(), parameter.layout(),
                      {.rotary_head_rows = is_rotated(name) ? head_rows : 0});
  };
  return out;
}

// Files of safetensors by tensor name.
std::map<std::string, std::shared_ptr<const safetensors::File>> tensors_in(const fs::path& path) {
  std::map<std::string, std::shared_ptr<const safetensors::File>> all;
  const auto add = [&](const fs::path& file) {
    const auto opened = std::make_shared<const safetensors::File>(safetensors::open(file));
    for (const auto& [name, entry] : opened->entries()) all[name] = opened;
  };
  if (!fs::is_directory(path)) {
    add(path);
  } else if (fs::exists(path / "model.safetensors.index.json")) {
    const auto index = nlohmann::json::parse(read_file(path / "model.safetensors.index.json"));
    std::map<std::string, bool> files;
    for (const auto& [name, file] : index.at("weight_map").items()) files[file.get<std::string>()] = true;
    for (const auto& [file, unused] : files) {
      if (file.find('/') != std::string::npos) throw DecodeError("a file name with '/' in the index");
      add(path / file);
    }
  } else {
    add(path / "model.safetensors");
  }
  return all;
}

LlamaFile open_hugging_face(const fs::path& path) {
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  LlamaFile out;
  nn::LlamaConfig& c = out.config;
  try {
    const auto json = nlohmann::json::parse(read_file(folder / "config.json"));
    c.layers = json.at("num_hidden_layers");
    c.dim = json.at("hidden_size");
    c.heads = json.at("num_attention_heads");
    c.kv_heads = json.value("num_key_value_heads", c.heads);
    c.ffn = json.at("intermediate_size");
    c.vocab = json.at("vocab_size");
    c.rope_theta = json.value("rope_theta", 10000.0);
    c.norm_eps = json.at("rms_norm_eps");
    c.tied = json.value("tie_word_embeddings", false);
    out.context_length = json.value("max_position_embeddings", int64_t{2048});
  } catch (const nlohmann::json::exception& error) {
    throw DecodeError("'" + (folder / "config.json").string() + "' doesn't describe a Llama: " + error.what());
  }
  c = c.resolved();
  const auto tensors =
      std::make_shared<const std::map<std::string, std::shared_ptr<const safetensors::File>>>(tensors_in(path));
  const auto names = std::make_shared<const std::map<std::string, std::string>>(names_of(c, false));
  for (const auto& [ours, theirs] : *names) {
    if (tensors->contains(theirs)) out.source.names.push_back(ours);
  }
  out.source.shape_of = [=](const std::string& name) {
    const std::string& theirs = names->at(name);
    return tensors->at(theirs)->entries().at(theirs).shape;
  };
  out.source.load = [=](const std::string& name, const nn::Parameter& parameter) {
    const std::string& theirs = names->at(name);
    const safetensors::File& file = *tensors->at(theirs);
    const safetensors::Entry& entry = file.entries().at(theirs);
    return file_slice(file.path(), entry.offset, parameter.shape(), entry.dtype, parameter.value().dtype(),
                      parameter.layout());
  };
  return out;
}

}  // namespace

LlamaFile open_llama(const fs::path& path) {
  return path.extension() == ".gguf" ? open_gguf(path) : open_hugging_face(path);
}

}  // namespace dtorch::io
