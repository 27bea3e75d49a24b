// EagerGraphExecutor: the thread that turns one Graph's stream of records into work for the nodes. It cuts incremental
// subgraphs, rewrites them (passes) and hands them to the sequencer: as pieces, or as instances of templates where the
// stream repeats itself. It holds no tensor data (but feeds on their way) and never loops over devices.
//
// A subgraph ends at a read, a flush (optimizers end their steps with one), the head of a loop (loop_finder.h), or
// after kMaxSubgraph records: a function of the stream only, never of time (D12). Sending is separate: a subgraph or
// instance under way is sent in parts when the nodes would idle (little in flight and nothing left in the ring).
//
// A subgraph that comes for the second time becomes a template (for the first time when all its operators are known and
// that has proved right), a loop's stretch when it is found. From then on its
// records are compared with those of the template that followed the last one, and nothing is drafted while they agree.
// At the first that differs, another template with the same start goes on, or what wasn't sent goes loose until the
// subgraph's end.
//
// After a failure of everything the thread stays to answer reads with that failure until the Graph is closed.
#pragma once
#include <atomic>
#include <thread>

#include "runtime/base/cpu_time.h"
#include "runtime/base/trace_span.h"
#include "runtime/client/record_codec.h"
#include "runtime/controller/loop_finder.h"
#include "runtime/controller/passes/pass.h"
#include "runtime/controller/sequencer.h"
#include "runtime/controller/template_instance.h"
#include "runtime/controller/template_store.h"

namespace dtorch {

class EagerGraphExecutor {
 public:
  static constexpr size_t kMaxSubgraph = 8192;  // records
  static constexpr int64_t kMaxPiece = 512;     // operators
  static constexpr int32_t kPiecesAhead = 2;    // in flight, so that the nodes don't idle

  // Starts the thread. templates: whether repetitions are looked for. spans: its log for a timeline, or null.
  EagerGraphExecutor(std::shared_ptr<GraphLink> link, Ledger& ledger, Sequencer& sequencer, Credits& credits,
                     PassList passes, bool templates, SpanLog* spans = nullptr);
  // Ends the thread, at the latest when the ring is empty.
  ~EagerGraphExecutor();
  // Waits until the Graph's kClose record was consumed and all its work is settled, or everything has failed and the
  // ring is empty.
  void close();
  GraphStream& stream() { return stream_; }
  double cpu_s() {
    return thread_.joinable() ? thread_cpu_s(thread_.native_handle()) : 0;
  }  // that its thread has taken

 private:
  void loop(SpanLog* spans);
  void take_records();
  bool take_matching();
  void take_record();
  void take_any_record(const RecordShape& shape);
  void take_payload(RecordPayload& payload);
  void wait_for_records();
  bool idles() const { return stream_.pieces_in_flight.load() < kPiecesAhead; }
  void answer_with_failure();

  // --- loose
  void take_loose(const RecordShape& shape, bool has_feed);
  void draft_record(const RecordStretch::Record& record);
  void draft_releases(std::span<const OperandId> slots);
  bool draft_is_full() const;
  void end_subgraph();
  void clear_log();
  void send_piece();
  void finish_draft();  // passes, and what follows from what is left

  // --- templates
  bool take_replayed(const RecordShape& shape);
  void look_at_size();
  void after_match(bool boundary);
  void send_replay(uint32_t end);
  void break_instance();
  bool worth_sending();
  void end_loop(size_t stretch);
  TemplatePtr subgraph_as_template();
  TemplatePtr keep(NamedStretch stretch);
  std::vector<const OperatorSpec*> new_specs_of(const LogicalGraph& graph);
  void follow(const TemplatePtr& subgraph);

  GraphStream stream_;
  Ledger& ledger_;
  Sequencer& sequencer_;
  PassList passes_;
  const bool templates_;
  const int64_t max_piece_operators_, max_replay_operators_;
  const int64_t max_piece_bytes_;
  RecordReader reader_;
  PieceDraft draft_;   // the piece under way; of an instance what travels beside it
  RecordStretch log_;  // the loose subgraph under way
  bool log_has_new_specs_ = false;
  LoopFinder loops_;
  RecordNamer namer_;
  TemplateStore store_;
  TemplateInstance instance_;
  bool instance_in_parts_ = false;
  TemplatePtr previous_;   // what the last subgraph was; null: no template
  TemplatePtr predicted_;  // for the next one
  bool closed_ = false;    // kClose was consumed
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace dtorch
