#include "io/checkpoint_parts.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "io/file.h"
#include "io/operators.h"
#include "io/part_writer.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/record.h"

namespace dtorch {
namespace {

using checkpoint::PartWriter;

struct OpenAttrs {
  std::string path, proof;
  std::vector<int64_t> node_of_device;
  template <class V>
  void fields(V& v) {
    v("path", path);
    v("proof", proof);
    v("node_of_device", node_of_device);
  }
};
// What changes from save to save is the scalar, the session, so that the specs stay the same.
struct WriteAttrs {
  std::string name;
  template <class V>
  void fields(V& v) {
    v("name", name);
  }
};
struct FinishAttrs {
  std::vector<int64_t> writes_of_device;
  template <class V>
  void fields(V& v) {
    v("writes_of_device", writes_of_device);
  }
};

// The writers of this process by session and device; several nodes may be threads of one process.
class OpenParts {
 public:
  static OpenParts& of_process() {
    static OpenParts parts;
    return parts;
  }
  void open(int64_t session, int64_t device, const OpenAttrs& attributes) {
    std::vector<std::shared_ptr<PartWriter>> ended;  // their threads are waited for outside of the lock
    std::lock_guard lock(mutex_);
    for (auto it = writers_.begin(); it != writers_.end();) {
      if (it->first.first == session) {
        ++it;
        continue;
      }
      ended.push_back(std::move(it->second));
      it = writers_.erase(it);
    }
    const int64_t node = attributes.node_of_device.at(static_cast<size_t>(device));
    const auto& nodes = attributes.node_of_device;
    std::shared_ptr<PartWriter> writer;
    for (const auto& [key, open] : writers_) {
      if (nodes.at(static_cast<size_t>(key.second)) == node) writer = open;
    }
    if (!writer)
      writer = std::make_shared<PartWriter>(attributes.path, node, std::count(nodes.begin(), nodes.end(), node));
    writers_[{session, device}] = std::move(writer);
  }
  std::shared_ptr<PartWriter> find(int64_t session, int64_t device) {
    std::lock_guard lock(mutex_);
    auto found = writers_.find({session, device});
    return found == writers_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<PartWriter>> writers_;  // under mutex_
};

std::vector<OutputMeta> one_each_infer(const InferContext& context) {
  return {{{static_cast<int64_t>(context.attributes<OpenAttrs>().node_of_device.size())}, kInt64}};
}

std::vector<OutputMeta> finish_infer(const InferContext& context) {
  return {{{static_cast<int64_t>(context.attributes<FinishAttrs>().writes_of_device.size())}, kInt64}};
}

void set_zeros(KernelContext& context) {
  NativeTensor out = NativeTensor::empty(context.output_box(0).size, kInt64);
  std::fill_n(out.data(), out.num_bytes(), std::byte{0});
  context.output(0) = std::move(out);
}

void open_kernel(KernelContext& context) {
  const auto& a = context.attributes<OpenAttrs>();
  std::string proof;
  try {
    proof = io::read_file(std::filesystem::path(a.path) / checkpoint::kProof);
  } catch (const RuntimeFault&) {
    proof.clear();
  }
  if (proof != a.proof) {
    throw RuntimeFault("node " + std::to_string(a.node_of_device.at(static_cast<size_t>(context.device()))) +
                       " doesn't see what rank 0 wrote in '" + a.path +
                       "': checkpoints need a directory that all nodes share");
  }
  OpenParts::of_process().open(context.scalar(0).as_int(), context.device(), a);
  set_zeros(context);
}

std::vector<OutputMeta> no_outputs(const InferContext&) { return {}; }
std::optional<std::vector<Layout>> any_layout(const InferContext&, std::span<const OutputMeta>, std::string*) {
  return std::vector<Layout>{};
}

void write_kernel(KernelContext& context) {
  const auto writer = OpenParts::of_process().find(context.scalar(0).as_int(), context.device());
  if (!writer) return;  // another save began
  const TensorMeta& meta = context.input_meta(0);
  const int64_t index = meta.layout.mesh().index_of(context.device());
  const Box& box = context.input_box(0);
  bool is_first = !box.empty();
  for (int64_t before = 0; is_first && before < index; ++before) {
    is_first = !(meta.layout.box_at(meta.global_shape, before) == box);
  }
  writer->write(checkpoint::box_name(context.attributes<WriteAttrs>().name, index),
                is_first ? context.input(0) : NativeTensor());
}

void finish_kernel(KernelContext& context) {
  const auto writer = OpenParts::of_process().find(context.scalar(0).as_int(), context.device());
  const auto& writes = context.attributes<FinishAttrs>().writes_of_device;
  if (writer) writer->finish_device(writes.at(static_cast<size_t>(context.device())));
  set_zeros(context);
}

}  // namespace

constinit OperatorDef checkpoint_open_op = {.name = "checkpoint_open",
                                            .signature = "opens a checkpoint's parts",
                                            .attributes = attribute_codec<OpenAttrs>(),
                                            .infer = one_each_infer,
                                            .kernel = open_kernel,
                                            .klass = OperatorClass::kEffect,
                                            .placement_class = PlacementClass::kAnyLayout};
constinit OperatorDef checkpoint_write_op = {.name = "checkpoint_write",
                                             .signature = "writes a tensor's boxes to a checkpoint's parts",
                                             .attributes = attribute_codec<WriteAttrs>(),
                                             .infer = no_outputs,
                                             .layouts = any_layout,
                                             .kernel = write_kernel,
                                             .klass = OperatorClass::kEffect,
                                             .placement_class = PlacementClass::kAnyLayout,
                                             .saved_inputs = 0};
constinit OperatorDef checkpoint_finish_op = {.name = "checkpoint_finish",
                                              .signature = "ends a checkpoint's parts",
                                              .attributes = attribute_codec<FinishAttrs>(),
                                              .infer = finish_infer,
                                              .kernel = finish_kernel,
                                              .klass = OperatorClass::kEffect,
                                              .placement_class = PlacementClass::kAnyLayout};

namespace checkpoint {

std::vector<Holder> writers(const Layout& layout, const Shape& shape) {
  std::vector<Holder> out;
  std::set<std::vector<int64_t>> seen;  // boxes are equal or apart, so their offsets tell them
  for (int64_t index = 0; index < layout.mesh().num_devices(); ++index) {
    Box box = layout.box_at(shape, index);
    if (box.empty() || !seen.emplace(box.offset.begin(), box.offset.end()).second) continue;
    out.push_back({index, layout.mesh().devices()[static_cast<size_t>(index)], std::move(box)});
  }
  return out;
}

std::optional<io::Slab> slab_of(const Shape& shape, const Box& box, const Shape& file_shape) {
  io::Slab slab;
  int64_t d = 0;
  for (int64_t file_size : file_shape) {
    const int64_t first = d;
    for (int64_t product = 1; d < shape.ndim() && (product < file_size || shape[d] == 1); ++d) product *= shape[d];
    // The last dim of the group that is cut; those after it are whole.
    int64_t cut = d - 1, inner = 1;
    while (cut > first && box.size[cut] == shape[cut]) inner *= shape[cut--];
    // Those before it must be one run of positions.
    int64_t start = 0, count = 1, period = 1;
    for (int64_t e = first; e < cut; ++e) {
      if (count != 1 && box.size[e] != shape[e]) return std::nullopt;
      start = start * shape[e] + box.offset[e];
      count *= box.size[e];
    }
    int64_t offset = 0, block = 1;
    if (cut >= first) {
      period = shape[cut] * inner;
      offset = box.offset[cut] * inner;
      block = box.size[cut] * inner;
    }
    slab.start.push_back(start * period + offset);
    slab.stride.push_back(std::max<int64_t>(period, 1));
    slab.count.push_back(count);
    slab.block.push_back(block);
  }
  if (d != shape.ndim()) return std::nullopt;
  return slab;
}

namespace {

DeviceMesh mesh_of_all(const std::string& kind, int64_t num_devices) {
  return init_device_mesh(kind, Shape{num_devices});
}

}  // namespace

PartsCall::PartsCall(const std::filesystem::path& temporary, const std::string& kind, const DeviceBinding& binding,
                     const Where& where)
    : where_(where),
      mesh_(mesh_of_all(kind, binding.num_devices())),
      session_(next_host_data_number()),
      writes_of_device_(static_cast<size_t>(binding.num_devices())) {
  std::random_device random;
  OpenAttrs attributes{
      std::filesystem::absolute(temporary).string(), std::to_string(random()) + "-" + std::to_string(random()), {}};
  for (int32_t node : binding.node_of_device) attributes.node_of_device.push_back(node);
  io::write_file(temporary / kProof, attributes.proof);
  const Layout layouts[] = {Layout(mesh_, {Shard(0)}, 1)};
  const Scalar scalars[] = {Scalar::of_int(static_cast<int64_t>(session_))};
  record(checkpoint_open_op, attributes, {}, where_, {.scalars = scalars, .output_layouts = layouts}).to_host(where_);
}

void PartsCall::write(const std::string& name, const Tensor& value) {
  const Scalar scalars[] = {Scalar::of_int(static_cast<int64_t>(session_))};
  record_many<0>(checkpoint_write_op, WriteAttrs{name}, {&value}, where_, {.scalars = scalars});
  for (int64_t device : value.mesh().devices()) ++writes_of_device_.at(static_cast<size_t>(device));
}

void PartsCall::finish() {
  const Layout layouts[] = {Layout(mesh_, {Shard(0)}, 1)};
  const Scalar scalars[] = {Scalar::of_int(static_cast<int64_t>(session_))};
  record(checkpoint_finish_op, FinishAttrs{writes_of_device_}, {}, where_,
         {.scalars = scalars, .output_layouts = layouts});
  current_graph().flush();
}

namespace {

// A node that can't even say that it failed (its disk is gone) must not be waited for for ever.
constexpr std::chrono::minutes kWithoutProgress{5};

// What a node says of its part. Nodes answer by a file, so that a save in the background keeps no stream of a device
// busy; between two looks at it this thread sleeps.
nlohmann::json answer_of(const std::filesystem::path& temporary, int64_t node) {
  using Clock = std::chrono::steady_clock;
  std::error_code error;
  auto changed = Clock::now();
  for (uintmax_t size = 0;;) {
    nlohmann::json said = nlohmann::json::parse(io::read_file(temporary / part_facts_name(node)), nullptr, false);
    if (said.is_object()) return said;  // else: not yet, or half of it
    const uintmax_t now = std::filesystem::file_size(temporary / part_name(node), error);
    if (now != std::exchange(size, now)) changed = Clock::now();
    if (Clock::now() - changed > kWithoutProgress) {
      throw RuntimeFault("node " + std::to_string(node) + " has written nothing of '" + part_name(node) +
                         "' for 5 minutes and doesn't say why");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

std::vector<FileFacts> wait_for_parts(const std::filesystem::path& temporary, int64_t num_nodes) {
  std::vector<FileFacts> out;
  std::string failure;
  for (int64_t node = 0; node < num_nodes; ++node) {
    const nlohmann::json said = answer_of(temporary, node);
    if (!said.contains("error")) {
      out.push_back({said.at("bytes").get<int64_t>(), said.at("xxh3_128").get<std::string>()});
    } else if (failure.empty()) {
      failure = "node " + std::to_string(node) + ": " + said["error"].get<std::string>();
    }
  }
  if (!failure.empty()) throw RuntimeFault(failure);
  return out;
}

}  // namespace checkpoint
}  // namespace dtorch
