// What `train` shows: on a terminal one line that is redrawn (bar, loss, tokens a second, memory, time left), else a
// plain line now and then; and the metrics file, one JSON object a step.
#pragma once
#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace dtorch::app {

struct StepReport {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0, tokens_per_s = 0;
  int64_t peak_bytes = 0;                 // of the device with most
  std::optional<double> loss_scale = {};  // in float16
};

class Progress {
 public:
  // metrics_path may be empty. Throws RuntimeFault when it can't be written.
  Progress(int64_t first_step, int64_t total_steps, int64_t log_every, const std::string& metrics_path, bool append);
  void report(const StepReport& report);
  // A line of its own, above the bar.
  void say(const std::string& line);
  void finish();

 private:
  std::string bar_line(const StepReport& report) const;
  const int64_t first_step_, total_steps_, log_every_;
  const bool terminal_;
  bool line_open_ = false;
  std::string metrics_path_;
  std::ofstream metrics_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace dtorch::app
