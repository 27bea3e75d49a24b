#include "io/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "io/gguf.h"
#include "io/word_pattern.h"
#include "runtime/base/error.h"

namespace dtorch {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> tokens;
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string decode(int64_t token) const override {
    if (token < 0 || token > 255) throw UserError("token " + std::to_string(token) + " isn't a byte");
    return {static_cast<char>(token)};
  }
  int64_t vocab() const override { return 256; }
  std::string name() const override { return "bytes"; }
};

void append_utf8(std::string& out, uint32_t point) {
  if (point < 0x80) {
    out.push_back(static_cast<char>(point));
  } else {  // all points used here have at most 11 bits
    out.push_back(static_cast<char>(0xC0 | point >> 6));
    out.push_back(static_cast<char>(0x80 | (point & 63)));
  }
}

// How the vocabulary spells bytes: printable ones as themselves, the others as characters from U+0100 on.
const std::array<std::string, 256>& byte_spellings() {
  static const std::array<std::string, 256> spellings = [] {
    std::array<std::string, 256> all;
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      append_utf8(all[b], printable ? b : next++);
    }
    return all;
  }();
  return spellings;
}

std::string spelled(std::string_view bytes) {
  std::string out;
  for (char c : bytes) out += byte_spellings()[static_cast<unsigned char>(c)];
  return out;
}

// The inverse; characters that spell no byte stand for themselves.
std::string unspelled(const std::string& text) {
  static const std::unordered_map<std::string, char> kBytes = [] {
    std::unordered_map<std::string, char> all;
    for (size_t b = 0; b < 256; ++b) all[byte_spellings()[b]] = static_cast<char>(b);
    return all;
  }();
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const std::string character = text.substr(i, length);
    const auto found = kBytes.find(character);
    if (found == kBytes.end()) {
      out += character;
    } else {
      out.push_back(found->second);
    }
    i += length;
  }
  return out;
}

class BytePairTokenizer final : public Tokenizer {
 public:
  explicit BytePairTokenizer(const gguf::File& file) : name_(file.path().string()) {
    const std::string& model = file.text("tokenizer.ggml.model");
    if (model != "gpt2") throw UserError("'" + name_ + "': tokenizer model '" + model + "' isn't known; known is gpt2");
    words_ = WordPattern::of_rule(file.text("tokenizer.ggml.pre"));
    tokens_ = file.texts("tokenizer.ggml.tokens");
    const std::vector<int64_t>& types = file.integers("tokenizer.ggml.token_type");
    if (types.size() != tokens_.size()) throw DecodeError("'" + name_ + "': as many token types as tokens are needed");
    constexpr int64_t kControl = 3;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      ids_.emplace(tokens_[id], static_cast<int64_t>(id));
      if (types[id] == kControl && !tokens_[id].empty()) control_.push_back(static_cast<int64_t>(id));
    }
    // Of two control tokens that start alike the longer one counts.
    std::ranges::stable_sort(control_, std::greater(), [this](int64_t id) { return text_of(id).size(); });
    const std::vector<std::string>& merges = file.texts("tokenizer.ggml.merges");
    for (size_t rank = 0; rank < merges.size(); ++rank) ranks_.emplace(merges[rank], rank);
    if (file.values().contains("tokenizer.ggml.eos_token_id")) end_ = file.integer("tokenizer.ggml.eos_token_id");
  }

  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> out;
    size_t plain_from = 0;
    for (size_t at = 0; at < text.size();) {
      const int64_t control = control_at(text.substr(at));
      if (control < 0) {
        ++at;
        continue;
      }
      encode_plain(text.substr(plain_from, at - plain_from), out);
      out.push_back(control);
      at += text_of(control).size();
      plain_from = at;
    }
    encode_plain(text.substr(plain_from), out);
    return out;
  }

  std::string decode(int64_t token) const override {
    if (token < 0 || token >= vocab())
      throw UserError("token " + std::to_string(token) + " is outside [0, " + std::to_string(vocab()) + ")");
    return unspelled(text_of(token));
  }
  int64_t vocab() const override { return static_cast<int64_t>(tokens_.size()); }
  int64_t end_of_text() const override { return end_; }
  std::string name() const override { return name_; }

 private:
  const std::string& text_of(int64_t id) const { return tokens_[static_cast<size_t>(id)]; }

  int64_t control_at(std::string_view text) const {
    for (int64_t id : control_) {
      if (text.starts_with(text_of(id))) return id;
    }
    return -1;
  }

  void encode_plain(std::string_view text, std::vector<int64_t>& out) const {
    words_->for_each_word(text, [&](std::string_view word) { encode_word(spelled(word), out); });
  }

  // Joins the pair of neighbours that was merged first in training, until none is left.
  void encode_word(const std::string& word, std::vector<int64_t>& out) const {
    std::vector<std::string> parts;
    for (size_t i = 0; i < word.size();) {
      const size_t length = static_cast<unsigned char>(word[i]) < 0x80 ? 1 : 2;
      parts.push_back(word.substr(i, length));
      i += length;
    }
    while (parts.size() > 1) {
      size_t best = 0, best_rank = std::numeric_limits<size_t>::max();
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = ranks_.find(parts[i] + " " + parts[i + 1]);
        if (found == ranks_.end() || found->second >= best_rank) continue;
        best = i;
        best_rank = found->second;
      }
      if (best_rank == std::numeric_limits<size_t>::max()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    for (const std::string& part : parts) {
      const auto found = ids_.find(part);
      if (found == ids_.end()) throw DecodeError("'" + name_ + "': its vocabulary lacks a token for a byte");
      out.push_back(found->second);
    }
  }

  const std::string name_;
  std::shared_ptr<const WordPattern> words_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<std::string, size_t> ranks_;  // "first second" -> order of merging
  std::vector<int64_t> control_;
  int64_t end_ = -1;
};

}  // namespace

std::string Tokenizer::decode(const std::vector<int64_t>& tokens) const {
  std::string text;
  for (int64_t token : tokens) text += decode(token);
  return text;
}

std::shared_ptr<const Tokenizer> byte_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<ByteTokenizer>();
  return tokenizer;
}

std::shared_ptr<const Tokenizer> gguf_tokenizer(const std::filesystem::path& path) {
  return std::make_shared<BytePairTokenizer>(gguf::open(path));
}

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& name) {
  return name == "bytes" ? byte_tokenizer() : gguf_tokenizer(name);
}

}  // namespace dtorch
