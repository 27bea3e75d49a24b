// safetensors: what is read is what was written, on any layout; damaged headers are errors that say what is wrong.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "dtorch/io.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

class Safetensors : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    path_ = (fs::temp_directory_path() / ("dtorch_safetensors_" + std::to_string(::getpid()))).string();
  }
  void TearDown() override {
    fs::remove(path_);
    ClusterTest::TearDown();
  }
  // A file of this header and data.
  void write(const std::string& header, const std::string& data, int64_t header_size = -1) const {
    std::ofstream file(path_, std::ios::binary);
    const auto size = static_cast<uint64_t>(header_size < 0 ? static_cast<int64_t>(header.size()) : header_size);
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << header << data;
  }
  std::string error_of(const std::string& header, const std::string& data, int64_t header_size = -1) const {
    write(header, data, header_size);
    try {
      safetensors::open(path_);
    } catch (const DecodeError& error) {
      return error.what();
    }
    return "no error";
  }
  std::string path_;
};

TEST_F(Safetensors, EveryDeviceReadsItsOwnPartOfATensor) {
  const HostTensor value = iota({5, 3});
  write(R"({"__metadata__":{"a":"b"},"pad":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
        R"("w":{"dtype":"F32","shape":[5,3],"data_offsets":[3,63]}})",
        std::string("xyz") + std::string(reinterpret_cast<const char*>(value.bytes()), 60));
  const safetensors::File file = safetensors::open(path_);
  EXPECT_EQ(file.entries().size(), 2u);
  const DeviceMesh mesh = cpu_mesh({2, 2});
  for (const Placements& placements : {Placements{Replicate(), Replicate()}, Placements{Shard(0), Shard(1)},
                                       Placements{Shard(0), Shard(0)}, Placements{Shard(1), Replicate()}}) {
    EXPECT_EQ(check_tensor(file.load("w", kFloat32, Layout(mesh, placements, 2)), value), "");
  }
  const Tensor wide = file.load("w", kFloat64, Layout(mesh, {Shard(1), Shard(0)}, 2));
  EXPECT_EQ(check_tensor(wide, value.to(kFloat64)), "");
  EXPECT_THROW(file.load("v", kFloat32, Layout::replicated(mesh)), KeyError);
}

TEST_F(Safetensors, DamagedHeadersAreErrors) {
  const std::string data(60, 'd');
  const std::string entry = R"({"w":{"dtype":"F32","shape":[5,3],"data_offsets":[0,60]}})";
  EXPECT_EQ(error_of(entry, data), "no error");
  struct {
    std::string header, says;
  } const cases[] = {
      {"[]", "isn't a JSON object"},
      {"{", "isn't a JSON object"},
      {R"({"w":{"dtype":"F31","shape":[5,3],"data_offsets":[0,60]}})", "F31"},
      {R"({"w":{"dtype":"F32","shape":[-5,3],"data_offsets":[0,60]}})", "natural number"},
      {R"({"w":{"dtype":"F32","shape":[5,3],"data_offsets":[0,64]}})", "outside"},
      {R"({"w":{"dtype":"F32","shape":[5,3],"data_offsets":[60,0]}})", "outside"},
      {R"({"w":{"dtype":"F32","shape":[5,4],"data_offsets":[0,60]}})", "another number"},
      {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,60]}})", "w"},
      {R"({"w":{"dtype":"F32","shape":[5,3]}})", "data_offsets"},
      {R"({"w":7})", "w"},
  };
  for (const auto& wrong : cases) {
    const std::string error = error_of(wrong.header, data);
    EXPECT_NE(error.find(wrong.says), std::string::npos) << wrong.header << ": " << error;
    EXPECT_NE(error.find(path_), std::string::npos) << error;
  }
  EXPECT_NE(error_of(entry, data, 1 << 30).find("header would be"), std::string::npos);
  std::ofstream(path_, std::ios::binary) << "short";
  EXPECT_THROW(safetensors::open(path_), DecodeError);
  EXPECT_THROW(safetensors::open(path_ + ".none"), RuntimeFault);
}

TEST_F(Safetensors, AFileThatShrinksAfterItWasOpenedFailsTheReadWithOperatorAndLine) {
  write(R"({"w":{"dtype":"F32","shape":[5,3],"data_offsets":[0,60]}})", std::string(60, 'd'));
  const safetensors::File file = safetensors::open(path_);
  fs::resize_file(path_, 80);
  try {
    file.load("w", kFloat32, Layout::replicated(cpu_mesh({2}))).to_host();
    FAIL() << "the file is cut";
  } catch (const RuntimeFault& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("file_slice"), std::string::npos) << text;
    EXPECT_NE(text.find("safetensors_test.cc"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace dtorch::test
