// An operator through DTorch against a bare LibTorch loop.
#pragma once
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/pairs.h"
#include "runtime/base/error.h"

namespace dtorch::bench {

inline void print(const std::string& name, double value, const std::string& unit, double baseline = 0,
                  double ratio = 0) {
  nlohmann::json line{{"name", name + suffix()}, {"value", value}, {"unit", unit}};
  if (baseline > 0) {
    line["baseline"] = baseline;
    line["ratio"] = ratio;
  }
  std::cout << line.dump() << '\n' << std::flush;
}

// ours() and bare() each run `count` operators and return the last value, which must agree.
inline void compare(const std::string& name, int count, const std::function<double()>& ours,
                    const std::function<double()>& bare) {
  std::vector<double> ratios, our_us, bare_us;
  for (int pair = 0; pair <= kPairs; ++pair) {
    double value = 0, expected = 0;
    const double mine = seconds([&] { value = ours(); });
    const double theirs = seconds([&] { expected = bare(); });
    if (value != expected)
      throw RuntimeFault(name + ": " + std::to_string(value) + ", the bare loop gives " + std::to_string(expected));
    if (pair == 0) continue;  // warm-up
    ratios.push_back(mine / theirs);
    our_us.push_back(mine / count * 1e6);
    bare_us.push_back(theirs / count * 1e6);
  }
  print(name, median(our_us), "us/operator", median(bare_us), median(ratios));
}

}  // namespace dtorch::bench
