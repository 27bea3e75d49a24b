#include "runtime/controller/timeline.h"

#include <utility>

namespace dtorch {

namespace {

constexpr auto kStartPatience = std::chrono::seconds(10);

}  // namespace

Timeline::Timeline(std::string path, int32_t num_nodes)
    : path_(std::move(path)), file_(path_, std::ios::trunc), clocks_(num_nodes) {
  if (!file_) throw UserError("--trace: can't write to '" + path_ + "'");
}

SpanLog& Timeline::add_track(const std::string& name) {
  std::lock_guard lock(mutex_);
  HostTrack& track = tracks_.emplace_back();
  track.name = name;
  return track.log;
}

void Timeline::start(Inspection& inspection) {
  inspection.ask(Aspect::kStartTrace, kStartPatience);
  clocks_.measure(inspection);
}

void Timeline::finish(Inspection& inspection, const std::vector<std::string>& node_names,
                      std::chrono::nanoseconds patience) {
  const Inspection::Answers answers = inspection.ask(Aspect::kTrace, patience);
  clocks_.measure(inspection);
  std::lock_guard lock(mutex_);
  write_timeline(file_, {tracks_, answers, node_names, clocks_, book_});
  file_.close();
  if (!file_) throw RuntimeFault("--trace: can't write to '" + path_ + "'; is the disk full?");
}

}  // namespace dtorch
