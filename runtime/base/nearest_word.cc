#include "runtime/base/nearest_word.h"

#include <algorithm>
#include <vector>

namespace dtorch {

namespace {

constexpr size_t kLongestWord = 256;

char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '_' ? '-' : c;
}

// Edits that turn a into b: insert, delete, replace, or swap of neighbours (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  const std::string* nearest = nullptr;
  size_t smallest = 0;
  if (word.empty() || word.size() > kLongestWord) return "";
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const size_t allowed = std::max<size_t>(1, std::max(word.size(), candidate.size()) / 3);
    const size_t distance = edit_distance(word, candidate);
    if (distance > allowed || distance >= std::max(word.size(), candidate.size())) continue;
    if (nearest != nullptr && distance >= smallest) continue;
    nearest = &candidate;
    smallest = distance;
  }
  return nearest == nullptr ? "" : *nearest;
}

}  // namespace dtorch
