#include "runtime/launch/metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace dtorch {
namespace {

class Writer {
 public:
  void family(const char* name, const char* type, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void sample(const char* name, int64_t value) { fmt::format_to(std::back_inserter(text_), "{} {}\n", name, value); }
  void counter(const char* name, const char* help, int64_t value) {
    family(name, "counter", help);
    sample(name, value);
  }
  void gauge(const char* name, const char* help, int64_t value) {
    family(name, "gauge", help);
    sample(name, value);
  }
  void by_device(const char* name, const char* help, const std::vector<int64_t>& values) {
    family(name, "gauge", help);
    for (size_t device = 0; device < values.size(); ++device)
      fmt::format_to(std::back_inserter(text_), "{}{{device=\"{}\"}} {}\n", name, device, values[device]);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string metrics_text(MainController& controller) {
  ClientStats stats;
  static_cast<RuntimeStats&>(stats) = controller.stats();
  static_cast<TemplateStats&>(stats) = controller.template_stats();
  controller.add_device_memory(stats);
  Writer out;
  out.counter("dtorch_operators_total", "Operators that were sent.", stats.operators);
  out.counter("dtorch_template_operators_total", "Operators that were sent as part of a replay.",
              stats.template_operators);
  out.counter("dtorch_pieces_total", "Pieces and replays that were sent.", stats.pieces);
  out.counter("dtorch_reads_total", "Values that were read.", stats.reads);
  out.counter("dtorch_kernels_total", "Kernels that devices have run.", stats.kernels_run);
  out.counter("dtorch_control_messages_total", "Messages of rank 0 to nodes.", stats.control_messages);
  out.counter("dtorch_control_bytes_total", "Bytes of these.", stats.control_bytes);
  out.counter("dtorch_data_messages_total", "Messages between nodes.", stats.data_messages);
  out.counter("dtorch_data_bytes_total", "Bytes of these.", stats.data_bytes);
  out.by_device("dtorch_device_memory_bytes", "Memory that a device's values take.", stats.bytes_in_use_per_device);
  out.by_device("dtorch_device_memory_peak_bytes", "Most that it was.", stats.peak_bytes_per_device);
  const RecoveryStats recovery = controller.recovery_stats();
  out.counter("dtorch_recoveries_total", "Times that the job went on without a lost node.", recovery.recoveries);
  out.counter("dtorch_snapshots_total", "Snapshots that could be gone back to.", recovery.snapshots);
  out.gauge("dtorch_snapshot_bytes", "Values that devices keep for the last snapshot.", recovery.snapshot_bytes);
  out.gauge("dtorch_snapshot_copy_bytes", "Copies of values that nodes keep for others.", recovery.copy_bytes);
  out.gauge("dtorch_recovery_log_bytes", "Messages and host data since the last snapshot.", recovery.log_bytes);
  return out.take();
}

}  // namespace dtorch
