#include "io/checkpoint.h"

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/hdf5_file.h"
#include "io/slices.h"
#include "runtime/base/log.h"
#include "runtime/client/graph_core.h"

namespace dtorch::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr const char* kModel = "model.h5";
constexpr const char* kManifest = "manifest.json";
constexpr int64_t kFormat = 1;

struct Item {
  std::string name;  // data set
  Tensor tensor;
  Shape file_shape;
};

std::vector<Item> items_of(const Contents& contents) {
  std::vector<Item> items;
  for (auto& [name, parameter] : contents.model.named_parameters()) {
    items.push_back({"model/" + name, parameter.value().detach(), parameter.file_shape()});
  }
  if (!contents.optimizer) return items;
  // Optimizer state goes under the parameter's name, so that its order doesn't matter.
  std::map<const void*, std::pair<std::string, Shape>> names;
  for (auto& [name, parameter] : contents.model.named_parameters())
    names[parameter.identity()] = {name, parameter.file_shape()};
  const auto state = contents.optimizer->state();
  const auto& parameters = contents.optimizer->parameters();
  for (size_t i = 0; i < state.size(); ++i) {
    auto found = names.find(parameters[i].identity());
    if (found == names.end()) throw KeyError("[checkpoint] the optimizer has a parameter that isn't the model's");
    for (const auto& [kind, tensor] : state[i]) {
      items.push_back({"optimizer/" + kind + "/" + found->second.first, tensor, found->second.second});
    }
  }
  return items;
}

std::string directory_name(int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return "step-" + digits;
}

void write_model(const fs::path& path, const std::vector<Item>& items, const Where& where) {
  io::Hdf5File file(path, io::Hdf5File::Mode::kCreate);
  file.set_attribute("format", kFormat);
  // A few reads ahead, so that the devices and the disk work at the same time and memory stays bounded.
  constexpr size_t kAhead = 4;
  std::deque<TensorFuture> ahead;
  size_t next = 0;
  for (const Item& item : items) {
    for (; next < items.size() && ahead.size() < kAhead; ++next)
      ahead.push_back(items[next].tensor.to_host_async(where));
    HostTensor value = ahead.front().get();
    ahead.pop_front();
    file.write(item.name, HostTensor(item.file_shape, value.dtype(), value.shared_bytes()));
  }
  file.close();
  io::sync_path(path);
}

struct Manifest {
  int64_t step = 0, optimizer_steps = 0;
  RandomState random;
  std::string config;
};

// Of a complete checkpoint, whose files have the lengths and hashes that it says; nullopt (and the reason in the log)
// otherwise.
std::optional<Manifest> complete_manifest(const fs::path& path) {
  try {
    const nlohmann::json json = nlohmann::json::parse(io::read_file(path / kManifest));
    if (json.at("format").get<int64_t>() != kFormat) throw RuntimeFault("unknown format");
    for (const auto& [name, facts] : json.at("files").items()) {
      if (name.find('/') != std::string::npos || name == "..") throw RuntimeFault("a file name with '/'");
      if (static_cast<int64_t>(fs::file_size(path / name)) != facts.at("bytes").get<int64_t>() ||
          io::hash_file(path / name) != facts.at("xxh3_128").get<std::string>()) {
        throw RuntimeFault("'" + name + "' has changed since it was written");
      }
    }
    Manifest manifest;
    manifest.step = json.at("step").get<int64_t>();
    manifest.optimizer_steps = json.value("optimizer_steps", int64_t{0});
    manifest.random = {json.value("random_seed", uint64_t{0}), json.value("random_next_call", uint64_t{0})};
    manifest.config = json.value("config", "");
    if (manifest.step < 0 || manifest.optimizer_steps < 0) throw RuntimeFault("a negative step");
    return manifest;
  } catch (const std::exception& error) {
    log_warn("checkpoint '{}' is not complete and is passed over: {}", path.string(), error.what());
    return std::nullopt;
  }
}

struct Complete {
  fs::path path;
  Manifest manifest;
};

// Committed directories by step, newest first.
std::vector<std::pair<int64_t, fs::path>> committed(const fs::path& directory) {
  std::vector<std::pair<int64_t, fs::path>> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || name.size() < 6 || name.size() > 20) continue;
    if (!std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    out.emplace_back(std::stoll(name.substr(5)), entry.path());
  }
  std::sort(out.rbegin(), out.rend());
  return out;
}

std::optional<Complete> newest_complete(const fs::path& directory) {
  std::error_code error;
  if (fs::exists(directory / kManifest, error)) {
    if (auto manifest = complete_manifest(directory)) return Complete{directory, *manifest};
    return std::nullopt;
  }
  for (const auto& [step, path] : committed(directory)) {
    if (auto manifest = complete_manifest(path)) return Complete{path, *manifest};
  }
  return std::nullopt;
}

void remove_older(const fs::path& directory, int64_t keep_last) {
  if (keep_last <= 0) return;
  auto all = committed(directory);
  for (size_t i = static_cast<size_t>(keep_last); i < all.size(); ++i) fs::remove_all(all[i].second);
}

}  // namespace

fs::path save(const fs::path& directory, const Contents& contents, const SaveOptions& options, Where where) {
  SourceScope scope(where);
  const std::vector<Item> items = items_of(contents);
  const RandomState random = current_graph().random_state();
  const fs::path target = directory / directory_name(contents.step);
  const fs::path temporary = directory / (".tmp-" + directory_name(contents.step));
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw RuntimeFault("cannot make directory '" + directory.string() + "': " + error.message());
  fs::remove_all(temporary);
  try {
    fs::create_directory(temporary);
    write_model(temporary / kModel, items, where);
    nlohmann::json manifest = {{"format", kFormat},
                               {"step", contents.step},
                               {"random_seed", random.seed},
                               {"random_next_call", random.next_call},
                               {"optimizer_steps", contents.optimizer ? contents.optimizer->steps() : 0},
                               {"config", contents.config}};
    manifest["files"][kModel] = {{"bytes", fs::file_size(temporary / kModel)},
                                 {"xxh3_128", io::hash_file(temporary / kModel)}};
    io::write_file(temporary / kManifest, manifest.dump(1) + "\n");
    io::sync_path(temporary);
    // Saving a step again replaces it: the old one moves aside first, so that one of the two is always complete.
    const fs::path old = directory / (".old-" + directory_name(contents.step));
    fs::remove_all(old);
    if (fs::exists(target)) io::commit_rename(target, old);
    io::commit_rename(temporary, target);
    fs::remove_all(old);
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(temporary, error);
    throw RuntimeFault("cannot write checkpoint '" + target.string() + "': " + failure.what());
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
  remove_older(directory, options.keep_last);
  return target;
}

std::optional<Found> latest(const fs::path& directory) {
  const auto found = newest_complete(directory);
  if (!found) return std::nullopt;
  return Found{found->path, found->manifest.step, found->manifest.config};
}

Found load(const fs::path& directory, Contents& contents, Where where) {
  SourceScope scope(where);
  const auto found = newest_complete(directory);
  if (!found) throw RuntimeFault("no complete checkpoint in '" + directory.string() + "'");
  const Manifest& manifest = found->manifest;
  const fs::path model = found->path / kModel;

  std::map<std::string, io::DatasetInfo> stored;
  {
    io::Hdf5File file(model, io::Hdf5File::Mode::kRead);
    for (const std::string& name : file.dataset_names()) stored[name] = file.info(name);
  }
  auto read = [&](const std::string& name, const nn::Parameter& parameter) {
    const io::DatasetInfo& info = stored.at(name);
    Tensor value = io::hdf5_slice(model, name, info.shape, parameter.shape(), info.dtype, parameter.layout(), where);
    return info.dtype == parameter.value().dtype() ? value : value.to(parameter.value().dtype(), where);
  };
  // The optimizer's state is checked before anything changes.
  std::vector<optim::StateTensors> state;
  const int64_t steps = manifest.optimizer_steps;
  if (contents.optimizer && steps > 0) {
    std::map<const void*, std::string> names;
    for (auto& [name, parameter] : contents.model.named_parameters()) names[parameter.identity()] = name;
    std::string problems;
    for (const nn::Parameter& parameter : contents.optimizer->parameters()) {
      state.emplace_back();
      for (const std::string& kind : contents.optimizer->state_names()) {
        const std::string name = "optimizer/" + kind + "/" + names[parameter.identity()];
        auto info = stored.find(name);
        if (info == stored.end()) {
          problems += "\n  missing: " + name;
        } else if (!(info->second.shape == parameter.file_shape())) {
          problems +=
              "\n  shape of " + name + ": " + info->second.shape.str() + ", expected " + parameter.file_shape().str();
        } else {
          state.back()[kind] = read(name, parameter);
        }
      }
    }
    if (!problems.empty())
      throw KeyError("[checkpoint] '" + found->path.string() + "' doesn't fit the optimizer:" + problems);
  }
  nn::Module::Source source;
  const std::string prefix = "model/";
  for (const auto& [name, info] : stored) {
    if (name.starts_with(prefix)) source.names.push_back(name.substr(prefix.size()));
  }
  source.shape_of = [&](const std::string& name) { return stored.at(prefix + name).shape; };
  source.load = [&](const std::string& name, const nn::Parameter& parameter) { return read(prefix + name, parameter); };
  contents.model.load_state_dict(source);
  if (contents.optimizer) {
    if (!state.empty()) contents.optimizer->load_state(state);
    contents.optimizer->set_steps(steps);
  }
  current_graph().set_random_state(manifest.random);
  contents.step = manifest.step;
  contents.config = manifest.config;
  return {found->path, manifest.step, manifest.config};
}

}  // namespace dtorch::checkpoint
