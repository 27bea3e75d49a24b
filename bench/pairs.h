// What benchmarks of interleaved pairs share.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace dtorch::bench {

using Clock = std::chrono::steady_clock;

inline constexpr int kPairs = 11;

inline double seconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

inline std::string suffix() {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size && std::string(size) != "1" ? ".np" + std::string(size) : "";
}

}  // namespace dtorch::bench
