// Token data: one HDF5 file with a contiguous 1-D data set "tokens" (uint8, or int32 for vocabularies beyond 256) and
// attributes "vocab" and "tokenizer". Batches are a function of (seed, step); every device reads its own rows with
// pread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "io/tokenizer.h"
#include "runtime/client/tensor.h"

namespace dtorch {

struct Batch {
  Tensor inputs, targets;  // [B, T] int64; targets -100 beyond the end of the range
};

// Writes text files, one after the other, as tokens. The file appears complete or not at all; an existing one is
// replaced. Returns the number of tokens. Throws RuntimeFault: unreadable input, full disk; UserError: no text.
int64_t prepare_tokens(const std::vector<std::filesystem::path>& texts, const Tokenizer& tokenizer,
                       const std::filesystem::path& out);
// The same with a token a byte (vocabulary 256).
int64_t prepare_bytes(const std::vector<std::filesystem::path>& texts, const std::filesystem::path& out);

class TokenBatches;

class TokenData {
 public:
  // Throws RuntimeFault when the file can't be read or isn't token data.
  static TokenData open(const std::filesystem::path& path);
  int64_t num_tokens() const { return end_ - begin_; }
  int64_t vocab() const { return vocab_; }
  const std::string& tokenizer() const { return tokenizer_; }
  // The part [from, to) of it, as shares of its length: slice(0.9, 1.0) is the last tenth.
  TokenData slice(double from, double to) const;
  // `batch` windows of `length` + 1 tokens at random places. Throws UserError when the data is shorter than one window.
  Batch random_batch(int64_t batch, int64_t length, uint64_t seed, int64_t step, const TensorOptions& options,
                     Where where = Where::current()) const;
  // Rows [first_row, first_row + rows) of what random_batch draws: a batch in parts is the batch in one piece.
  Batch random_rows(int64_t first_row, int64_t rows, int64_t length, uint64_t seed, int64_t step,
                    const TensorOptions& options, Where where = Where::current()) const;
  // For a training loop: `batches(...).next(step)` is random_batch of that step.
  TokenBatches batches(int64_t batch, int64_t length, const TensorOptions& options, uint64_t seed = 7) const;
  // Windows number step * batch ... one after the other without overlap of targets; beyond the end all targets are
  // -100.
  Batch sequential_batch(int64_t batch, int64_t length, int64_t step, const TensorOptions& options,
                         Where where = Where::current()) const;
  int64_t num_sequential_batches(int64_t batch, int64_t length) const;

 private:
  Batch record_batch(int64_t first_row, int64_t batch, int64_t length, bool random, uint64_t seed, int64_t step,
                     const TensorOptions& options, const Where& where) const;
  std::string path_, tokenizer_;
  DType dtype_ = kUInt8;
  int64_t offset_ = 0, begin_ = 0, end_ = 0, vocab_ = 0;
};

// Batches of one kind, a function of the step.
class TokenBatches {
 public:
  Batch next(int64_t step, Where where = Where::current()) const {
    return data_.random_batch(batch_, length_, seed_, step, options_, where);
  }

 private:
  friend class TokenData;
  TokenBatches(TokenData data, int64_t batch, int64_t length, TensorOptions options, uint64_t seed)
      : data_(std::move(data)), batch_(batch), length_(length), options_(std::move(options)), seed_(seed) {}
  TokenData data_;
  int64_t batch_, length_;
  TensorOptions options_;
  uint64_t seed_;
};

inline TokenBatches TokenData::batches(int64_t batch, int64_t length, const TensorOptions& options,
                                       uint64_t seed) const {
  return TokenBatches(*this, batch, length, options, seed);
}

}  // namespace dtorch
