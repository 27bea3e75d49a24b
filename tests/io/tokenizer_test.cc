// Tokenizers: words, merges by rank, control tokens, any bytes there and back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "io/tokenizer.h"
#include "io/word_pattern.h"
#include "runtime/base/error.h"
#include "tests/io/gguf_writer.h"

namespace dtorch::test {
namespace {

std::vector<std::string> words(const std::string& rule, const std::string& text) {
  std::vector<std::string> all;
  WordPattern::of_rule(rule)->for_each_word(text, [&](std::string_view word) { all.emplace_back(word); });
  return all;
}

TEST(WordPatternTest, CutsAsTheRuleSays) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("gpt-2", "It's 12 o'clock"), (Words{"It", "'s", " 12", " o", "'", "clock"}));
  EXPECT_EQ(words("smollm", "It's 12 "), (Words{"It", "'s", " ", "1", "2", " "}));
  EXPECT_EQ(words("smollm", "a  b"), (Words{"a", " ", " b"}));
  EXPECT_EQ(words("smollm", "n):\n    x"), (Words{"n", "):", "\n   ", " x"}));
  EXPECT_EQ(words("gpt-2", "\xC3\xA9t\xC3\xA9 \xE4\xBD\xA0"), (Words{"\xC3\xA9t\xC3\xA9", " \xE4\xBD\xA0"}));
  EXPECT_EQ(words("gpt-2", ""), Words{});
  EXPECT_THROW(words("other", "x"), UserError);
}

TEST(WordPatternTest, WordsTogetherAreTheTextWhateverItsBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string text, together;
    for (unsigned i = random() % 40; i > 0; --i)
      text.push_back(static_cast<char>(random() % 2 ? random() % 128 : random()));
    for (const std::string& word : words(round % 2 ? "gpt-2" : "smollm", text)) {
      EXPECT_FALSE(word.empty());
      together += word;
    }
    EXPECT_EQ(together, text);
  }
}

class BytePairTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ =
        (std::filesystem::temp_directory_path() / ("dtorch_tokens_" + std::to_string(::getpid()) + ".gguf")).string();
    // The 256 bytes as byte-level vocabularies spell them, then merges, then a control token.
    std::vector<std::string> tokens;
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const uint32_t point = printable ? b : next++;
      tokens.push_back(point < 128
                           ? std::string{static_cast<char>(point)}
                           : std::string{static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 63))});
    }
    for (const char* merged : {"he", "ll", "hell", "hello", "\xC4\xA0h"}) tokens.emplace_back(merged);
    tokens.emplace_back("<|end|>");
    std::vector<int32_t> types(tokens.size(), 1);
    types.back() = 3;
    GgufWriter writer;
    writer.text("tokenizer.ggml.model", "gpt2");
    writer.text("tokenizer.ggml.pre", "gpt-2");
    writer.texts("tokenizer.ggml.tokens", tokens);
    writer.integers("tokenizer.ggml.token_type", types);
    writer.texts("tokenizer.ggml.merges", {"h e", "l l", "he ll", "hell o", "\xC4\xA0 h"});
    writer.integer("tokenizer.ggml.eos_token_id", 261);
    writer.write(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(BytePairTest, MergesByRankAndFindsControlTokens) {
  const auto tokenizer = gguf_tokenizer(path_);
  EXPECT_EQ(tokenizer->encode("hello"), (std::vector<int64_t>{259}));
  EXPECT_EQ(tokenizer->encode("hell"), (std::vector<int64_t>{258}));
  EXPECT_EQ(tokenizer->encode("he<|end|>ll"), (std::vector<int64_t>{256, 261, 257}));
  // "h e" was merged before " h": so the space stays alone.
  EXPECT_EQ(tokenizer->encode(" he"), (std::vector<int64_t>{tokenizer->encode(" ")[0], 256}));
  EXPECT_EQ(tokenizer->encode(" h"), (std::vector<int64_t>{260}));
  EXPECT_EQ(tokenizer->decode({259, 261}), "hello<|end|>");
  EXPECT_EQ(tokenizer->end_of_text(), 261);
  EXPECT_EQ(tokenizer->vocab(), 262);
  EXPECT_THROW(tokenizer->decode(262), UserError);
  EXPECT_THROW(tokenizer->decode(-1), UserError);
}

TEST_F(BytePairTest, AnyBytesComeBack) {
  const auto tokenizer = gguf_tokenizer(path_);
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (unsigned i = random() % 30; i > 0; --i) text.push_back(static_cast<char>(random()));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST(ByteTokenizerTest, ATokenIsAByte) {
  const auto tokenizer = open_tokenizer("bytes");
  EXPECT_EQ(tokenizer->encode("a\xFF"), (std::vector<int64_t>{97, 255}));
  EXPECT_EQ(tokenizer->decode({97, 255}), "a\xFF");
  EXPECT_EQ(tokenizer->vocab(), 256);
}

}  // namespace
}  // namespace dtorch::test
