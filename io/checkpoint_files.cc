#include "io/checkpoint_files.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "runtime/base/log.h"

namespace dtorch::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kOldPrefix = ".old-";
constexpr const char* kTemporaryPrefix = ".tmp-step-";

}  // namespace

std::string directory_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return "step-" + digits;
}

fs::path temporary_of(const fs::path& directory, int64_t step) { return directory / (".tmp-" + directory_name(step)); }
std::string part_name(int64_t node) { return "part-" + std::to_string(node) + ".h5"; }
std::string box_name(const std::string& tensor, int64_t index) { return tensor + "@" + std::to_string(index); }

FileFacts facts_of(const fs::path& file) { return {static_cast<int64_t>(fs::file_size(file)), io::hash_file(file)}; }

std::string to_text(const Manifest& manifest) {
  nlohmann::json json = {{"format", manifest.format},
                         {"step", manifest.step},
                         {"random_seed", manifest.random.seed},
                         {"random_next_call", manifest.random.next_call},
                         {"optimizer_steps", manifest.optimizer_steps},
                         {"config", manifest.config}};
  for (const auto& [name, facts] : manifest.files) {
    json["files"][name] = {{"bytes", facts.bytes}, {"xxh3_128", facts.hash}};
  }
  return json.dump(1) + "\n";
}

Manifest read_complete(const fs::path& path) {
  const nlohmann::json json = nlohmann::json::parse(io::read_file(path / kManifest));
  Manifest manifest;
  manifest.format = json.at("format").get<int64_t>();
  if (manifest.format < 1 || manifest.format > kFormat) throw RuntimeFault("unknown format");
  for (const auto& [name, facts] : json.at("files").items()) {
    if (name.find('/') != std::string::npos || name == "..") throw RuntimeFault("a file name with '/'");
    FileFacts said{facts.at("bytes").get<int64_t>(), facts.at("xxh3_128").get<std::string>()};
    if (static_cast<int64_t>(fs::file_size(path / name)) != said.bytes || io::hash_file(path / name) != said.hash) {
      throw RuntimeFault("'" + name + "' has changed since it was written");
    }
    manifest.files[name] = std::move(said);
  }
  manifest.step = json.at("step").get<int64_t>();
  manifest.optimizer_steps = json.value("optimizer_steps", int64_t{0});
  manifest.random = {json.value("random_seed", uint64_t{0}), json.value("random_next_call", uint64_t{0})};
  manifest.config = json.value("config", "");
  if (manifest.step < 0 || manifest.optimizer_steps < 0) throw RuntimeFault("a negative step");
  return manifest;
}

std::vector<std::pair<int64_t, fs::path>> committed(const fs::path& directory) {
  std::vector<std::pair<int64_t, fs::path>> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || name.size() < 6 || name.size() > 20) continue;
    if (!std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    out.emplace_back(std::stoll(name.substr(5)), entry.path());
  }
  // Killed while one of the same step was replaced: the old one counts as long as there is no new one.
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(std::string(kOldPrefix) + "step-") || name.size() < 11 || name.size() > 25) continue;
    if (!std::all_of(name.begin() + 10, name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    const int64_t step = std::stoll(name.substr(10));
    if (!fs::exists(directory / directory_name(step), error)) out.emplace_back(step, entry.path());
  }
  std::sort(out.rbegin(), out.rend());
  return out;
}

std::optional<Complete> newest_complete(const fs::path& directory) {
  const auto complete = [](const fs::path& path) -> std::optional<Complete> {
    try {
      return Complete{path, read_complete(path)};
    } catch (const std::exception& error) {
      log_warn("checkpoint '{}' is not complete and is passed over: {}", path.string(), error.what());
      return std::nullopt;
    }
  };
  std::error_code error;
  if (fs::exists(directory / kManifest, error)) return complete(directory);
  for (const auto& [step, path] : committed(directory)) {
    if (auto found = complete(path)) return found;
  }
  return std::nullopt;
}

void commit(const fs::path& temporary, const fs::path& target) {
  const fs::path directory = target.parent_path();
  const fs::path old = directory / (kOldPrefix + target.filename().string());
  if (fs::exists(target)) {
    fs::remove_all(old);
    io::commit_rename(target, old);
  }
  fs::rename(temporary, target);
  stop_point("rename");
  io::sync_path(directory);
  stop_point("directory");
  fs::remove_all(old);
}

void remove_older(const fs::path& directory, int64_t keep_last) {
  std::vector<fs::path> begun;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix)) begun.push_back(entry.path());
  }
  for (const fs::path& path : begun) fs::remove_all(path);
  if (keep_last <= 0) return;
  auto all = committed(directory);
  for (size_t i = static_cast<size_t>(keep_last); i < all.size(); ++i) fs::remove_all(all[i].second);
}

void need_proof(const fs::path& directory, const std::string& proof) {
  std::string found;
  try {
    found = io::read_file(directory / kProof);
  } catch (const RuntimeFault&) {
    found.clear();  // no such file is the usual case
  }
  if (found == proof) return;
  throw RuntimeFault("it doesn't see what rank 0 wrote in '" + directory.string() +
                     "'; checkpoints need a directory that all nodes share");
}

void stop_point(const char* name) {
  const char* wanted = std::getenv("DTORCH_TEST_CHECKPOINT_STOP");
  if (wanted == nullptr) return;
  static std::mutex mutex;
  static std::map<std::string, int> times;
  std::lock_guard lock(mutex);
  const int time = ++times[name];
  const std::string here = time == 1 ? name : name + (":" + std::to_string(time));
  if (here == wanted) ::kill(::getpid(), SIGKILL);
}

}  // namespace dtorch::checkpoint
