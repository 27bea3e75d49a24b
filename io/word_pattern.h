// How text is cut into words before byte-pair encoding, by PCRE2's Unicode classes. Any thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dtorch {

class WordPattern {
 public:
  // "gpt-2", or "smollm" (digits one by one). Throws UserError that lists them.
  static std::shared_ptr<const WordPattern> of_rule(const std::string& rule);
  ~WordPattern();
  WordPattern(const WordPattern&) = delete;
  WordPattern& operator=(const WordPattern&) = delete;
  // The words, in order; together they are the text. Stretches that aren't UTF-8 are words of their own.
  void for_each_word(std::string_view text, const std::function<void(std::string_view)>& use) const;

 private:
  explicit WordPattern(const std::string& pattern);
  void* code_ = nullptr;  // pcre2_code
};

}  // namespace dtorch
