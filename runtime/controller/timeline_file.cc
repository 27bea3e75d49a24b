#include "runtime/controller/timeline_file.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <tuple>

namespace dtorch {
namespace {

using nlohmann::json;

constexpr int64_t kFirstLane = 1000;            // threads of transfers, behind the devices'
constexpr int64_t kThreadsOfStreams = 100'000;  // a device's second compute stream is so far behind its first

struct Slice {
  int64_t process = 0, thread = 0;
  int64_t begin_ns = 0, end_ns = 0;
};

class Writer {
 public:
  Writer(std::ostream& out, const TimelineParts& parts) : out_(out), parts_(parts), first_ns_(first_event()) {}

  void write() {
    out_ << R"({"displayTimeUnit":"ns","traceEvents":[)";
    write_host();
    int64_t dropped = 0, unanswered = 0;
    for (size_t n = 0; n < parts_.nodes.size(); ++n) {
      const auto node = static_cast<int32_t>(n);
      name("process_name", node + 1, 0, parts_.node_names.at(n));
      if (!parts_.nodes[n]) {
        ++unanswered;
        continue;
      }
      for (const TraceTrack& track : parts_.nodes[n]->tracks) {
        dropped += track.dropped;
        if (track.device >= 0) write_device(node, track);
        if (track.device < 0) write_transfers(node, track);
      }
    }
    for (const HostTrack& track : parts_.host) dropped += track.log.events().dropped();
    out_ << "],\n\"otherData\":"
         << json{{"dropped_events", dropped},
                 {"nodes_without_answer", unanswered},
                 {"clock_error_ns", parts_.clocks.error_ns()}}
                .dump()
         << "}\n";
  }

 private:
  int64_t first_event() const {
    int64_t first = std::numeric_limits<int64_t>::max();
    for (const HostTrack& track : parts_.host) {
      // An outer span is noted after those within it.
      const EventLog<SpanEvent>& events = track.log.events();
      for (size_t i = 0; i < events.size(); ++i) first = std::min(first, events[i].begin_ns);
    }
    for (const std::optional<Answer>& node : parts_.nodes) {
      if (!node) continue;
      for (const TraceTrack& track : node->tracks) {
        for (const TraceEvent& event : track.events)
          first = std::min(first, parts_.clocks.to_rank_0(node->node, event.begin_ns));
      }
    }
    return first == std::numeric_limits<int64_t>::max() ? 0 : first;
  }

  double us(int64_t ns) const { return static_cast<double>(ns - first_ns_) / 1000; }

  void event(const json& fields) {
    out_ << (first_ ? "\n" : ",\n") << fields.dump(-1, ' ', false, json::error_handler_t::replace);
    first_ = false;
  }
  void name(const char* what, int64_t process, int64_t thread, const std::string& name) {
    event({{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}});
  }
  void slice(const Slice& at, const std::string& name, const char* category, json arguments) {
    event({{"ph", "X"},
           {"name", name},
           {"cat", category},
           {"pid", at.process},
           {"tid", at.thread},
           {"ts", us(at.begin_ns)},
           {"dur", static_cast<double>(at.end_ns - at.begin_ns) / 1000},
           {"args", std::move(arguments)}});
  }

  void write_host() {
    name("process_name", 0, 0, "rank 0: client and controller");
    int64_t thread = 0;
    for (const HostTrack& track : parts_.host) {
      name("thread_name", 0, ++thread, track.name);
      const EventLog<SpanEvent>& events = track.log.events();
      for (size_t i = 0; i < events.size(); ++i) {
        const SpanEvent& span = events[i];
        json arguments = json::object();
        if (span.number >= 0) arguments["number"] = span.number;
        if (span.where.line != 0) arguments["line"] = span.where.str();
        slice({0, thread, span.begin_ns, span.end_ns}, span.name, "host", std::move(arguments));
      }
    }
  }

  json arguments_of(const TraceEvent& event, const TraceBook::Named& named) const {
    json arguments{{"place", std::to_string(event.sequence) + "." + std::to_string(event.op_index)}};
    if (!named.values.empty()) arguments["values"] = named.values;
    if (named.where.line != 0) arguments["line"] = named.where.str();
    return arguments;
  }
  Slice on_rank_0(int32_t node, int64_t thread, const TraceEvent& event) const {
    return {node + 1, thread, parts_.clocks.to_rank_0(node, event.begin_ns),
            parts_.clocks.to_rank_0(node, event.end_ns)};
  }

  void write_device(int32_t node, const TraceTrack& track) {
    const int64_t stream = streams_of_[{node, track.device}]++;
    const int64_t thread = track.device + 1 + stream * kThreadsOfStreams;
    name("thread_name", node + 1, thread,
         "device " + std::to_string(track.device) + (stream == 0 ? "" : ", stream " + std::to_string(stream)));
    for (const TraceEvent& event : track.events) {
      const TraceBook::Named named = parts_.book.find({event.sequence, event.op_index});
      const bool waits = event.kind == TraceKind::kWait;
      slice(on_rank_0(node, thread, event), waits ? std::string("wait for ") + named.name : named.name,
            waits ? "wait" : "operator", arguments_of(event, named));
    }
  }

  // Stages overlap, so that each goes to the first thread that is free.
  void write_transfers(int32_t node, const TraceTrack& track) {
    std::vector<const TraceEvent*> stages;
    for (const TraceEvent& event : track.events) {
      if (event.kind == TraceKind::kStage) stages.push_back(&event);
    }
    std::stable_sort(stages.begin(), stages.end(),
                     [](const TraceEvent* a, const TraceEvent* b) { return a->begin_ns < b->begin_ns; });
    std::vector<int64_t> busy_until;  // by lane
    std::map<std::pair<uint64_t, uint32_t>, int64_t> lane_of;
    for (const TraceEvent* stage : stages) {
      const auto free =
          std::find_if(busy_until.begin(), busy_until.end(), [&](int64_t end_ns) { return end_ns <= stage->begin_ns; });
      const int64_t lane = kFirstLane + (free - busy_until.begin());
      if (free == busy_until.end()) {
        name("thread_name", node + 1, lane, "transfers " + std::to_string(busy_until.size()));
        busy_until.push_back(stage->end_ns);
      } else {
        *free = stage->end_ns;
      }
      lane_of[{stage->transfer, stage->stage}] = lane;
      const TraceBook::Named named = parts_.book.find({stage->sequence, stage->op_index});
      json arguments = arguments_of(*stage, named);
      arguments["transfer"] = stage->transfer;
      arguments["stage"] = stage->stage;
      arguments["bytes_sent"] = stage->bytes;
      slice(on_rank_0(node, lane, *stage), named.name, "transfer", std::move(arguments));
    }
    for (const TraceEvent& event : track.events) {
      if (event.kind == TraceKind::kStage) continue;
      const auto lane = lane_of.find({event.transfer, event.stage});
      if (lane != lane_of.end()) write_message(node, lane->second, event);
    }
  }

  void write_message(int32_t node, int64_t lane, const TraceEvent& event) {
    const bool sent = event.kind == TraceKind::kSend;
    const int32_t from = sent ? node : event.peer, to = sent ? event.peer : node;
    json fields{{"ph", sent ? "s" : "f"},
                {"name", "message"},
                {"cat", "message"},
                {"id", std::to_string(event.transfer) + "." + std::to_string(event.stage) + "." + std::to_string(from) +
                           "." + std::to_string(to)},
                {"pid", node + 1},
                {"tid", lane},
                {"ts", us(parts_.clocks.to_rank_0(node, event.begin_ns))},
                {"args", {{"bytes", event.bytes}, {"from", from}, {"to", to}}}};
    if (!sent) fields["bp"] = "e";
    this->event(fields);
  }

  std::ostream& out_;
  const TimelineParts& parts_;
  const int64_t first_ns_;
  bool first_ = true;
  std::map<std::pair<int32_t, int64_t>, int64_t> streams_of_;  // tracks of a node's device that are written
};

}  // namespace

void write_timeline(std::ostream& out, const TimelineParts& parts) { Writer(out, parts).write(); }

}  // namespace dtorch
