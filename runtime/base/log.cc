#include "runtime/base/log.h"

#include <atomic>
#include <cstdio>
#include <iterator>
#include <memory>
#include <vector>

#include <fmt/args.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "runtime/base/error.h"
#include "runtime/base/nearest_word.h"

namespace dtorch {

namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

const char* const kLevelNames[] = {"debug", "info", "warn", "error", "off"};

std::string pattern_of(const std::string& label) {
  std::string pattern = "[%H:%M:%S.%e] [%^%l%$] ";
  if (label.empty()) return pattern + "%v";
  pattern += '[';
  for (char c : label) pattern += c == '%' ? "%%" : std::string(1, c);
  return pattern + "] %v";
}

// Never destroyed: threads may log while the process ends.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("dtorch", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_level(spdlog::level::trace);  // the level is checked here, before arguments are formatted
    made->flush_on(spdlog::level::trace);
    made->set_pattern(pattern_of(""));
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

std::string formatted(std::string_view format, std::span<const LogArgument> arguments) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const LogArgument& argument : arguments) {
    switch (argument.kind()) {
      case LogArgument::Kind::kBool:
        store.push_back(argument.as_bool());
        break;
      case LogArgument::Kind::kInt:
        store.push_back(argument.as_int());
        break;
      case LogArgument::Kind::kUInt:
        store.push_back(argument.as_uint());
        break;
      case LogArgument::Kind::kDouble:
        store.push_back(argument.as_double());
        break;
      case LogArgument::Kind::kText:
        store.push_back(argument.as_text());
        break;
      case LogArgument::Kind::kPointer:
        store.push_back(argument.as_pointer());
        break;
    }
  }
  try {
    return fmt::vformat(format, store);
  } catch (const fmt::format_error& error) {
    return fmt::format("{} (log format: {})", format, error.what());
  }
}

}  // namespace

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

LogLevel parse_log_level(const std::string& name) {
  for (size_t i = 0; i < std::size(kLevelNames); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  const std::vector<std::string> names(std::begin(kLevelNames), std::end(kLevelNames));
  const std::string near = nearest_word(name, names);
  const std::string hint = near.empty() ? "." : "; did you mean '" + near + "'?";
  throw UserError("log level '" + name + "' is unknown" + hint + " Allowed: debug, info, warn, error, off");
}

void set_log_level(const std::string& name) { set_log_level(parse_log_level(name)); }

LogLevel log_level() { return g_level.load(std::memory_order_relaxed); }

bool log_enabled(LogLevel level) { return level >= log_level() && level != LogLevel::kOff; }

void set_log_label(const std::string& label) { logger().set_pattern(pattern_of(label)); }

void write_log(LogLevel level, std::string_view format, std::span<const LogArgument> arguments) noexcept {
  try {
    // Without arguments the text is taken as it is, braces and all.
    logger().log(spdlog_level(level),
                 spdlog::string_view_t(arguments.empty() ? std::string(format) : formatted(format, arguments)));
  } catch (...) {  // out of memory
    std::fwrite(format.data(), 1, format.size(), stderr);
    std::fputc('\n', stderr);
  }
}

}  // namespace dtorch
