#include "runtime/controller/status_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace dtorch {
namespace {

template <class T>
std::string listed(const std::vector<T>& numbers) {
  constexpr size_t kMost = 16;
  std::string text;
  for (size_t i = 0; i < std::min(numbers.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  if (numbers.size() > kMost) text += " and " + std::to_string(numbers.size() - kMost) + " more";
  return text;
}

template <class T>
std::string counted(const char* noun, const std::vector<T>& numbers) {
  return std::string(noun) + (numbers.size() == 1 ? " " : "s ") + listed(numbers);
}

// Of the transfers that nobody waits for.
constexpr size_t kMostOthers = 8;

class StatusText {
 public:
  StatusText(const Inspection::Answers& answers, const StatusNames& names) : names_(names) {
    for (size_t n = 0; n < answers.size(); ++n) {
      const auto node = static_cast<int32_t>(n);
      if (answers[n]) {
        take_devices(node, *answers[n]);
        take_transfers(node, *answers[n]);
      } else {
        const std::string owed = names_.owed_by(node);
        silent_.push_back("node " + std::to_string(node) + " doesn't answer" + (owed.empty() ? "" : "; " + owed));
      }
    }
  }

  std::string str() const {
    std::vector<std::string> lines = running_;
    lines.insert(lines.end(), silent_.begin(), silent_.end());
    for (const auto& [place, devices] : waiting_) {
      lines.push_back(counted("device", devices) + (devices.size() == 1 ? " waits for " : " wait for ") +
                      name_of(place));
    }
    size_t num_others = 0;
    for (const auto& [place, transfers] : transfers_) {
      // One that nobody waits for yet isn't what holds up the job, unless nothing else is to be seen; and then the
      // first of them tell.
      const bool is_awaited = waiting_.contains(place);
      if (!is_awaited && !running_.empty()) continue;
      for (const std::string& line : transfers) {
        if (is_awaited || ++num_others <= kMostOthers) lines.push_back(line);
      }
    }
    if (num_others > kMostOthers)
      lines.push_back("and " + std::to_string(num_others - kMostOthers) + " more transfers that nobody waits for yet");
    if (!idle_.empty()) lines.push_back(counted("node", idle_) + (idle_.size() == 1 ? " is idle" : " are idle"));
    std::string text;
    for (const std::string& line : lines) text += (text.empty() ? "  " : "\n  ") + line;
    return text;
  }

 private:
  std::string name_of(const Place& place) const {
    const std::string name = names_.operator_at(place);
    return name.empty() ? "an operator that has finished" : name;
  }

  void take_devices(int32_t node, const Answer& answer) {
    bool idle = answer.num_transfers == 0;
    for (const DeviceStatus& device : answer.devices) {
      if (device.activity == Activity::kIdle) continue;
      if (device.activity == Activity::kWaits) {
        waiting_[device.waits_for].push_back(device.device);
        idle = false;
        continue;
      }
      // Not under way: it was the last, and the stream is about to fall asleep.
      const std::string name = names_.operator_at(device.at);
      if (name.empty()) continue;
      idle = false;
      running_.push_back("node " + std::to_string(node) + " device " + std::to_string(device.device) + " is still in " +
                         name);
    }
    if (idle) idle_.push_back(node);
  }

  void take_transfers(int32_t node, const Answer& answer) {
    for (const TransferStatus& transfer : answer.transfers) {
      std::string text = "node " + std::to_string(node) + ": transfer " + std::to_string(transfer.number) + ", " +
                         name_of(transfer.place) + ", ";
      switch (transfer.phase) {
        case TransferPhase::kSources:
          text += "waits for the value of " + counted("device", transfer.waits_for);
          break;
        case TransferPhase::kReceives:
          text += "waits for a message of " + counted("node", transfer.waits_for);
          break;
        case TransferPhase::kSends:
          text += "has a message that isn't taken by " + counted("node", transfer.waits_for);
          break;
      }
      transfers_[transfer.place].push_back(std::move(text));
    }
  }

  const StatusNames& names_;
  std::vector<std::string> running_, silent_;
  std::map<Place, std::vector<int64_t>> waiting_;
  std::map<Place, std::vector<std::string>> transfers_;
  std::vector<int32_t> idle_;
};

}  // namespace

std::string describe_status(const Inspection::Answers& answers, const StatusNames& names) {
  return StatusText(answers, names).str();
}

}  // namespace dtorch
