// ReplayLog: everything that was sent to the nodes since the last snapshot that can be gone back to (the base), as the
// same bytes, and what the nodes knew then: meshes, specs, templates, values. What a recovery sends once more
// (docs/reliability.md). Under the sequencer's lock, but where it says otherwise.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "runtime/controller/live_values.h"
#include "runtime/controller/read_checks.h"
#include "runtime/controller/sequencer_draft.h"

namespace dtorch {

class ReplayLog {
 public:
  // steps: optimizer steps between snapshots. max_bytes: what is kept at most for a recovery.
  static constexpr int64_t kMaxBytes = int64_t{1} << 30;
  explicit ReplayLog(int64_t steps, int64_t max_bytes = kMaxBytes) : steps_between_(steps), max_bytes_(max_bytes) {}

  // One message of the order, with the host data that go before it.
  struct Item {
    Message message = {};
    Sequence sequence = 0;  // 0: the definition of a template
    GraphId graph = 0;
    int64_t num_operators = 0, num_bytes = 0;  // the credit that it takes
    std::vector<PieceFeed> feeds = {};
    std::vector<uint64_t> sessions = {};  // of which it has calls
    bool has_effects = false;             // outside, of no session
    bool effects_done = false;            // note_done_effects()
    uint64_t number = 0;                  // given by add(), ascending
    // What nodes know since then.
    std::vector<OperatorSpec> new_specs = {};
    bool closes_graph = false;
    TemplateId template_id = 0;
    std::shared_ptr<const TemplateBody> body = {};  // of a definition
    std::vector<uint32_t> new_varying = {};         // of a replay
    bool teaches() const { return closes_graph || body || !new_specs.empty() || !new_varying.empty(); }
  };
  // The item's calls, before they are handed over: fills its sessions and whether it has effects.
  void note_calls(Item& item, const LedgerEntry& entry);
  void note_template(GraphId graph, const Template& added, const SpecTable& specs) {
    values_.define(graph, added, specs);
  }
  // In the order in which they are sent. Where max_bytes would be passed, all is given up but what nodes know by it.
  void add(Item item);

  // --- snapshots
  struct Cut {
    SnapshotId snapshot = 0;
    Sequence last = 0;      // the last piece before it
    uint64_t end_item = 0;  // the number of the first item behind it
    size_t num_meshes = 0;  // that the encoder had defined
    std::vector<LiveValue> values;
  };
  // After every piece: a snapshot is wanted, and this is a place where one can be (no instance of a template and
  // nothing with effects outside is under way) and where little lives.
  bool is_cut_due();
  const Cut& cut(Sequence last, size_t num_meshes);
  // The one that was cut and is neither the base nor dropped; null: none.
  const Cut* pending() const { return pending_ ? &*pending_ : nullptr; }
  // Any thread: its `last`, 0 when there is none.
  Sequence pending_last() const { return pending_last_.load(); }
  void commit();  // the pending one becomes the base
  void drop_pending();
  void give_up_pending();  // the same, and the next one not at once

  // --- a recovery
  const Cut& base() const { return base_; }
  // What nodes have to know at the base, in the order in which they are to be told. Graphs' specs as pieces that do
  // nothing.
  std::vector<Message> definitions(PieceEncoder& encoder) const;
  const std::deque<Item>& items() const { return items_; }  // since the base, when the log is complete
  // False since items were given up, until a snapshot after them is the base: nobody can go on from the base then.
  bool is_complete() const { return given_up_to_ <= base_.end_item; }
  // Before work is done again: what all nodes have acknowledged has had its effects.
  void note_done_effects(const Ledger& ledger);
  // Numbers of effects of these items that mustn't be had again (ops/def/effects.h).
  std::vector<uint64_t> done_effects();

  ReadChecks& reads() { return reads_; }                           // any thread
  int64_t num_bytes() const { return bytes_.load(); }              // of messages and host data; any thread
  int64_t num_snapshots() const { return num_snapshots_.load(); }  // committed; any thread

 private:
  struct KnownTemplate {
    std::shared_ptr<const TemplateBody> body;
    VaryingScalars varying;
  };
  struct KnownGraph {
    std::vector<OperatorSpec> specs;
    std::map<TemplateId, KnownTemplate> templates;
  };
  bool is_good_place();
  void learn(Item& item);
  void give_up();
  static int64_t bytes_of(const Item& item);

  const int64_t steps_between_, max_bytes_;
  LiveValues values_;
  std::map<GraphId, KnownGraph> known_;  // at the base
  std::deque<Item> items_;
  uint64_t next_item_ = 0;
  uint64_t given_up_to_ = 0;  // of the items before it only those that teach something are there, without messages
  Cut base_;
  std::optional<Cut> pending_;
  int64_t steps_ = 0;                 // since the last cut
  bool ends_step_ = false;            // the last piece has an optimizer step
  std::optional<uint64_t> at_step_;   // bytes that lived at a step where a snapshot was wanted, which waits
  uint64_t may_cut_from_ = 0;         // the number of an item
  bool waits_after_step_ = true;      // until it has proved not to be worth it
  std::set<uint64_t> open_sessions_;  // maybe ended by now
  SnapshotId next_snapshot_ = 1;
  ReadChecks reads_;
  std::atomic<Sequence> pending_last_{0};
  std::atomic<int64_t> bytes_{0}, num_snapshots_{0};
};

}  // namespace dtorch
