#include "runtime/client/sight.h"

#include <algorithm>

#include <fmt/format.h>

namespace dtorch {
namespace {

std::string communication_table(const std::vector<CommunicationEntry>& entries) {
  if (entries.empty()) return "no data moved between devices\n";
  std::string text = fmt::format("{:<28} {:<16} {:>9} {:>9}\n", "moved between devices", "over", "calls", "MiB");
  for (const CommunicationEntry& entry : entries) {
    text += fmt::format("{:<28} {:<16} {:>9} {:>9.1f}\n", entry.kind, entry.axes, entry.calls,
                        static_cast<double>(entry.bytes) / (1 << 20));
  }
  return text;
}

}  // namespace

std::string profile_table(const Profile& profile) {
  double total_s = 0;
  size_t width = 8;
  for (const ProfileEntry& entry : profile.operators) {
    total_s += entry.run_s + entry.wait_s;
    width = std::max(width, entry.name.size());
  }
  std::string text = fmt::format("{:<{}} {:>9} {:>10} {:>10} {:>10} {:>6} {:>9}\n", "operator", width, "calls",
                                 "run ms", "mean us", "wait ms", "share", "MiB");
  for (const ProfileEntry& entry : profile.operators) {
    const double spent_s = entry.run_s + entry.wait_s;
    text += fmt::format("{:<{}} {:>9} {:>10.1f} {:>10.1f} {:>10.1f} {:>5.1f}% {:>9.1f}\n", entry.name, width,
                        entry.calls, entry.run_s * 1e3,
                        entry.run_s * 1e6 / static_cast<double>(std::max<int64_t>(entry.calls, 1)), entry.wait_s * 1e3,
                        total_s > 0 ? 100 * spent_s / total_s : 0, static_cast<double>(entry.bytes) / (1 << 20));
  }
  double busy = 0;
  for (double share : profile.busy_share_per_device) busy += share;
  const auto devices = static_cast<double>(std::max<size_t>(profile.busy_share_per_device.size(), 1));
  return text + communication_table(profile.communication) +
         fmt::format("{:.3f} s; devices were in kernels {:.1f} % of it\n", profile.window_s, 100 * busy / devices);
}

}  // namespace dtorch
