// GGUF files: every encoding against its formula, boxes of any layout, rotary rows, and files that are wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "dtorch/io.h"
#include "tests/io/gguf_writer.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

std::string half_bytes(float value) {
  const Float16 half(value);
  return std::string(reinterpret_cast<const char*>(&half), sizeof half);
}

struct Encoded {
  std::string data;
  std::vector<double> values;
};

// Random blocks of an encoding, and what they mean by its formula.
Encoded random_blocks(uint32_t code, size_t blocks, std::mt19937& random) {
  Encoded out;
  for (size_t block = 0; block < blocks; ++block) {
    const float d = static_cast<float>(random() % 64 + 1) / 64, m = static_cast<float>(random() % 32) / 8 - 2;
    out.data += half_bytes(d);
    if (code == 3) out.data += half_bytes(m);
    if (code == 8) {
      for (int i = 0; i < 32; ++i) {
        const auto q = static_cast<int8_t>(random());
        out.data.push_back(static_cast<char>(q));
        out.values.push_back(static_cast<double>(d) * q);
      }
      continue;
    }
    std::vector<double> low, high;
    for (int i = 0; i < 16; ++i) {
      const auto both = static_cast<uint8_t>(random());
      out.data.push_back(static_cast<char>(both));
      const auto value = [&](int q) { return code == 3 ? double{d} * q + double{m} : double{d} * (q - 8); };
      low.push_back(value(both & 15));
      high.push_back(value(both >> 4));
    }
    out.values.insert(out.values.end(), low.begin(), low.end());
    out.values.insert(out.values.end(), high.begin(), high.end());
  }
  return out;
}

class GgufTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    path_ = (std::filesystem::temp_directory_path() / ("dtorch_gguf_" + std::to_string(::getpid()) + ".gguf")).string();
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    ClusterTest::TearDown();
  }
  std::string path_;
};

TEST_F(GgufTest, EveryEncodingIsReadByItsFormulaOnEveryLayout) {
  std::mt19937 random(4);
  for (uint32_t code : {2u, 3u, 8u}) {
    const Encoded encoded = random_blocks(code, 5 * 2, random);  // [5, 64]
    GgufWriter writer;
    writer.tensor("w", {5, 64}, code, encoded.data);
    writer.write(path_);
    const gguf::File file = gguf::open(path_);
    const DeviceMesh mesh = cpu_mesh({3});
    for (const Placement& placement : {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
      const Layout layout(mesh, {placement}, 2);
      const Tensor w = file.load("w", {5, 64}, kFloat32, layout);
      const HostTensor want = HostTensor::of<double>({5, 64}, encoded.values).to(kFloat32);
      EXPECT_EQ(check_tensor(w, want, 1e-6), "") << "encoding " << code << ' ' << layout;
    }
  }
}

TEST_F(GgufTest, PairsOfRotaryRowsBecomeHalves) {
  GgufWriter writer;
  std::string data;
  for (int row = 0; row < 8; ++row) {
    const float value = static_cast<float>(row);
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  writer.tensor("q", {8, 1}, 0, data);
  writer.write(path_);
  // Two heads of four rows: 0 1 2 3 become 0 2 1 3.
  const Tensor q =
      gguf::open(path_).load("q", {2, 4, 1}, kFloat32, Layout(cpu_mesh({3}), {Shard(1)}, 3), {.rotary_head_rows = 4});
  EXPECT_EQ(q.to_host().to_vector<float>(), (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
}

TEST_F(GgufTest, ValuesAreReadByKeyAndType) {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  writer.integer("llama.block_count", 30);
  writer.number("llama.rope.freq_base", 100000.0f);
  writer.texts("tokens", {"a", "b"});
  writer.integers("types", {3, 1});
  writer.write(path_);
  const gguf::File file = gguf::open(path_);
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("llama.block_count"), 30);
  EXPECT_EQ(file.number("llama.rope.freq_base"), 100000.0);
  EXPECT_EQ(file.texts("tokens"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(file.integers("types"), (std::vector<int64_t>{3, 1}));
  EXPECT_THROW(file.integer("general.architecture"), DecodeError);
  EXPECT_THROW(file.text("nothing"), KeyError);
  EXPECT_THROW(file.load("nothing", {1}, kFloat32, Layout::replicated(cpu_mesh({1}))), KeyError);
}

TEST_F(GgufTest, FilesThatAreCutOffOrLieAreRefused) {
  GgufWriter writer;
  writer.text("general.name", "x");
  writer.tensor("w", {2, 32}, 8, std::string(68, 'a'));
  const std::string whole = writer.bytes();
  const auto opens = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    try {
      gguf::open(path_);
      return true;
    } catch (const DecodeError&) {
      return false;
    }
  };
  EXPECT_TRUE(opens(whole));
  EXPECT_FALSE(opens("GGML" + whole.substr(4)));
  const size_t end_of_data = whole.size() - 28;  // what follows is padding
  for (size_t length = 0; length < end_of_data; length += 3) EXPECT_FALSE(opens(whole.substr(0, length))) << length;
  GgufWriter odd;
  odd.tensor("w", {2, 33}, 8, std::string(100, 'a'));
  EXPECT_FALSE(opens(odd.bytes())) << "rows that aren't whole blocks";
  GgufWriter unknown;
  unknown.tensor("w", {2, 32}, 77, std::string(100, 'a'));
  EXPECT_FALSE(opens(unknown.bytes()));
}

}  // namespace
}  // namespace dtorch::test
