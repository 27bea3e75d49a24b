// Checkpoints of logical tensors: a directory runs/a/step-000123/ with part-<node>.h5 (what the devices of a node hold,
// written by that node), model.h5 (every tensor whole, as h5py shows it) and manifest.json (step, random state, length
// and XXH3-128 of every file). All nodes must see the directory. Written under a temporary name, flushed, checked,
// renamed: at any moment the newest complete one loads. One written on any layout loads on any other, bitwise. One job
// writes to a directory at a time. docs/checkpoints.md has the protocol.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/optim.h"

namespace dtorch::checkpoint {

// An optimizer by reference or pointer, or none. Doesn't own it.
class OptimizerRef {
 public:
  OptimizerRef(optim::Optimizer* optimizer = nullptr) : optimizer_(optimizer) {}
  OptimizerRef(optim::Optimizer& optimizer) : optimizer_(&optimizer) {}
  explicit operator bool() const { return optimizer_ != nullptr; }
  optim::Optimizer* operator->() const { return optimizer_; }

 private:
  optim::Optimizer* optimizer_;
};

struct Contents {
  nn::Module model;
  OptimizerRef optimizer = {};  // none: parameters only
  int64_t step = 0;             // steps done; also the data position
  std::string config = {};      // whatever the program wants to find again (JSON text)
  // A save's config instead of `config`, for what only the devices know by then. Called once, on another thread, which
  // it may block (TensorFuture::get); makes no calls of the Graph. What it throws fails the save.
  std::function<std::string()> late_config = {};
};
struct SaveOptions {
  int64_t keep_last = 3;  // older complete ones are removed; 0: keep all
};
// Blocks until the files are durable. Returns the directory. Throws RuntimeFault (full disk, no permission): then
// nothing that was there before is lost. UserError, as save_async and check_directory do, in a job of simulated devices
// (--device null), which have no values.
std::filesystem::path save(const std::filesystem::path& directory, const Contents& contents,
                           const SaveOptions& options = {}, Where where = Where::current());

// The same, but doesn't wait for the devices: the values are those of now, whatever changes later. What fails is thrown
// by the next save, by wait(), or at the end of dtorch::run, which waits for it.
std::filesystem::path save_async(const std::filesystem::path& directory, const Contents& contents,
                                 const SaveOptions& options = {}, Where where = Where::current());
// Blocks until the checkpoint of the last save_async is durable; throws what went wrong with it, once.
void wait();
// A save is under way. Any thread; doesn't block.
bool is_writing();

// Throws RuntimeFault unless every node sees what rank 0 writes in `directory`, which is made if need be: for the start
// of a program that will save there. (A save finds the same out, but late.) Blocks.
void check_directory(const std::filesystem::path& directory, Where where = Where::current());

struct Found {
  std::filesystem::path path;
  int64_t step = 0;
  std::string config;
};
// The newest complete checkpoint under `directory` (every file there with its length and hash), or nothing. `path` of
// one checkpoint is accepted as well.
std::optional<Found> latest(const std::filesystem::path& directory);
// Loads into the model (and optimizer) with their own layouts, sets the Graph's random state and the optimizer's step
// count. Blocks until everything is read. Strict: missing, unexpected and mis-shaped tensors are listed in a KeyError
// and nothing is changed. Throws RuntimeFault when there is no complete checkpoint or a file doesn't read.
Found load(const std::filesystem::path& directory, Contents& contents, Where where = Where::current());

// For people and scripts: these read on rank 0 alone and change nothing of the job. Each path is a checkpoint or a
// directory with checkpoints (of which the newest complete one is taken).
struct Listed {
  std::filesystem::path path;
  int64_t step = 0, bytes = 0, num_files = 0;
  std::string problem;  // empty: complete
};
// All under `directory`, newest first, every byte checked. Throws RuntimeFault when there are none.
std::vector<Listed> list(const std::filesystem::path& directory);
// One line a tensor that one of them lacks or that differs in shape, dtype or any bit.
std::vector<std::string> differences(const std::filesystem::path& a, const std::filesystem::path& b);
// Writes the model's tensors under our names, without the optimizer's. Returns their number.
int64_t export_safetensors(const std::filesystem::path& directory, const std::filesystem::path& out);

}  // namespace dtorch::checkpoint
