// Logging to stderr: `[12:00:00.123] [info] [node 2] message`. Any thread; a call may block on stderr. The header
// includes no logging or formatting library, so that it may stand beside LibTorch's headers (which bring another
// version of fmt).
//
//   log_info("{} devices on {} nodes, {:.1f} GiB each", devices, nodes, gib);
//
// The format is fmt's. A format that doesn't fit its arguments is printed as it is, with the reason; logging never
// throws.
#pragma once
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace dtorch {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError, kOff };

// Messages below the level are dropped; kInfo at start.
void set_log_level(LogLevel level);
// debug, info, warn, error or off; else UserError that lists them.
void set_log_level(const std::string& name);
LogLevel parse_log_level(const std::string& name);
LogLevel log_level();
bool log_enabled(LogLevel level);
// What this process calls itself in every line, such as "node 2"; "" for none.
void set_log_label(const std::string& label);

// A reference to one argument; lives for the call only.
class LogArgument {
 public:
  enum class Kind : uint8_t { kBool, kInt, kUInt, kDouble, kText, kPointer };
  template <class T>
  requires std::is_arithmetic_v<T> LogArgument(T value) {
    if constexpr (std::same_as<T, bool>) {
      kind_ = Kind::kBool;
      unsigned_ = value ? 1 : 0;
    } else if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::kDouble;
      double_ = static_cast<double>(value);
    } else if constexpr (std::is_signed_v<T>) {
      kind_ = Kind::kInt;
      int_ = static_cast<int64_t>(value);
    } else {
      kind_ = Kind::kUInt;
      unsigned_ = static_cast<uint64_t>(value);
    }
  }
  template <class T>
  requires std::convertible_to<const T&, std::string_view> LogArgument(const T& text)
      : kind_(Kind::kText), text_(text) {}
  LogArgument(const void* pointer) : kind_(Kind::kPointer), pointer_(pointer) {}

  Kind kind() const { return kind_; }
  bool as_bool() const { return unsigned_ != 0; }
  int64_t as_int() const { return int_; }
  uint64_t as_uint() const { return unsigned_; }
  double as_double() const { return double_; }
  std::string_view as_text() const { return text_; }
  const void* as_pointer() const { return pointer_; }

 private:
  Kind kind_;
  union {
    int64_t int_;
    uint64_t unsigned_;
    double double_;
    const void* pointer_;
    std::string_view text_;
  };
};

void write_log(LogLevel level, std::string_view format, std::span<const LogArgument> arguments) noexcept;

template <class... Args>
void log_at(LogLevel level, std::string_view format, const Args&... args) {
  if (!log_enabled(level)) return;
  if constexpr (sizeof...(Args) == 0) {
    write_log(level, format, {});
  } else {
    const LogArgument arguments[] = {LogArgument(args)...};
    write_log(level, format, arguments);
  }
}
template <class... Args>
void log_debug(std::string_view format, const Args&... args) {
  log_at(LogLevel::kDebug, format, args...);
}
template <class... Args>
void log_info(std::string_view format, const Args&... args) {
  log_at(LogLevel::kInfo, format, args...);
}
template <class... Args>
void log_warn(std::string_view format, const Args&... args) {
  log_at(LogLevel::kWarn, format, args...);
}
template <class... Args>
void log_error(std::string_view format, const Args&... args) {
  log_at(LogLevel::kError, format, args...);
}

}  // namespace dtorch
