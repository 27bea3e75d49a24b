#include "apps/dtorch_app/progress.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "dtorch/dtorch.h"

namespace dtorch::app {
namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

std::string duration(double seconds) {
  const auto total = static_cast<long long>(seconds + 0.5);
  if (total >= 3600) return format("%lldh%02lldm", total / 3600, total / 60 % 60);
  return format("%lldm%02llds", total / 60, total % 60);
}

// Open MPI gives every rank a pseudo-terminal of its own, so what counts under mpirun is where mpirun's output goes.
bool writes_to_terminal() {
  if (::isatty(STDOUT_FILENO) != 1) return false;
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return true;
  const std::string launchers_output = "/proc/" + std::to_string(::getppid()) + "/fd/1";
  const int fd = ::open(launchers_output.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_terminal = ::isatty(fd) == 1;
  ::close(fd);
  return is_terminal;
}

}  // namespace

Progress::Progress(int64_t first_step, int64_t total_steps, int64_t log_every, const std::string& metrics_path,
                   bool append)
    : first_step_(first_step),
      total_steps_(total_steps),
      log_every_(log_every),
      terminal_(writes_to_terminal()),
      metrics_path_(metrics_path) {
  if (metrics_path.empty()) return;
  metrics_.open(metrics_path, append ? std::ios::app : std::ios::trunc);
  if (!metrics_) throw RuntimeFault("cannot write metrics file '" + metrics_path + "'");
}

std::string Progress::bar_line(const StepReport& report) const {
  constexpr int kWidth = 24;
  const int64_t done = report.step + 1;
  const int filled = total_steps_ > 0 ? static_cast<int>(kWidth * done / total_steps_) : kWidth;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double left = elapsed / static_cast<double>(done - first_step_) * static_cast<double>(total_steps_ - done);
  return format("[%s%s] %lld/%lld  loss %.4f  norm %.2f  lr %.2e  %.0f tokens/s  %.0f MiB  %s left",
                std::string(static_cast<size_t>(filled), '#').c_str(),
                std::string(static_cast<size_t>(kWidth - filled), '.').c_str(), static_cast<long long>(done),
                static_cast<long long>(total_steps_), report.loss, report.grad_norm, report.lr, report.tokens_per_s,
                static_cast<double>(report.peak_bytes) / (1 << 20), duration(left).c_str());
}

void Progress::report(const StepReport& report) {
  if (metrics_.is_open()) {
    nlohmann::json line{{"step", report.step},
                        {"loss", report.loss},
                        {"grad_norm", report.grad_norm},
                        {"lr", report.lr},
                        {"tokens_per_s", report.tokens_per_s},
                        {"peak_bytes", report.peak_bytes}};
    if (report.loss_scale) line["loss_scale"] = *report.loss_scale;
    metrics_ << line.dump() << '\n' << std::flush;
    if (!metrics_) throw RuntimeFault("cannot write metrics file '" + metrics_path_ + "' (disk full?)");
  }
  const bool last = report.step + 1 == total_steps_;
  if (terminal_) {
    std::cout << '\r' << bar_line(report) << "\033[K" << std::flush;
    line_open_ = true;
  } else if (report.step % log_every_ == 0 || last) {
    std::cout << bar_line(report) << '\n' << std::flush;
  }
}

void Progress::say(const std::string& line) {
  if (line_open_) std::cout << "\r\033[K";
  line_open_ = false;
  std::cout << line << '\n' << std::flush;
}

void Progress::finish() {
  if (line_open_) std::cout << '\n' << std::flush;
  line_open_ = false;
}

}  // namespace dtorch::app
