#include "apps/reference_run/reference.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace dtorch::app {
namespace {

// Number k of the splitmix64 stream that starts at `seed` (Steele, Lea, Flood 2014).
uint64_t splitmix(uint64_t seed, uint64_t k) {
  uint64_t z = seed + (k + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

Reference read_reference(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw RuntimeFault("cannot open '" + path.string() + "'");
  try {
    const nlohmann::json c = nlohmann::json::parse(file).at("config");
    Reference r;
    r.model = {.dim = c.at("D"),
               .layers = c.at("L"),
               .heads = c.at("H"),
               .kv_heads = c.at("K"),
               .vocab = c.at("V"),
               .ffn = c.at("FF"),
               .experts = c.at("experts"),
               .top_k = c.at("experts").get<int64_t>() > 0 ? c.at("top_k").get<int64_t>() : 1,
               .aux_coef = c.at("aux_coef"),
               .rope_theta = c.at("theta"),
               .norm_eps = c.at("eps"),
               .tied = c.at("tied")};
    r.model = r.model.resolved();
    r.length = c.at("T");
    r.batch = c.at("B");
    r.steps = c.at("steps");
    r.lr = c.at("lr");
    r.beta1 = c.at("b1");
    r.beta2 = c.at("b2");
    r.adam_eps = c.at("adam_eps");
    r.weight_decay = c.at("wd");
    r.clip = c.at("clip");
    r.seed = c.at("seed");
    r.mask = c.at("mask");
    r.weights = path;
    r.weights.replace_extension(".safetensors");
    return r;
  } catch (const nlohmann::json::exception& error) {
    throw RuntimeFault("'" + path.string() + "' isn't a reference file: " + error.what());
  }
}

ReferenceBatch reference_batch(const Reference& r, int64_t step) {
  ReferenceBatch out;
  for (int64_t b = 0; b < r.batch; ++b) {
    const int64_t row = (step * r.batch + b) * (r.length + 1);
    auto token = [&](int64_t t) {
      const double u = static_cast<double>(splitmix(r.seed, static_cast<uint64_t>(row + t)) >> 11) * 0x1p-53;
      return static_cast<int64_t>(std::floor(static_cast<double>(r.model.vocab) * std::pow(u, 3)));
    };
    for (int64_t t = 0; t < r.length; ++t) {
      const bool ignored = r.mask && ((3 * b + t) % 5 == 0 || (step % 2 == 1 && b == 1));
      out.inputs.push_back(token(t));
      out.targets.push_back(ignored ? -100 : token(t + 1));
      out.num_valid += ignored ? 0 : 1;
    }
  }
  return out;
}

}  // namespace dtorch::app
