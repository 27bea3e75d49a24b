#include "runtime/controller/watchdog.h"

#include <algorithm>

#include "runtime/base/log.h"
#include "runtime/controller/status_report.h"

namespace dtorch {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr auto kLongestTurn = std::chrono::seconds(1);
constexpr auto kShortestTurn = milliseconds(10);
constexpr auto kShortestAnswerWait = milliseconds(200);  // of a node on a busy machine
constexpr auto kNever = std::chrono::hours(24 * 365);

Watchdog::Clock::duration or_never(Watchdog::Clock::duration limit) {
  return limit > limit.zero() ? limit : Watchdog::Clock::duration(kNever);
}

std::string seconds_text(Watchdog::Clock::duration time) {
  const auto tenths = duration_cast<milliseconds>(time).count() / 100;
  return std::to_string(tenths / 10) + (tenths < 100 ? "." + std::to_string(tenths % 10) : "") + " s";
}

}  // namespace

Watchdog::Watchdog(Ledger& ledger, Inspection& inspection, Limits limits)
    : ledger_(ledger),
      inspection_(inspection),
      limits_{or_never(limits.report), or_never(limits.deadline)},
      turn_(std::clamp<Clock::duration>(std::min(limits_.report, limits_.deadline) / 8, kShortestTurn, kLongestTurn)),
      answer_wait_(std::clamp<Clock::duration>(std::min(limits_.report, limits_.deadline) / 2, kShortestAnswerWait,
                                               kLongestTurn)),
      next_report_(limits_.report),
      thread_([this] { loop(); }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::loop() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, turn_, [&] { return done_; })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void Watchdog::look() {
  const std::vector<Ledger::Debt> debts = ledger_.debts(Clock::now());
  const auto is_quiet = [&](const Ledger::Debt& debt) { return debt.quiet >= 2 * turn_; };
  if (std::none_of(debts.begin(), debts.end(), is_quiet)) {
    seen_.clear();
    next_report_ = limits_.report;
    return;
  }
  const Inspection::Answers answers = inspection_.ask(Aspect::kStatus, answer_wait_);
  const Clock::duration quiet = held_up(debts, answers);
  if (quiet >= limits_.deadline) {
    ledger_.fail_all(std::make_exception_ptr(DeadlinePassed("nothing has finished for " + seconds_text(quiet) + ":\n" +
                                                            describe_status(answers, ledger_.status_names()))));
  } else if (quiet >= next_report_) {
    report(quiet, answers);
  } else if (quiet < limits_.report) {
    next_report_ = limits_.report;
  }
}

Watchdog::Clock::duration Watchdog::held_up(const std::vector<Ledger::Debt>& debts,
                                            const Inspection::Answers& answers) {
  const auto now = Clock::now();
  Clock::duration longest_run{0}, shortest_wait{kNever}, silent{0};
  bool all_wait = true;
  for (const Ledger::Debt& debt : debts) {
    const std::optional<Answer>& answer = answers.at(static_cast<size_t>(debt.node));
    if (!answer) {
      silent = std::max(silent, debt.quiet);
      continue;
    }
    for (const DeviceStatus& status : answer->devices) {
      // It hasn't acknowledged anything since, so that an operator it is seen in for the first time may be as old.
      const auto [at, is_new] = seen_.try_emplace(status.device, Seen{status, now - debt.quiet});
      if (!is_new && at->second.status != status) at->second = {status, now};
      const Clock::duration unchanged = std::min(now - at->second.since, debt.quiet);
      if (status.activity == Activity::kRuns && !ledger_.describe(status.at).empty()) {
        all_wait = false;
        longest_run = std::max(longest_run, unchanged);
      } else {
        shortest_wait = std::min(shortest_wait, unchanged);
      }
    }
    if (answer->devices.empty()) shortest_wait = std::min(shortest_wait, debt.quiet);
  }
  const Clock::duration quiet = std::max(longest_run, silent);
  return all_wait && shortest_wait < kNever ? std::max(quiet, shortest_wait) : quiet;
}

void Watchdog::report(Clock::duration quiet, const Inspection::Answers& answers) {
  log_warn("nothing has finished for {}:\n{}", seconds_text(quiet), describe_status(answers, ledger_.status_names()));
  next_report_ = 2 * next_report_;
}

}  // namespace dtorch
