// ReadChecks: what the client may know of the work since the last snapshot, so that work that is done once more can be
// seen to give the same: a hash of every value that is whole, and which operators have failed. Also the boxes of values
// of which some are still missing, which come anew when a node is lost. Thread-safe.
#pragma once
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/graph/messages.h"

namespace dtorch {

class ReadChecks {
 public:
  // A read of a piece that is being sent.
  void enter(uint64_t read, Sequence sequence);
  struct ReadBox {
    Box box;
    SharedBytes packed;  // may be null when it is empty
  };
  // A box of it has come, for the first time or while a piece is done again. Returns all of them with the one that
  // makes up `num_elements`, else none. Throws RuntimeFault when a value that was whole is another one now.
  std::vector<ReadBox> add_box(uint64_t read, ReadBox box, int64_t num_elements);
  // The client has it: a value, or a failure, of which boxes say nothing.
  void deliver(uint64_t read, bool has_failed);
  // Delivered, and what answers it isn't done again: it doesn't come once more.
  void skip(uint64_t read);
  bool is_known(uint64_t read) const;
  bool is_delivered(uint64_t read) const;  // false also of one that isn't known
  // An operator of a piece has failed.
  void note_failure(Sequence sequence, uint32_t op_index);
  bool has_failed(Sequence sequence, uint32_t op_index) const;
  // Pieces up to this one have finished on all nodes, with all that they sent, and won't be done again: they are
  // forgotten. Throws RuntimeFault when a value that was delivered should have come again and hasn't.
  void forget(Sequence last);
  // Pieces are done once more from the beginning of what is remembered.
  void restart();

 private:
  struct Seen {
    uint64_t hash = 0;  // a sum over boxes, which come in any order
    int64_t elements = 0;
  };
  struct Read {
    Sequence sequence = 0;
    bool is_delivered = false, has_failed = false;
    bool is_whole = false;       // all boxes have come once: `first` is final, what comes now comes again
    bool is_done_again = false;  // whole, and its piece is done once more
    bool is_skipped = false;
    Seen first = {}, again = {};
    std::vector<ReadBox> boxes = {};  // until it is whole
  };
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Read> reads_;          // under mutex_
  std::set<std::pair<Sequence, uint32_t>> failures_;  // under mutex_
};

}  // namespace dtorch
