#include "io/checkpoint_parts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "io/file.h"
#include "io/operators.h"
#include "io/part_writer.h"
#include "ops/def/effects.h"
#include "runtime/base/log.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/record.h"

namespace dtorch {
namespace {

using checkpoint::PartWriter;

// What changes from save to save is the scalar, the session, so that the specs of write stay the same.
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

std::vector<int64_t> nodes_in(const std::vector<int64_t>& node_of_device) {
  const std::set<int64_t> nodes(node_of_device.begin(), node_of_device.end());
  return {nodes.begin(), nodes.end()};
}

// The parts that this node writes, of the newest save: its own, and after a recovery those of lost nodes whose devices
// are here now.
class NodesParts final : public BackgroundWork {
 public:
  explicit NodesParts(Background& background) : background_(background) {}
  void open(uint64_t session, int64_t device, const OpenAttrs& attributes) {
    std::map<int64_t, std::shared_ptr<PartWriter>> before;  // their threads are waited for outside of the lock
    std::lock_guard lock(mutex_);
    if (session_ != session) before.swap(writers_);
    session_ = session;
    const std::vector<int64_t>& node_of = node_of_device_ = attributes.node_of_device;
    const int64_t node = node_of.at(static_cast<size_t>(device));
    std::shared_ptr<PartWriter>& writer = writers_[node];
    if (writer) return;
    const std::vector<int64_t> nodes = nodes_in(node_of);
    checkpoint::PartOrder order{.directory = attributes.path,
                                .proof = attributes.proof,
                                .node = node,
                                .num_devices = std::count(node_of.begin(), node_of.end(), node),
                                .read = session,
                                .row = std::find(nodes.begin(), nodes.end(), node) - nodes.begin()};
    writer = std::make_shared<PartWriter>(std::move(order), background_);
  }
  // Of the part with the device's values. Null: another save has begun.
  std::shared_ptr<PartWriter> find(uint64_t session, int64_t device) {
    std::lock_guard lock(mutex_);
    return session_ == session ? writers_.at(node_of_device_.at(static_cast<size_t>(device))) : nullptr;
  }

 private:
  Background& background_;
  std::mutex mutex_;
  uint64_t session_ = 0;                                    // under mutex_, as the next two
  std::vector<int64_t> node_of_device_;                     // when the save was begun
  std::map<int64_t, std::shared_ptr<PartWriter>> writers_;  // by that node
};

uint64_t session_of(const KernelContext& context) { return context.scalar(0).bits; }

std::vector<OutputMeta> open_infer(const InferContext& context) {
  return {{{static_cast<int64_t>(context.attributes<OpenAttrs>().node_of_device.size())}, kInt64}};
}

std::vector<OutputMeta> finish_infer(const InferContext& context) {
  return {{{static_cast<int64_t>(context.attributes<FinishAttrs>().writes_of_device.size())}, kInt64}};
}

void prove_kernel(KernelContext& context) {
  const auto& a = context.attributes<OpenAttrs>();
  checkpoint::need_proof(a.path, a.proof);
  set_zeros(context);
}

void open_kernel(KernelContext& context) {
  this_nodes_background().work<NodesParts>().open(session_of(context), context.device(),
                                                  context.attributes<OpenAttrs>());
  set_zeros(context);
}

std::vector<OutputMeta> no_outputs(const InferContext&) { return {}; }
std::optional<std::vector<Layout>> any_layout(const InferContext&, std::span<const OutputMeta>, std::string*) {
  return std::vector<Layout>{};
}

void write_kernel(KernelContext& context) {
  const auto writer = this_nodes_background().work<NodesParts>().find(session_of(context), context.device());
  if (!writer) return;
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
  const auto writer = this_nodes_background().work<NodesParts>().find(session_of(context), context.device());
  const auto& writes = context.attributes<FinishAttrs>().writes_of_device;
  if (writer) writer->finish_device(writes.at(static_cast<size_t>(context.device())));
  set_zeros(context);
}

}  // namespace

constinit OperatorDef checkpoint_prove_op = {.name = "checkpoint_prove",
                                             .signature = "looks for a file that rank 0 wrote",
                                             .attributes = attribute_codec<OpenAttrs>(),
                                             .infer = open_infer,
                                             .kernel = prove_kernel,
                                             .klass = OperatorClass::kEffect,
                                             .placement_class = PlacementClass::kAnyLayout};
constinit OperatorDef checkpoint_open_op = {.name = "checkpoint_open",
                                            .signature = "opens a checkpoint's parts",
                                            .attributes = attribute_codec<OpenAttrs>(),
                                            .infer = open_infer,
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

namespace {

OpenAttrs proof_in(const std::filesystem::path& directory, const DeviceBinding& binding) {
  std::random_device random;
  OpenAttrs attributes{
      std::filesystem::absolute(directory).string(), std::to_string(random()) + "-" + std::to_string(random()), {}};
  for (int32_t node : binding.node_of_device) attributes.node_of_device.push_back(node);
  io::write_file(directory / kProof, attributes.proof);
  return attributes;
}

DeviceMesh mesh_of_all(const std::string& kind, int64_t num_devices) {
  return init_device_mesh(kind, Shape{num_devices});
}

struct RemovedAtEnd {
  const std::filesystem::path path;
  ~RemovedAtEnd() {
    std::error_code ignored;  // what it proved is known
    std::filesystem::remove(path, ignored);
  }
};

FileFacts facts_in(const std::string& text, int64_t node) {
  const nlohmann::json said = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (said.is_object() && said.contains("error"))
    throw RuntimeFault("node " + std::to_string(node) + ": " + said["error"].get<std::string>());
  DTORCH_CHECK(said.is_object(), "node " + std::to_string(node) + " says nothing of its part");
  return {said.at("bytes").get<int64_t>(), said.at("xxh3_128").get<std::string>()};
}

}  // namespace

std::map<int64_t, FileFacts> PartAnswers::get() const {
  const HostTensor rows = rows_.get();
  std::map<int64_t, FileFacts> out;
  for (size_t row = 0; row < nodes_.size(); ++row) {
    const auto* text = reinterpret_cast<const char*>(rows.bytes()) + row * static_cast<size_t>(kAnswerBytes);
    out[nodes_[row]] = facts_in({text, static_cast<size_t>(kAnswerBytes)}, nodes_[row]);
  }
  return out;
}

PartsCall::PartsCall(const std::filesystem::path& temporary, const std::string& kind, const DeviceBinding& binding,
                     const Where& where)
    : where_(where),
      mesh_(mesh_of_all(kind, binding.num_devices())),
      session_(next_host_data_number()),
      writes_of_device_(static_cast<size_t>(binding.num_devices())) {
  const OpenAttrs attributes = proof_in(temporary, binding);
  nodes_ = nodes_in(attributes.node_of_device);
  const Layout layouts[] = {Layout(mesh_, {Shard(0)}, 1)};
  const Scalar scalars[] = {Scalar::of_int(static_cast<int64_t>(session_))};
  record(checkpoint_open_op, attributes, {}, where_, {.scalars = scalars, .output_layouts = layouts});
}

PartsCall::~PartsCall() {
  if (is_finished_) return;
  try {
    // Until nobody writes there any more: the caller removes the folder.
    finish().get();
  } catch (const std::exception& error) {  // of the save, or the Graph has failed: there is no session any more
    log_debug("a save that was given up: {}", error.what());
  }
}

void PartsCall::write(const std::string& name, const Tensor& value) {
  const Scalar scalars[] = {Scalar::of_int(static_cast<int64_t>(session_))};
  record_many<0>(checkpoint_write_op, WriteAttrs{name}, {&value}, where_, {.scalars = scalars});
  for (int64_t device : value.mesh().devices()) ++writes_of_device_.at(static_cast<size_t>(device));
}

PartAnswers PartsCall::finish() {
  const Shape rows{static_cast<int64_t>(nodes_.size()), kAnswerBytes};
  auto payload = make_intrusive<RecordPayload>();
  payload->read = make_intrusive<ReadState>(rows, kUInt8, whole(rows));
  TensorFuture future(payload->read, current_graph().client().callbacks);
  const Layout layouts[] = {Layout(mesh_, {Shard(0)}, 1)};
  const Scalar scalars[] = {Scalar::of_int(static_cast<int64_t>(session_))};
  payload->add_ref();  // the call's
  is_finished_ = true;
  record(checkpoint_finish_op, FinishAttrs{writes_of_device_}, {}, where_,
         {.scalars = scalars, .output_layouts = layouts, .payload = payload.get()});
  current_graph().flush();
  return {std::move(future), nodes_};
}

void prove_shared(const std::filesystem::path& directory, const DeviceBinding& binding, const Where& where) {
  const OpenAttrs attributes = proof_in(directory, binding);
  const RemovedAtEnd proof{directory / kProof};
  const Layout layouts[] = {Layout(mesh_of_all("cpu", binding.num_devices()), {Shard(0)}, 1)};
  record(checkpoint_prove_op, attributes, {}, where, {.output_layouts = layouts}).to_host(where);
}

}  // namespace checkpoint
}  // namespace dtorch
