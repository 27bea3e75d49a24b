// Runs a fuzz target on every seed file of the given folders, and on mutations of each drawn from a fixed sequence, so
// that the plain build tests the decoders without libFuzzer. A failure is a crash of the process or a sanitizer's
// report.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutationsPerSeed = 2000;

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void mutate(std::vector<uint8_t>& bytes, std::mt19937& random) {
  const int num_edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < num_edits; ++i) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 4) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(random());
        break;
      case 1:
        if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << (random() % 8));
        break;
      case 2:
        bytes.resize(at);
        break;
      default:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), static_cast<uint8_t>(random()));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::mt19937 random(7);
  std::vector<std::vector<uint8_t>> seeds = {{}};
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) continue;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) seeds.push_back(read_file(entry.path()));
  }
  size_t num_runs = 0;
  for (const auto& seed : seeds) {
    LLVMFuzzerTestOneInput(seed.data(), seed.size());
    for (int i = 0; i < kMutationsPerSeed; ++i) {
      std::vector<uint8_t> bytes = seed;
      mutate(bytes, random);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    num_runs += 1 + kMutationsPerSeed;
  }
  std::printf("%zu seeds, %zu inputs\n", seeds.size(), num_runs);
  return 0;
}
