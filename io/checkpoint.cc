#include "io/checkpoint.h"

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "io/checkpoint_files.h"
#include "io/checkpoint_parts.h"
#include "io/file.h"
#include "io/hdf5_file.h"
#include "runtime/base/log.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/simulation_source.h"

namespace dtorch::checkpoint {
namespace {

namespace fs = std::filesystem;

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

// A tensor as model.h5 will show it.
struct Shown {
  std::string name;
  Shape shape, file_shape;
  DType dtype = kFloat32;
  std::vector<Holder> holders;
};

Shown shown(const Item& item) {
  return {item.name, item.tensor.shape(), item.file_shape, item.tensor.dtype(),
          writers(item.tensor.layout(), item.tensor.shape())};
}

std::vector<io::VirtualPart> virtual_parts(const Shown& tensor, const DeviceBinding& binding) {
  std::vector<io::VirtualPart> parts;
  for (const Holder& holder : tensor.holders) {
    const std::string file = part_name(binding.node_of(holder.device)), dataset = box_name(tensor.name, holder.index);
    for (const io::SlabPart& part : io::slabs_of(tensor.shape, holder.box, tensor.file_shape)) {
      Box there = part.part;  // of the holder's data set
      for (int64_t d = 0; d < there.ndim(); ++d) there.offset[d] -= holder.box.offset[d];
      parts.push_back({part.slab, file, dataset, holder.box.size, there});
    }
  }
  return parts;
}

void write_model(const fs::path& directory, const std::vector<Shown>& tensors, const DeviceBinding& binding) {
  io::Hdf5File file(directory / kModel, io::Hdf5File::Mode::kCreate);
  file.set_attribute("format", kFormat);
  for (const Shown& tensor : tensors) {
    if (tensor.shape.num_elements() == 0) {
      file.create(tensor.name, tensor.file_shape, tensor.dtype);
    } else if (tensor.file_shape.ndim() == 0) {
      // A virtual data set has dims.
      const Holder& holder = tensor.holders.front();
      HostTensor value(tensor.file_shape, tensor.dtype);
      io::Hdf5File part(directory / part_name(binding.node_of(holder.device)), io::Hdf5File::Mode::kRead);
      part.read_box(box_name(tensor.name, holder.index), holder.box, value.mutable_bytes());
      file.write(tensor.name, value);
    } else {
      file.write_virtual(tensor.name, tensor.file_shape, tensor.dtype, virtual_parts(tensor, binding));
    }
  }
  file.close();
}

// A save whose devices have been told. Finished by a thread of rank 0, which makes no calls of the Graph.
struct Started {
  fs::path directory, temporary, target;
  SaveOptions options;
  Manifest manifest;
  DeviceBinding binding;
  std::function<std::string()> late_config = {};
  std::vector<Shown> tensors = {};
  PartAnswers parts = {};
};

void finish(Started& save) {
  try {
    for (const auto& [node, facts] : save.parts.get()) {
      const std::string name = part_name(node);
      if (static_cast<int64_t>(fs::file_size(save.temporary / name)) != facts.bytes) {
        throw RuntimeFault("rank 0 sees another length of '" + name + "' than the node that wrote it");
      }
      save.manifest.files[name] = facts;
    }
    fs::remove(save.temporary / kProof);
    if (save.late_config) save.manifest.config = save.late_config();
    write_model(save.temporary, save.tensors, save.binding);
    save.manifest.files[kModel] = facts_of(save.temporary / kModel);
    stop_point("model.h5");
    io::write_file(save.temporary / kManifest, to_text(save.manifest));
    io::sync_path(save.temporary);
    stop_point("manifest");
    commit(save.temporary, save.target);
    remove_older(save.directory, save.options.keep_last);
  } catch (const std::exception& failure) {
    std::error_code ignored;  // the first failure is the one to report
    fs::remove_all(save.temporary, ignored);
    throw RuntimeFault("cannot write checkpoint '" + save.target.string() + "': " + failure.what());
  }
}

// The save that is being finished: one a process. Used by the program's thread, but for is_writing.
class Pending {
 public:
  static Pending& of_process() {
    static Pending pending;
    return pending;
  }
  ~Pending() {
    try {
      wait();
    } catch (const std::exception& error) {
      log_error("{}", error.what());
    }
  }
  void start(Started save) {
    wait();
    is_writing_.store(true);
    thread_ = std::thread([this, save = std::move(save)]() mutable {
      try {
        finish(save);
      } catch (...) {
        failure_ = std::current_exception();
      }
      is_writing_.store(false);
    });
  }
  void wait() {
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  bool is_writing() const { return is_writing_.load(); }

 private:
  std::thread thread_;
  std::exception_ptr failure_;  // the thread's, then this one's
  std::atomic<bool> is_writing_{false};
};

void make_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw RuntimeFault("cannot make directory '" + directory.string() + "': " + error.message());
}

void need_values(const fs::path& directory) {
  if (is_simulated(*current_graph().client().runtime)) {
    throw UserError("[checkpoint] nothing can be saved to '" + directory.string() +
                    "': with --device null there are no values");
  }
}

void start(const fs::path& directory, const Contents& contents, const SaveOptions& options, const Where& where) {
  need_values(directory);
  Pending& pending = Pending::of_process();
  pending.wait();
  NoGrad no_grad;
  std::vector<Item> items = items_of(contents);
  GraphCore& graph = current_graph();
  Started save{directory,
               temporary_of(directory, contents.step),
               directory / directory_name(contents.step),
               options,
               {},
               graph.client().runtime->binding(),
               contents.late_config};
  save.manifest.step = contents.step;
  save.manifest.random = graph.random_state();
  save.manifest.optimizer_steps = contents.optimizer ? contents.optimizer->steps() : 0;
  save.manifest.config = contents.config;
  make_directories(directory);
  std::error_code error;
  try {
    fs::remove_all(save.temporary);
    fs::create_directory(save.temporary);
    PartsCall parts(save.temporary, items.empty() ? "cpu" : items.front().tensor.mesh().kind(), save.binding, where);
    for (Item& item : items) {
      const Layout& layout = item.tensor.layout();
      if (layout.has_partial()) item.tensor = item.tensor.redistribute(layout.without_partial().placements(), where);
      save.tensors.push_back(shown(item));
      parts.write(item.name, item.tensor);
    }
    save.parts = parts.finish();
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(save.temporary, error);
    throw RuntimeFault("cannot write checkpoint '" + save.target.string() + "': " + failure.what());
  } catch (...) {
    fs::remove_all(save.temporary, error);
    throw;
  }
  pending.start(std::move(save));
}

}  // namespace

fs::path save_async(const fs::path& directory, const Contents& contents, const SaveOptions& options, Where where) {
  SourceScope scope(where);
  start(directory, contents, options, where);
  return directory / directory_name(contents.step);
}

fs::path save(const fs::path& directory, const Contents& contents, const SaveOptions& options, Where where) {
  SourceScope scope(where);
  start(directory, contents, options, where);
  try {
    wait();
  } catch (const RuntimeFault&) {
    // Where a value is missing because its operator failed, that failure says more.
    if (auto failure = current_graph().take_failure()) std::rethrow_exception(failure);
    throw;
  }
  return directory / directory_name(contents.step);
}

void wait() { Pending::of_process().wait(); }
bool is_writing() { return Pending::of_process().is_writing(); }

void check_directory(const fs::path& directory, Where where) {
  SourceScope scope(where);
  need_values(directory);
  make_directories(directory);
  prove_shared(directory, current_graph().client().runtime->binding(), where);
}

}  // namespace dtorch::checkpoint
