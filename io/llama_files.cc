#include "io/llama_files.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

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

[[noreturn]] void refuse(const fs::path& path, const std::string& what) {
  throw UserError("'" + path.string() + "' has " + what + ", which a Llama here doesn't have");
}

// What the model would leave out changes its results: a file with tensors of no parameter is refused.
template <class Tensors>
void need_known_tensors(const fs::path& path, const Tensors& in_file, const std::map<std::string, std::string>& names,
                        bool (*is_needless)(const std::string&)) {
  std::set<std::string> known;
  for (const auto& [ours, theirs] : names) known.insert(theirs);
  for (const auto& [name, entry] : in_file) {
    if (!known.contains(name) && !is_needless(name)) refuse(path, "a tensor '" + name + "'");
  }
}

// Before names are made for each layer: a file can claim any number.
void need_tensors_for(const fs::path& path, int64_t layers, size_t num_tensors) {
  if (layers < 0 || static_cast<uint64_t>(layers) > num_tensors) {
    throw DecodeError("'" + path.string() + "' claims " + std::to_string(layers) + " layers and has " +
                      std::to_string(num_tensors) + " tensors");
  }
}

bool is_rotated(const std::string& name) { return name.ends_with(".wq") || name.ends_with(".wk"); }

// Variants of attention that the architecture's name doesn't tell.
void need_plain_attention(const gguf::File& file, int64_t head_size) {
  const std::string scaling = "llama.rope.scaling.type";
  if (file.values().contains(scaling) && file.text(scaling) != "none")
    refuse(file.path(), scaling + " \"" + file.text(scaling) + "\"");
  for (const char* key : {"llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length"}) {
    if (file.values().contains(key) && file.integer(key) != head_size)
      refuse(file.path(),
             key + (" " + std::to_string(file.integer(key))) + " with heads of " + std::to_string(head_size));
  }
}

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
  need_plain_attention(*file, c.dim / c.heads);
  need_tensors_for(path, c.layers, file->entries().size());
  out.context_length = file->integer("llama.context_length");
  out.tokenizer = file->values().contains("tokenizer.ggml.tokens") ? path.string() : "";

  const auto names = std::make_shared<const std::map<std::string, std::string>>(names_of(c, true));
  need_known_tensors(path, file->entries(), *names, [](const std::string&) { return false; });
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

using TensorFiles = std::map<std::string, std::shared_ptr<const safetensors::File>>;  // by tensor name

// File names by tensor name.
std::map<std::string, std::string> read_index(const fs::path& index) {
  std::map<std::string, std::string> files;
  try {
    const auto json = nlohmann::json::parse(read_file(index));
    for (const auto& [name, file] : json.at("weight_map").items()) files[name] = file.get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    throw DecodeError("'" + index.string() + "' isn't an index of safetensors: " + error.what());
  }
  for (const auto& [name, file] : files) {
    if (file.find('/') != std::string::npos) throw DecodeError("a file name with '/' in '" + index.string() + "'");
    if (!fs::is_regular_file(index.parent_path() / file)) {
      throw RuntimeFault("'" + index.string() + "' says that tensor '" + name + "' is in '" + file +
                         "', which isn't there");
    }
  }
  return files;
}

TensorFiles tensors_in(const fs::path& path) {
  TensorFiles all;
  const auto add = [&](const fs::path& file) {
    const auto opened = std::make_shared<const safetensors::File>(safetensors::open(file));
    for (const auto& [name, entry] : opened->entries()) all[name] = opened;
  };
  const fs::path index = path / "model.safetensors.index.json";
  if (!fs::is_directory(path)) {
    add(path);
  } else if (!fs::exists(index)) {
    add(path / "model.safetensors");
  } else {
    const auto file_of = read_index(index);
    std::set<std::string> files;
    for (const auto& [name, file] : file_of) files.insert(file);
    for (const std::string& file : files) add(path / file);
    for (const auto& [name, file] : file_of) {
      if (!all.contains(name)) {
        throw DecodeError("'" + index.string() + "' says that tensor '" + name + "' is in '" + file +
                          "', which doesn't have it");
      }
    }
  }
  return all;
}

// Variants that "model_type": "llama" doesn't tell. rope_theta stands alone or, in newer files, among rope_parameters.
void read_variant(const fs::path& path, const nlohmann::json& json, nn::LlamaConfig& config) {
  const auto need_text = [&](const nlohmann::json& in, const char* key, const char* allowed) {
    const std::string value = in.value(key, std::string(allowed));
    if (value != allowed) refuse(path, key + (" \"" + value + "\""));
  };
  need_text(json, "model_type", "llama");
  need_text(json, "hidden_act", "silu");
  config.rope_theta = json.value("rope_theta", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = json.find(key);
    if (rope == json.end() || rope->is_null()) continue;
    need_text(*rope, rope->contains("type") ? "type" : "rope_type", "default");
    config.rope_theta = rope->value("rope_theta", config.rope_theta);
  }
  const auto head_size = json.find("head_dim");
  if (head_size != json.end() && !head_size->is_null() && head_size->get<int64_t>() * config.heads != config.dim)
    refuse(path, "head_dim " + head_size->dump() + " with heads of " + std::to_string(config.dim / config.heads));
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
    c.norm_eps = json.at("rms_norm_eps");
    c.tied = json.value("tie_word_embeddings", false);
    out.context_length = json.value("max_position_embeddings", int64_t{2048});
    c = c.resolved();
    read_variant(folder / "config.json", json, c);
  } catch (const nlohmann::json::exception& error) {
    throw DecodeError("'" + (folder / "config.json").string() + "' doesn't describe a Llama: " + error.what());
  }
  const auto tensors = std::make_shared<const TensorFiles>(tensors_in(path));
  need_tensors_for(path, c.layers, tensors->size());
  const auto names = std::make_shared<const std::map<std::string, std::string>>(names_of(c, false));
  need_known_tensors(path, *tensors, *names, [](const std::string& name) {
    // Tables that follow from the config; the embedding once more.
    return name.ends_with(".rotary_emb.inv_freq") || name == "lm_head.weight";
  });
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
