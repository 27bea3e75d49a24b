#include "io/checkpoint.h"

#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "io/checkpoint_files.h"
#include "io/checkpoint_parts.h"
#include "io/file.h"
#include "io/hdf5_file.h"
#include "io/slices.h"
#include "runtime/base/log.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph_core.h"

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
  std::vector<io::Slab> slabs;  // of the holders' boxes in file_shape
};

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
      std::vector<io::VirtualPart> parts;
      for (size_t i = 0; i < tensor.holders.size(); ++i) {
        const Holder& holder = tensor.holders[i];
        parts.push_back({tensor.slabs[i], part_name(binding.node_of(holder.device)),
                         box_name(tensor.name, holder.index), holder.box.size});
      }
      file.write_virtual(tensor.name, tensor.file_shape, tensor.dtype, parts);
    }
  }
  file.close();
}

// A save whose devices have been told. Finished by a thread of rank 0, which makes no calls of the Graph.
struct Started {
  fs::path directory, temporary, target;
  SaveOptions options;
  Manifest manifest;
  std::vector<Shown> tensors;
  DeviceBinding binding;
};

void finish(Started& save) {
  try {
    const std::vector<FileFacts> parts = wait_for_parts(save.temporary, save.binding.num_nodes);
    for (size_t node = 0; node < parts.size(); ++node) {
      const std::string name = part_name(static_cast<int64_t>(node));
      if (static_cast<int64_t>(fs::file_size(save.temporary / name)) != parts[node].bytes) {
        throw RuntimeFault("rank 0 sees another length of '" + name + "' than the node that wrote it");
      }
      save.manifest.files[name] = parts[node];
      fs::remove(save.temporary / part_facts_name(static_cast<int64_t>(node)));
    }
    fs::remove(save.temporary / kProof);
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

// The save that is being finished: one a process. Used by the program's thread.
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
    thread_ = std::thread([this, save = std::move(save)]() mutable {
      try {
        finish(save);
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  void wait() {
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  std::thread thread_;
  std::exception_ptr failure_;  // the thread's, then this one's
};

// The value with nothing pending, cut so that its boxes can be shown in the file's shape.
Shown shown(Item& item, const Where& where) {
  const Layout& layout = item.tensor.layout();
  if (layout.has_partial()) item.tensor = item.tensor.redistribute(layout.without_partial().placements(), where);
  for (;;) {
    Shown out{item.name,
              item.tensor.shape(),
              item.file_shape,
              item.tensor.dtype(),
              writers(item.tensor.layout(), item.tensor.shape()),
              {}};
    for (const Holder& holder : out.holders) {
      const auto slab = slab_of(out.shape, holder.box, out.file_shape);
      if (slab) out.slabs.push_back(*slab);
    }
    if (out.slabs.size() == out.holders.size()) return out;
    DTORCH_CHECK(!item.tensor.layout().is_replicated(), "a whole tensor in the file's shape");
    const Layout everywhere = Layout::replicated(item.tensor.mesh());
    item.tensor = item.tensor.redistribute(everywhere.placements(), where);
  }
}

void start(const fs::path& directory, const Contents& contents, const SaveOptions& options, const Where& where) {
  Pending& pending = Pending::of_process();  // before the parts of this process, so that it outlives them
  pending.wait();
  std::vector<Item> items = items_of(contents);
  GraphCore& graph = current_graph();
  Started save{directory,
               directory / (".tmp-" + directory_name(contents.step)),
               directory / directory_name(contents.step),
               options,
               {},
               {},
               graph.client().runtime->binding()};
  save.manifest.step = contents.step;
  save.manifest.random = graph.random_state();
  save.manifest.optimizer_steps = contents.optimizer ? contents.optimizer->steps() : 0;
  save.manifest.config = contents.config;
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw RuntimeFault("cannot make directory '" + directory.string() + "': " + error.message());
  try {
    fs::remove_all(save.temporary);
    fs::create_directory(save.temporary);
    NoGrad no_grad;
    PartsCall parts(save.temporary, items.empty() ? "cpu" : items.front().tensor.mesh().kind(), save.binding, where);
    for (Item& item : items) {
      save.tensors.push_back(shown(item, where));
      parts.write(item.name, item.tensor);
    }
    parts.finish();
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

std::optional<Found> latest(const fs::path& directory) {
  const auto found = newest_complete(directory);
  if (!found) return std::nullopt;
  return Found{found->path, found->manifest.step, found->manifest.config};
}

// Until every device has read its parts: after that the files may go. Throws what failed.
static void wait_for_reads() {
  auto barrier = make_intrusive<ReadState>(Shape{0}, kFloat32, whole(Shape{0}));
  current_graph().flush(barrier);
  barrier->wait();
  if (std::exception_ptr failure = current_graph().take_failure()) std::rethrow_exception(failure);
  barrier->get();
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
  wait_for_reads();
  current_graph().set_random_state(manifest.random);
  contents.step = manifest.step;
  contents.config = manifest.config;
  return {found->path, manifest.step, manifest.config};
}

}  // namespace dtorch::checkpoint
