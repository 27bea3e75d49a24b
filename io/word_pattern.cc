#include "io/word_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

// Words with a leading space, runs of other signs, white space up to the one that belongs to the next word.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// The same with digits one by one, so that white space before a digit isn't the digit's.
constexpr const char* kDigitsApart =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+)";

std::string reason(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct MatchData {
  explicit MatchData(const pcre2_code* code) : data(pcre2_match_data_create_from_pattern(code, nullptr)) {}
  ~MatchData() { pcre2_match_data_free(data); }
  MatchData(const MatchData&) = delete;
  MatchData& operator=(const MatchData&) = delete;
  pcre2_match_data* const data;
};

}  // namespace

std::shared_ptr<const WordPattern> WordPattern::of_rule(const std::string& rule) {
  if (rule != "gpt-2" && rule != "smollm")
    throw UserError("the rule '" + rule + "' for cutting text into words isn't known; known are gpt-2 and smollm");
  return std::shared_ptr<const WordPattern>(new WordPattern(rule == "smollm" ? kDigitsApart : kGpt2));
}

WordPattern::WordPattern(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                        PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &at, nullptr);
  DTORCH_CHECK(code_ != nullptr, "pattern: " + reason(error) + " at " + std::to_string(at));
}

WordPattern::~WordPattern() { pcre2_code_free(static_cast<pcre2_code*>(code_)); }

void WordPattern::for_each_word(std::string_view text, const std::function<void(std::string_view)>& use) const {
  const auto* code = static_cast<const pcre2_code*>(code_);
  const MatchData match(code);
  const auto* data = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at < text.size();) {
    const int count = pcre2_match(code, data, text.size(), at, 0, match.data, nullptr);
    DTORCH_CHECK(count > 0 || count == PCRE2_ERROR_NOMATCH, "matching words: " + reason(count));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.data);
    // What lies before a match is no UTF-8: nothing of the pattern fits it.
    const size_t from = count > 0 ? span[0] : text.size(), to = count > 0 ? span[1] : text.size();
    if (from > at) use(text.substr(at, from - at));
    if (to > from) use(text.substr(from, to - from));
    at = to;
  }
}

}  // namespace dtorch
