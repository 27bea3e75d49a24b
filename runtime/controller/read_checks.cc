#include "runtime/controller/read_checks.h"

#include <cstring>
#include <span>
#include <utility>

#include "runtime/base/error.h"

namespace dtorch {

namespace {

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

uint64_t hash_of(const Box& box, std::span<const std::byte> packed) {
  uint64_t hash = packed.size();
  for (int64_t dim = 0; dim < box.ndim(); ++dim)
    hash = mix(mix(hash, static_cast<uint64_t>(box.offset[dim])), static_cast<uint64_t>(box.size[dim]));
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= packed.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, packed.data() + at, sizeof word);
    hash = mix(hash, word);
  }
  for (; at < packed.size(); ++at) hash = mix(hash, std::to_integer<uint64_t>(packed[at]));
  return hash;
}

}  // namespace

void ReadChecks::enter(uint64_t read, Sequence sequence) {
  std::lock_guard lock(mutex_);
  reads_[read] = {.sequence = sequence};
}

std::vector<ReadChecks::ReadBox> ReadChecks::add_box(uint64_t read, ReadBox box, int64_t num_elements) {
  const std::span<const std::byte> packed =
      box.packed ? std::span<const std::byte>(*box.packed) : std::span<const std::byte>();
  const uint64_t hash = hash_of(box.box, packed);
  std::lock_guard lock(mutex_);
  const auto at = reads_.find(read);
  if (at == reads_.end() || at->second.has_failed) return {};
  Read& known = at->second;
  Seen& seen = known.is_whole ? known.again : known.first;
  seen.hash += hash;
  seen.elements += box.box.num_elements();
  if (!known.is_whole) {
    known.boxes.push_back(std::move(box));
    if (seen.elements < num_elements) return {};
    known.is_whole = true;
    return std::exchange(known.boxes, {});
  }
  if (seen.elements < known.first.elements || seen.hash == known.first.hash) return {};
  throw RuntimeFault(
      "a value that the program had read before a node was lost is another one now, after the work was "
      "done again (read " +
      std::to_string(read) + "): an operator isn't a function of its inputs, or memory is damaged");
}

void ReadChecks::deliver(uint64_t read, bool has_failed) {
  std::lock_guard lock(mutex_);
  const auto at = reads_.find(read);
  if (at == reads_.end()) return;
  at->second.is_delivered = true;
  at->second.has_failed = has_failed;
}

void ReadChecks::skip(uint64_t read) {
  std::lock_guard lock(mutex_);
  const auto at = reads_.find(read);
  if (at != reads_.end()) at->second.is_skipped = true;
}

bool ReadChecks::is_known(uint64_t read) const {
  std::lock_guard lock(mutex_);
  return reads_.contains(read);
}

bool ReadChecks::is_delivered(uint64_t read) const {
  std::lock_guard lock(mutex_);
  const auto at = reads_.find(read);
  return at != reads_.end() && at->second.is_delivered;
}

void ReadChecks::note_failure(Sequence sequence, uint32_t op_index) {
  std::lock_guard lock(mutex_);
  failures_.emplace(sequence, op_index);
}

bool ReadChecks::has_failed(Sequence sequence, uint32_t op_index) const {
  std::lock_guard lock(mutex_);
  return failures_.contains({sequence, op_index});
}

void ReadChecks::forget(Sequence last) {
  std::lock_guard lock(mutex_);
  for (const auto& [number, read] : reads_) {
    if (read.sequence > last || read.has_failed || !read.is_done_again || read.is_skipped) continue;
    if (read.again.elements >= read.first.elements) continue;
    throw RuntimeFault(
        "a value that the program had read before a node was lost didn't come again when the work was done again "
        "(read " +
        std::to_string(number) + ")");
  }
  std::erase_if(reads_,
                [last](const auto& entry) { return entry.second.sequence <= last && entry.second.is_delivered; });
  failures_.erase(failures_.begin(), failures_.lower_bound({last + 1, 0}));
}

void ReadChecks::restart() {
  std::lock_guard lock(mutex_);
  for (auto& [number, read] : reads_) {
    read.again = {};
    read.is_done_again = read.is_whole;
    if (read.is_whole || read.is_delivered) continue;
    read.first = {};
    read.boxes.clear();
  }
}

}  // namespace dtorch
