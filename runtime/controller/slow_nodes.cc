#include "runtime/controller/slow_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/log.h"

namespace dtorch {
namespace {

constexpr auto kAnswerWait = std::chrono::seconds(1);
// Of all samples: shares that differ by less say nothing.
constexpr double kLeastDifference = 0.15;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

SlowNodes::SlowNodes(View view, std::vector<std::string> names, Settings settings)
    : view_(std::move(view)), names_(std::move(names)), settings_(settings), shares_(names_.size()), thread_([this] {
        loop();
      }) {}

SlowNodes::~SlowNodes() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::string SlowNodes::describe() const {
  std::lock_guard lock(mutex_);
  return verdict_;
}

std::string SlowNodes::status_line() const {
  const std::string verdict = describe();
  return verdict.empty() ? "" : "\n  slow: " + verdict;
}

void SlowNodes::loop() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, settings_.every, [&] { return done_; })) {
    lock.unlock();
    sample();
    if (num_samples_ == settings_.samples) {
      tell(judge());
      shares_.assign(names_.size(), {});
      num_samples_ = 0;
    }
    lock.lock();
  }
}

// Of moments at which all nodes answer and one of them works: what is idle says nothing.
void SlowNodes::sample() {
  if (!view_.is_busy()) return;
  const Inspection::Answers answers = view_.ask();
  std::vector<std::pair<size_t, std::string>> running;  // node, operator; one a device
  for (size_t node = 0; node < answers.size(); ++node) {
    if (!answers[node]) continue;
    for (const DeviceStatus& device : answers[node]->devices) {
      shares_[node].has_devices = true;
      if (device.activity != Activity::kRuns) continue;
      // Else it was the last, and the device is about to fall asleep.
      if (view_.is_under_way(device.at)) running.emplace_back(node, suspects_ ? view_.operator_at(device.at) : "");
    }
  }
  if (running.empty()) return;
  ++num_samples_;
  for (auto& [node, name] : running) {
    const double part = 1 / static_cast<double>(answers[node]->devices.size());
    shares_[node].busy += part;
    if (!name.empty()) shares_[node].by_operator[name] += part;
  }
}

std::string SlowNodes::judge() const {
  const auto peers_of = [&](size_t node, auto value) {
    std::vector<double> values;
    for (size_t peer = 0; peer < shares_.size(); ++peer) {
      if (peer != node && shares_[peer].has_devices) values.push_back(value(shares_[peer]));
    }
    return values.empty() ? std::nan("") : median(values);
  };
  const auto all = static_cast<double>(num_samples_);
  std::string verdict;
  double slowest = settings_.factor;
  for (size_t node = 0; node < shares_.size(); ++node) {
    const double peers = peers_of(node, [](const Share& share) { return share.busy; });
    const double factor = shares_[node].busy / std::max(peers, 1.0);  // a share of less than a sample isn't known
    if (std::isnan(peers) || factor < slowest || shares_[node].busy - peers < kLeastDifference * all) continue;
    slowest = factor;
    std::string most;
    double difference = 0;
    for (const auto& [name, busy] : shares_[node].by_operator) {
      const double more = busy - peers_of(node, [&](const Share& share) {
                            const auto at = share.by_operator.find(name);
                            return at == share.by_operator.end() ? 0.0 : at->second;
                          });
      if (more > difference) most = name;
      difference = std::max(difference, more);
    }
    verdict = fmt::format("{} takes {:.1f} times its peers' time{}", names_[node], factor,
                          most.empty() ? "" : ", most of it in " + most);
  }
  return verdict;
}

void SlowNodes::tell(std::string verdict) {
  if (!verdict.empty() && !std::exchange(suspects_, true)) return;
  suspects_ = !verdict.empty();
  const std::lock_guard lock(mutex_);
  if (!verdict.empty() && verdict_.empty()) log_warn("slow node: {}", verdict);
  if (verdict.empty() && !verdict_.empty()) log_info("no node is slower than its peers any more");
  verdict_ = std::move(verdict);
}

SlowNodes::View view_for_slow_nodes(const Ledger& ledger, Inspection& inspection) {
  return {.is_busy = [&ledger] { return ledger.is_busy(); },
          .ask = [&inspection] { return inspection.ask(Aspect::kStatus, kAnswerWait); },
          .is_under_way = [&ledger](const Place& place) { return ledger.is_under_way(place); },
          .operator_at = [&ledger](const Place& place) { return ledger.name_of(place); }};
}

}  // namespace dtorch
