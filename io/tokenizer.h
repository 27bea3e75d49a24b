// Tokenizers: text (UTF-8) to token ids and back. Any thread; encode and decode are const.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtorch {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::vector<int64_t> encode(std::string_view text) const = 0;
  // The bytes that a token stands for; one token may be a part of a character. Unknown ids: UserError.
  virtual std::string decode(int64_t token) const = 0;
  std::string decode(const std::vector<int64_t>& tokens) const;
  virtual int64_t vocab() const = 0;
  virtual int64_t end_of_text() const { return -1; }  // the token that ends an answer; -1: none
  virtual std::string name() const = 0;               // "bytes", or the file it comes from
};

// Every byte is a token; vocabulary 256.
std::shared_ptr<const Tokenizer> byte_tokenizer();
// Byte-level byte-pair encoding (as GPT-2's), read from a GGUF file: its tokens, merges and the rule that cuts text
// into words (tokenizer.ggml.pre: gpt-2 or smollm). Control tokens such as <|im_start|> are found in the text as they
// stand. Throws RuntimeFault, DecodeError or KeyError.
std::shared_ptr<const Tokenizer> gguf_tokenizer(const std::filesystem::path& path);
// "bytes", or the path of a GGUF file.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& name);

}  // namespace dtorch
