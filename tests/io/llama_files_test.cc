// Llama models from files of other programs: what the model here would compute otherwise than theirs is refused, and so
// is what the file lacks.
#include "io/llama_files.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dtorch/io.h"
#include "dtorch/nn.h"
#include "tests/io/gguf_writer.h"
#include "tests/support/cluster.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Named {
  std::string name;
  std::vector<uint64_t> shape;
};
// Of one layer, dim 4, one head, ffn 8 and a vocabulary of 6, with tied embeddings.
const std::vector<Named> kGguf = {
    {"token_embd.weight", {6, 4}},        {"output_norm.weight", {4}},      {"blk.0.attn_norm.weight", {4}},
    {"blk.0.attn_q.weight", {4, 4}},      {"blk.0.attn_k.weight", {4, 4}},  {"blk.0.attn_v.weight", {4, 4}},
    {"blk.0.attn_output.weight", {4, 4}}, {"blk.0.ffn_norm.weight", {4}},   {"blk.0.ffn_gate.weight", {8, 4}},
    {"blk.0.ffn_up.weight", {8, 4}},      {"blk.0.ffn_down.weight", {4, 8}}};
const std::vector<Named> kHuggingFace = {{"model.embed_tokens.weight", {6, 4}},
                                         {"model.norm.weight", {4}},
                                         {"model.layers.0.input_layernorm.weight", {4}},
                                         {"model.layers.0.self_attn.q_proj.weight", {4, 4}},
                                         {"model.layers.0.self_attn.k_proj.weight", {4, 4}},
                                         {"model.layers.0.self_attn.v_proj.weight", {4, 4}},
                                         {"model.layers.0.self_attn.o_proj.weight", {4, 4}},
                                         {"model.layers.0.post_attention_layernorm.weight", {4}},
                                         {"model.layers.0.mlp.gate_proj.weight", {8, 4}},
                                         {"model.layers.0.mlp.up_proj.weight", {8, 4}},
                                         {"model.layers.0.mlp.down_proj.weight", {4, 8}}};

uint64_t bytes_of(const Named& tensor) {
  uint64_t bytes = 4;
  for (uint64_t size : tensor.shape) bytes *= size;
  return bytes;
}

class LlamaFiles : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    folder_ = fs::temp_directory_path() / ("dtorch_llama_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    ClusterTest::TearDown();
  }

  // What opening the file and loading a model from it says, "" for nothing.
  static std::string error_of(const fs::path& path) {
    try {
      const io::LlamaFile file = io::open_llama(path);
      nn::Llama(file.config, {.mesh = cpu_mesh({2}, {"dp"})}).load_state_dict(file.source);
      client().synchronize();  // the next case writes another file there
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  template <class Change>
  std::string gguf_error(Change&& change) {
    GgufWriter file;
    file.text("general.architecture", "llama");
    for (const auto& [key, value] : std::map<std::string, uint32_t>{{"block_count", 1},
                                                                    {"embedding_length", 4},
                                                                    {"attention.head_count", 1},
                                                                    {"attention.head_count_kv", 1},
                                                                    {"feed_forward_length", 8},
                                                                    {"context_length", 16}}) {
      file.integer("llama." + key, value);
    }
    file.number("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    for (const Named& tensor : kGguf) file.tensor(tensor.name, tensor.shape, 0, std::string(bytes_of(tensor), '\0'));
    change(file);
    file.write(folder_ / "model.gguf");
    return error_of(folder_ / "model.gguf");
  }

  std::string hugging_face_error(const Json& changes, const std::vector<Named>& more = {}) {
    Json config = {
        {"model_type", "llama"},    {"hidden_act", "silu"},       {"num_hidden_layers", 1}, {"hidden_size", 4},
        {"num_attention_heads", 1}, {"intermediate_size", 8},     {"vocab_size", 6},        {"rms_norm_eps", 1e-5},
        {"rope_scaling", nullptr},  {"tie_word_embeddings", true}};
    config.update(changes);
    std::ofstream(folder_ / "config.json") << config;
    std::vector<Named> tensors = kHuggingFace;
    tensors.insert(tensors.end(), more.begin(), more.end());
    Json head;
    uint64_t end = 0;
    for (const Named& tensor : tensors) {
      const uint64_t begin = end;
      end += bytes_of(tensor);
      head[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    }
    const std::string text = head.dump();
    const uint64_t length = text.size();
    std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << text << std::string(end, '\0');
    file.close();
    return error_of(folder_);
  }
  fs::path folder_;
};

TEST_F(LlamaFiles, AGgufFileWithMoreThanALlamaIsRefused) {
  using Writer = GgufWriter&;
  EXPECT_EQ(gguf_error([](Writer) {}), "");
  EXPECT_EQ(gguf_error([](Writer file) { file.text("llama.rope.scaling.type", "none"); }), "");
  EXPECT_NE(gguf_error([](Writer file) { file.text("llama.rope.scaling.type", "yarn"); }).find("yarn"),
            std::string::npos);
  EXPECT_NE(gguf_error([](Writer file) { file.integer("llama.rope.dimension_count", 2); }).find("dimension_count 2"),
            std::string::npos);
  for (const char* name : {"rope_freqs.weight", "blk.0.attn_q.bias", "blk.1.attn_q.weight"}) {
    const std::string error = gguf_error([&](Writer file) { file.tensor(name, {4}, 0, std::string(16, '\0')); });
    EXPECT_NE(error.find(std::string("a tensor '") + name), std::string::npos) << error;
  }
}

TEST_F(LlamaFiles, AFileThatClaimsMoreLayersThanItHasTensorsIsRefusedAtOnce) {
  const std::string gguf = gguf_error([](GgufWriter& file) { file.integer("llama.block_count", 4000000000U); });
  EXPECT_NE(gguf.find("claims 4000000000 layers"), std::string::npos) << gguf;
  const std::string json = hugging_face_error({{"num_hidden_layers", int64_t{1} << 60}});
  EXPECT_NE(json.find("claims 1152921504606846976 layers"), std::string::npos) << json;
}

TEST_F(LlamaFiles, AConfigThatAsksForMoreThanALlamaIsRefused) {
  EXPECT_EQ(hugging_face_error(Json::object()), "");
  EXPECT_EQ(hugging_face_error({{"head_dim", 4}, {"rope_parameters", {{"rope_type", "default"}}}}), "");
  EXPECT_EQ(hugging_face_error(Json::object(),
                               {{"lm_head.weight", {6, 4}}, {"model.layers.0.self_attn.rotary_emb.inv_freq", {2}}}),
            "");
  const std::pair<Json, const char*> wrong[] = {
      {{{"model_type", "qwen2"}}, "model_type \"qwen2\""},
      {{{"hidden_act", "gelu"}}, "hidden_act \"gelu\""},
      {{{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}}, "rope_type \"llama3\""},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}, "type \"linear\""},
      {{{"head_dim", 8}}, "head_dim 8"},
      {{{"hidden_size", "four"}}, "doesn't describe a Llama"}};
  for (const auto& [changes, text] : wrong) {
    const std::string error = hugging_face_error(changes);
    EXPECT_NE(error.find(text), std::string::npos) << changes << ": " << error;
  }
  const std::string bias = hugging_face_error(Json::object(), {{"model.layers.0.self_attn.q_proj.bias", {4}}});
  EXPECT_NE(bias.find("a tensor 'model.layers.0.self_attn.q_proj.bias'"), std::string::npos) << bias;
}

TEST_F(LlamaFiles, AnIndexThatIsNoIndexIsADecodeError) {
  ASSERT_EQ(hugging_face_error(Json::object()), "");
  std::ofstream(folder_ / "model.safetensors.index.json") << "{\"weight_map\": [1";
  EXPECT_THROW(io::open_llama(folder_), DecodeError);
}

TEST_F(LlamaFiles, AnIndexIsTakenAtItsWord) {
  ASSERT_EQ(hugging_face_error(Json::object()), "");
  fs::rename(folder_ / "model.safetensors", folder_ / "model-1.safetensors");
  Json map;
  for (const Named& tensor : kHuggingFace) map[tensor.name] = "model-1.safetensors";
  const auto error_with = [&](const Json& changes) {
    Json changed = map;
    changed.update(changes);
    std::ofstream(folder_ / "model.safetensors.index.json") << Json{{"weight_map", changed}};
    return error_of(folder_);
  };
  EXPECT_EQ(error_with(Json::object()), "");
  const std::string shard = error_with({{"model.norm.weight", "model-2.safetensors"}});
  EXPECT_NE(shard.find("'model.norm.weight' is in 'model-2.safetensors', which isn't there"), std::string::npos)
      << shard;
  const std::string tensor = error_with({{"lm_head.weight", "model-1.safetensors"}});
  EXPECT_NE(tensor.find("'lm_head.weight' is in 'model-1.safetensors', which doesn't have it"), std::string::npos)
      << tensor;
}

TEST_F(LlamaFiles, TensorsThatAreMissingOrHaveAnotherShapeAreListedAndNothingIsLoaded) {
  const std::string shape = hugging_face_error({{"intermediate_size", 9}});
  EXPECT_NE(shape.find("shape of layers.0.w1: [8, 4], the model has [9, 4]"), std::string::npos) << shape;
  const std::string missing = hugging_face_error({{"tie_word_embeddings", false}});
  EXPECT_NE(missing.find("missing: head"), std::string::npos) << missing;
}

}  // namespace
}  // namespace dtorch::test
