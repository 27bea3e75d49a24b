#include "runtime/launch/result_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/controller/watchdog.h"

namespace dtorch {

namespace {

namespace fs = std::filesystem;

// Written first, then renamed.
std::string partial_of(const std::string& path) { return path + ".partial"; }

// Removing or renaming would take a device or a socket away from everybody.
bool is_something_else(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_regular_file(status);
}

}  // namespace

JobResult result_of_code(int code) {
  switch (code) {
    case kDone:
      return {code, "done", ""};
    case kPreempted:
      return {code, "preempted", "it was asked to stop"};
    case kPeerLost:
      return {code, "peer lost", ""};
    case kDeadlinePassed:
      return {code, "deadline passed", ""};
    default:
      return {code, "failed", "the program returned " + std::to_string(code)};
  }
}

JobResult result_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const DeadlinePassed& error) {
    return {kDeadlinePassed, "deadline passed", error.what()};
  } catch (const PeerLost& error) {
    return {kPeerLost, "peer lost", error.what()};
  } catch (const UserError& error) {
    return {kFailed, "refused", error.what()};
  } catch (const std::exception& error) {
    return {kFailed, "failed", error.what()};
  } catch (...) {
    return {kFailed, "failed", "an exception that isn't a std::exception"};
  }
}

std::string take_result_option(std::vector<std::string>& words) {
  const std::string name = "--result";
  const auto end = std::find(words.begin(), words.end(), "--");
  const auto at = std::find_if(words.begin(), end,
                               [&](const std::string& word) { return word == name || word.starts_with(name + "="); });
  if (at == end) return "";
  if (*at != name) {
    std::string file = at->substr(name.size() + 1);
    words.erase(at);
    return file;
  }
  if (at + 1 == end) return "";
  std::string file = at[1];
  words.erase(at, at + 2);
  return file;
}

void clear_result(const std::string& path) {
  if (path.empty()) return;
  if (is_something_else(path)) throw UserError("--result: '" + path + "' isn't a file");
  // Tried under another name: somebody who waits for the file must not see an empty one.
  const std::string partial = partial_of(path);
  std::ofstream file(partial, std::ios::trunc);
  if (!file) throw UserError("--result: cannot write '" + path + "': " + std::strerror(errno));
  file.close();
  for (const std::string& name : {partial, path}) {
    if (::unlink(name.c_str()) != 0 && errno != ENOENT)
      throw UserError("--result: cannot remove '" + name + "': " + std::strerror(errno));
  }
}

void write_result(const std::string& path, const JobResult& result) {
  if (path.empty()) return;
  if (is_something_else(path)) return log_warn("cannot write the result to '{}', which isn't a file", path);
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "unknown");
  const nlohmann::json json{
      {"code", result.code}, {"status", result.status}, {"reason", result.reason}, {"host", host}};
  const std::string partial = partial_of(path);
  std::ofstream file(partial, std::ios::trunc);
  // A reason may quote bytes of a file that aren't UTF-8.
  file << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  file.close();
  if (!file || std::rename(partial.c_str(), path.c_str()) != 0)
    log_warn("cannot write the result file '{}': {}", path, std::strerror(errno));
}

}  // namespace dtorch
