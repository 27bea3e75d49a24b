// "Did you mean ...?" for misspelt names. Pure function.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace dtorch {

// The candidate with the smallest edit distance to `word`, the first of equals; case doesn't count, nor does '-'
// against '_'.
// "" when none is near: more than a third of the longer word, at least 1, would have to change.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace dtorch
