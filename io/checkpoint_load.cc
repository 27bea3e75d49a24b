// Loading: every device reads its own parts of the newest complete checkpoint.
#include <exception>
#include <map>

#include "io/checkpoint.h"
#include "io/checkpoint_files.h"
#include "io/hdf5_file.h"
#include "io/slices.h"
#include "ops/ops.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph_core.h"

namespace dtorch::checkpoint {
namespace {

namespace fs = std::filesystem;

// What model.h5 shows.
using Stored = std::map<std::string, io::DatasetInfo>;

Stored stored_in(const fs::path& model) {
  Stored stored;
  io::Hdf5File file(model, io::Hdf5File::Mode::kRead);
  for (const std::string& name : file.dataset_names()) stored[name] = file.info(name);
  return stored;
}

// Until every device has read its parts: after that the files may go. Throws what failed.
void wait_for_reads() {
  auto barrier = make_intrusive<ReadState>(Shape{0}, kFloat32, whole(Shape{0}));
  current_graph().flush(barrier);
  barrier->wait();
  if (std::exception_ptr failure = current_graph().take_failure()) std::rethrow_exception(failure);
  barrier->get();
}

// Takes the memory of a value that is about to be replaced.
Tensor placeholder(const Tensor& like, const Where& where) {
  const std::vector<int64_t> sizes(like.shape().begin(), like.shape().end());
  return zeros(Shape(like.ndim(), 1), {.mesh = like.mesh(), .dtype = like.dtype()}, where).expand(sizes, where);
}

// Loads one checkpoint. A value goes before the one that replaces it is read, so that nothing is there twice.
class Loader {
 public:
  Loader(const Complete& found, const Contents& contents, const Where& where)
      : path_(found.path), model_(found.path / kModel), contents_(contents), where_(where), stored_(stored_in(model_)) {
    for (auto& [name, parameter] : contents_.model.named_parameters()) names_[parameter.identity()] = name;
    loads_optimizer_ = contents_.optimizer && found.manifest.optimizer_steps > 0;
  }

  void run() {
    if (loads_optimizer_) check_optimizer();
    load_model();
    if (loads_optimizer_) load_optimizer();
  }

 private:
  std::string state_name(const std::string& kind, const nn::Parameter& parameter) const {
    return "optimizer/" + kind + "/" + names_.at(parameter.identity());
  }

  void check_optimizer() const {
    std::string problems;
    for (const nn::Parameter& parameter : contents_.optimizer->parameters()) {
      if (!names_.contains(parameter.identity()))
        throw KeyError("[checkpoint] the optimizer has a parameter that isn't the model's");
      for (const std::string& kind : contents_.optimizer->state_names()) {
        const std::string name = state_name(kind, parameter);
        auto info = stored_.find(name);
        if (info == stored_.end()) {
          problems += "\n  missing: " + name;
        } else if (!(info->second.shape == parameter.file_shape())) {
          problems +=
              "\n  shape of " + name + ": " + info->second.shape.str() + ", expected " + parameter.file_shape().str();
        }
      }
    }
    if (!problems.empty())
      throw KeyError("[checkpoint] '" + path_.string() + "' doesn't fit the optimizer:" + problems);
  }

  Tensor read(const std::string& name, const Shape& shape, const Layout& layout, DType dtype) const {
    const io::DatasetInfo& info = stored_.at(name);
    const Tensor value = io::hdf5_slice(model_, name, info.shape, shape, info.dtype, layout, where_);
    return info.dtype == dtype ? value : value.to(dtype, where_);
  }

  void load_model() {
    nn::Module::Source source;
    const std::string prefix = "model/";
    for (const auto& [name, info] : stored_) {
      if (name.starts_with(prefix)) source.names.push_back(name.substr(prefix.size()));
    }
    source.shape_of = [&](const std::string& name) { return stored_.at(prefix + name).shape; };
    source.load = [&](const std::string& name, const nn::Parameter& parameter) {
      nn::Parameter cell = parameter;
      const Layout layout = cell.layout();
      cell.set_value(placeholder(cell.value(), where_));
      return read(prefix + name, cell.shape(), layout, cell.value().dtype());
    };
    contents_.model.load_state_dict(source, true, where_);
  }

  void load_optimizer() {
    std::vector<optim::StateTensors> state(contents_.optimizer->parameters().size());
    const auto fill = [&](auto&& value_of) {
      for (size_t i = 0; i < state.size(); ++i) {
        for (const std::string& kind : contents_.optimizer->state_names())
          state[i][kind] = value_of(kind, contents_.optimizer->parameters()[i]);
      }
      contents_.optimizer->load_state(state);
    };
    fill([&](const std::string&, const nn::Parameter& parameter) { return placeholder(parameter.value(), where_); });
    fill([&](const std::string& kind, const nn::Parameter& parameter) {
      return read(state_name(kind, parameter), parameter.shape(), parameter.layout(), parameter.value().dtype());
    });
  }

  const fs::path path_, model_;
  Contents contents_;
  const Where where_;
  const Stored stored_;
  std::map<const void*, std::string> names_;
  bool loads_optimizer_ = false;
};

}  // namespace

std::optional<Found> latest(const fs::path& directory) {
  const auto found = newest_complete(directory);
  if (!found) return std::nullopt;
  return Found{found->path, found->manifest.step, found->manifest.config};
}

Found load(const fs::path& directory, Contents& contents, Where where) {
  SourceScope scope(where);
  NoGrad no_grad;
  const auto found = newest_complete(directory);
  if (!found) throw RuntimeFault("no complete checkpoint in '" + directory.string() + "'");
  const Manifest& manifest = found->manifest;
  Loader(*found, contents, where).run();
  if (contents.optimizer) contents.optimizer->set_steps(manifest.optimizer_steps);
  wait_for_reads();
  current_graph().set_random_state(manifest.random);
  contents.step = manifest.step;
  contents.config = manifest.config;
  return {found->path, manifest.step, manifest.config};
}

}  // namespace dtorch::checkpoint
