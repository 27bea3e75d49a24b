#include "runtime/simulation/simulated_memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "mesh/redistribute_plan.h"

namespace dtorch {
namespace {

constexpr int64_t kNoPart = -1;
constexpr uint32_t kNoStorage = ~0u;

enum class Kind : uint8_t {
  kNew,       // results have storages of their own
  kView,      // the result is a view of the first input
  kReshape,   // a view when the input is contiguous
  kTakesOver  // results lie in the storages of inputs that are theirs alone
};

// Of the operators' kernels; operators that aren't here make new results.
Kind kind_of(std::string_view name) {
  for (std::string_view view : {"permute", "expand", "slice", "split", "unbind", "squeeze", "unsqueeze", "diagonal",
                                "unfold_dim", "ring_split"}) {
    if (name == view) return Kind::kView;
  }
  for (std::string_view view : {"reshape", "contiguous"}) {
    if (name == view) return Kind::kReshape;
  }
  for (std::string_view step :
       {"adamw_step", "sgd_step", "scale_all", "ring_attention_step", "ring_attention_grad_step", "cache_append"}) {
    if (name == step) return Kind::kTakesOver;
  }
  return Kind::kNew;
}

// A view of these is as contiguous as what it is a view of.
bool keeps_order(std::string_view name) { return name == "squeeze" || name == "unsqueeze"; }

Box part_of(const TensorMeta& meta, int64_t device) { return meta.layout.box_of(meta.global_shape, device); }
bool holds(const TensorMeta& meta, int64_t device) { return meta.layout.mesh().index_of(device) >= 0; }

// Whether a device's part after a redistribution lies in the storage of its part before: as it is, or as a slice.
bool keeps_part(PlanKind kind, const TensorMeta& from, const TensorMeta& to, int64_t device) {
  if (!holds(from, device)) return false;
  if (kind == PlanKind::kNothing) return true;
  if (kind == PlanKind::kTransfer) return !from.layout.has_partial() && part_of(from, device) == part_of(to, device);
  // Of a value that becomes a pending sum one position keeps it, the others make zeros.
  const DeviceMesh& mesh = to.layout.mesh();
  const Shape position = mesh.coordinate_of_index(mesh.index_of(device));
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    const bool becomes_sum =
        to.layout.placement(axis).is_partial(ReduceOp::kSum) && !from.layout.placement(axis).is_partial();
    if (becomes_sum && position[axis] != 0) return false;
  }
  return true;
}

// Bytes of every device's part, where the mesh has all devices and cuts every dim evenly.
std::optional<int64_t> even_bytes(const TensorMeta& meta, size_t num_devices) {
  const DeviceMesh& mesh = meta.layout.mesh();
  if (mesh.num_devices() != static_cast<int64_t>(num_devices)) return std::nullopt;
  Shape parts(meta.global_shape.ndim(), 1);
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    const Placement& placement = meta.layout.placement(axis);
    if (placement.is_shard()) parts[placement.dim] *= mesh.shape()[axis];
  }
  int64_t bytes = size_of(meta.dtype);
  for (int64_t d = 0; d < parts.ndim(); ++d) {
    if (meta.global_shape[d] % parts[d] != 0) return std::nullopt;
    bytes *= meta.global_shape[d] / parts[d];
  }
  return bytes;
}

// keeps_part of all devices, where it is the same; of values with even_bytes.
std::optional<bool> all_keep_part(PlanKind kind, const TensorMeta& from, int64_t from_bytes, int64_t to_bytes) {
  if (kind == PlanKind::kNothing) return true;
  if (kind == PlanKind::kTransfer && (from.layout.has_partial() || from_bytes != to_bytes)) return false;
  return std::nullopt;
}

}  // namespace

struct SimulatedMemory::Spec {
  // What one device gets of a result.
  struct Part {
    int64_t bytes = kNoPart;
    bool shares_input = false;  // of a redistribution: the device keeps its part, or a slice of it
    friend auto operator<=>(const Part&, const Part&) = default;
  };
  // What every device gets, when that is seen without looking at each: of nearly every spec.
  static std::optional<std::vector<Part>> parts_of_all(const OperatorSpec& definition, bool moves, PlanKind kind,
                                                       size_t num_devices) {
    std::vector<Part> parts;
    for (const TensorMeta* meta : definition.outputs) {
      const std::optional<int64_t> bytes = even_bytes(*meta, num_devices);
      if (!bytes) return std::nullopt;
      Part& part = parts.emplace_back(Part{*bytes});
      if (!moves) continue;
      const std::optional<int64_t> from_bytes = even_bytes(*definition.inputs[0], num_devices);
      if (!from_bytes) return std::nullopt;
      const std::optional<bool> keep = all_keep_part(kind, *definition.inputs[0], *from_bytes, *bytes);
      if (!keep) return std::nullopt;
      part.shares_input = *keep;
    }
    return parts;
  }
  Kind kind = Kind::kNew;
  bool keeps_order = false;
  std::vector<std::vector<Part>> by_class;
};

// One class: the values of each Graph and the storages they lie in.
class SimulatedMemory::Devices {
  struct Value {
    uint32_t storage = kNoStorage;
    bool contiguous = true;
  };
  using Values = std::vector<Value>;

 public:
  int64_t in_use = 0, peak = 0;

  // By slot, and by name of the instance of a template under way.
  Values& values_of(GraphId graph, bool in_instance) {
    return in_instance ? tables_[graph].names : tables_[graph].slots;
  }
  void call(Values& values, const LogicalGraph& calls, const Operator& op, const Spec& spec,
            const std::vector<Spec::Part>& parts) {
    const std::span<const OperandId> inputs = calls.inputs(op), outputs = calls.outputs(op);
    std::vector<Value> results(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (parts[i].bytes != kNoPart) results[i] = result_of(values, inputs, spec, parts[i]);
    }
    for (OperandId input : inputs) {
      if ((input & kLastUse) != 0) drop(values, input & kMaxOperand);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      put(values, outputs[i], results[i]);
    }
  }
  void share(Values& values, const LogicalGraph& calls, const Operator& op) {
    for (size_t i = 0; i < calls.inputs(op).size(); ++i) {
      const OperandId input = calls.inputs(op)[i];
      Value value;
      if (const Value* found = find(values, input & kMaxOperand)) {
        value = *found;
        ++storages_[value.storage].num_values;
      }
      put(values, calls.outputs(op)[i], value);
      if ((input & kLastUse) != 0) drop(values, input & kMaxOperand);
    }
  }
  void release(Values& values, std::span<const OperandId> operands) {
    for (OperandId operand : operands) drop(values, operand & kMaxOperand);
  }
  void move(Values& from, OperandId source, Values& to, OperandId destination) {
    Value value;
    if (const Value* found = find(from, source)) value = *found;
    if (source < from.size()) from[source] = {};
    put(to, destination, value);
  }
  void forget(GraphId graph) {
    for (Values* values : {&tables_[graph].slots, &tables_[graph].names}) {
      for (size_t i = 0; i < values->size(); ++i) drop(*values, static_cast<OperandId>(i));
    }
    tables_.erase(graph);
  }

  DeviceMemory memory(int64_t device, size_t num_largest) const {
    DeviceMemory memory{device, in_use, peak, 0};
    std::vector<bool> seen(storages_.size(), false);
    const auto add = [&](GraphId graph, const Values& values, OperandId kind) {
      for (size_t i = 0; i < values.size(); ++i) {
        const uint32_t storage = values[i].storage;
        if (storage == kNoStorage || seen[storage]) continue;
        seen[storage] = true;
        ++memory.num_tensors;
        memory.largest.push_back({graph, kind | static_cast<OperandId>(i), storages_[storage].bytes});
      }
    };
    for (const auto& [graph, table] : tables_) {
      add(graph, table.slots, 0);
      add(graph, table.names, kNameInInstance);
    }
    std::stable_sort(memory.largest.begin(), memory.largest.end(),
                     [](const LiveTensor& a, const LiveTensor& b) { return a.storage_bytes > b.storage_bytes; });
    if (memory.largest.size() > num_largest) memory.largest.resize(num_largest);
    return memory;
  }

 private:
  struct Storage {
    int64_t bytes = 0;
    int32_t num_values = 0;  // 0: free
  };
  struct Table {
    Values slots, names;
  };

  static const Value* find(const Values& values, OperandId slot) {
    const bool there = slot < values.size() && values[slot].storage != kNoStorage;
    return there ? &values[slot] : nullptr;
  }

  // The value has been counted in its storage.
  void put(Values& values, OperandId at, const Value& value) {
    drop(values, at);
    if (value.storage == kNoStorage) return;
    if (at >= values.size()) values.resize(size_t{at} + 1);
    values[at] = value;
  }

  Value result_of(const Values& values, std::span<const OperandId> inputs, const Spec& spec, const Spec::Part& part) {
    const Value* first = inputs.empty() ? nullptr : find(values, inputs[0] & kMaxOperand);
    const bool is_view = spec.kind == Kind::kView || (spec.kind == Kind::kReshape && first && first->contiguous);
    if (first && (is_view || part.shares_input)) {
      ++storages_[first->storage].num_values;
      const bool keeps = part.shares_input || spec.kind == Kind::kReshape || spec.keeps_order;
      return {first->storage, first->contiguous && keeps};
    }
    if (spec.kind == Kind::kTakesOver) {
      for (OperandId input : inputs) {
        const Value* value = find(values, input & kMaxOperand);
        if ((input & kLastUse) == 0 || !value) continue;
        // One value: nobody else has it, nor another result of this call.
        Storage& storage = storages_[value->storage];
        if (storage.num_values != 1 || storage.bytes != part.bytes) continue;
        ++storage.num_values;
        return {value->storage};
      }
    }
    return {allocate(part.bytes)};
  }

  uint32_t allocate(int64_t bytes) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(storages_.size()));
      storages_.emplace_back();
    }
    const uint32_t storage = free_.back();
    free_.pop_back();
    storages_[storage] = {bytes, 1};
    in_use += bytes;
    peak = std::max(peak, in_use);
    return storage;
  }

  void drop(Values& values, OperandId slot) {
    if (slot >= values.size()) return;
    const uint32_t storage = values[slot].storage;
    if (storage == kNoStorage) return;
    values[slot] = {};
    if (--storages_[storage].num_values > 0) return;
    in_use -= storages_[storage].bytes;
    free_.push_back(storage);
  }

  std::map<GraphId, Table> tables_;
  std::vector<Storage> storages_;
  std::vector<uint32_t> free_;
};

SimulatedMemory::SimulatedMemory(int64_t num_devices) : class_of_device_(static_cast<size_t>(num_devices), 0) {
  classes_.push_back(std::make_unique<Devices>());
}
SimulatedMemory::~SimulatedMemory() = default;

void SimulatedMemory::define(GraphId graph, const OperatorSpec& definition) {
  std::vector<std::unique_ptr<Spec>>& specs = specs_[graph];
  if (specs.size() <= definition.id) specs.resize(size_t{definition.id} + 1);
  auto spec = std::make_unique<Spec>();
  const OperatorDef& def = OperatorRegistry::global().at(definition.op);
  spec->kind = kind_of(def.name);
  spec->keeps_order = keeps_order(def.name);
  const bool moves = def.lowering == Lowering::kTransfer && definition.inputs.size() == 1;
  const PlanKind kind =
      moves ? make_redistribute_plan(definition.inputs[0], definition.outputs[0]).kind : PlanKind::kNothing;
  if (auto parts = Spec::parts_of_all(definition, moves, kind, class_of_device_.size())) {
    spec->by_class.assign(classes_.size(), *parts);
    specs[definition.id] = std::move(spec);
    return;
  }
  spec->by_class.resize(classes_.size());
  // By class and what its devices get: the class that they are in from now on.
  std::map<std::pair<uint32_t, std::vector<Spec::Part>>, uint32_t> split;
  std::vector<bool> kept(classes_.size(), false);
  for (size_t d = 0; d < class_of_device_.size(); ++d) {
    const auto device = static_cast<int64_t>(d);
    std::vector<Spec::Part> parts;
    for (const TensorMeta* meta : definition.outputs) {
      Spec::Part& part = parts.emplace_back();
      if (!holds(*meta, device)) continue;
      const Box box = part_of(*meta, device);
      part.bytes = box.num_elements() * size_of(meta->dtype);
      part.shares_input = moves && keeps_part(kind, *definition.inputs[0], *meta, device);
    }
    const uint32_t before = class_of_device_[d];
    const auto [at, is_new] = split.try_emplace({before, parts}, before);
    if (is_new && kept[before]) {
      // Others of the class get something else: these are a class of their own, with the same past.
      at->second = static_cast<uint32_t>(classes_.size());
      classes_.push_back(std::make_unique<Devices>(*classes_[before]));
      for (auto& [id, known] : specs_) {
        for (const std::unique_ptr<Spec>& one : known) {
          if (one) one->by_class.push_back(one->by_class[before]);
        }
      }
      spec->by_class.emplace_back();
    }
    if (is_new) spec->by_class[at->second] = std::move(parts);
    if (is_new && before < kept.size()) kept[before] = true;
    class_of_device_[d] = at->second;
  }
  specs_[graph][definition.id] = std::move(spec);
}

void SimulatedMemory::run(GraphId graph, const LogicalGraph& calls) { run_calls(graph, calls, calls.operators, false); }

void SimulatedMemory::replay(const Replay& replay) {
  const TemplateBody& body = *replay.body;
  std::vector<OperandId>& slots = slot_of_name_[replay.graph];
  if (slots.size() < body.num_names()) slots.resize(body.num_names());
  size_t next_operand = 0;
  for (OperandId name : body.externals(replay.first_call, replay.end_call)) {
    slots[name] = replay.operands[next_operand++];
    if (body.is_live_in(name)) move(replay.graph, slots[name], name, true);
  }
  const std::span<const Operator> operators = body.calls().operators;
  run_calls(replay.graph, body.calls(), operators.subspan(replay.first_call, replay.end_call - replay.first_call),
            true);
  if (!replay.ends) return;
  for (OperandId name : body.externals(0, replay.end_call)) {
    if (body.alive_before(name, replay.end_call)) move(replay.graph, slots[name], name, false);
  }
  if (replay.end_call == body.num_calls()) return;
  for (OperandId name : body.temporaries_alive(replay.end_call))
    move(replay.graph, replay.operands[next_operand++], name, false);
}

void SimulatedMemory::move(GraphId graph, OperandId slot, OperandId name, bool into_instance) {
  for (const std::unique_ptr<Devices>& devices : classes_) {
    auto& slots = devices->values_of(graph, false);
    auto& names = devices->values_of(graph, true);
    into_instance ? devices->move(slots, slot, names, name) : devices->move(names, name, slots, slot);
  }
}

void SimulatedMemory::forget(GraphId graph) {
  for (const std::unique_ptr<Devices>& devices : classes_) devices->forget(graph);
  specs_.erase(graph);
  slot_of_name_.erase(graph);
}

void SimulatedMemory::run_calls(GraphId graph, const LogicalGraph& calls, std::span<const Operator> operators,
                                bool in_instance) {
  const std::vector<std::unique_ptr<Spec>>& specs = specs_[graph];
  for (const Operator& op : operators) {
    if (op.is_call())
      DTORCH_CHECK(op.spec < specs.size() && specs[op.spec] != nullptr, "a call of an unknown operator spec");
    for (size_t c = 0; c < classes_.size(); ++c) {
      Devices& devices = *classes_[c];
      auto& values = devices.values_of(graph, in_instance);
      if (op.spec == kReleaseSpec) {
        devices.release(values, calls.inputs(op));
      } else if (op.spec == kAliasSpec) {
        devices.share(values, calls, op);
      } else {
        devices.call(values, calls, op, *specs[op.spec], specs[op.spec]->by_class[c]);
      }
    }
  }
}

void SimulatedMemory::reset_peaks() {
  for (const std::unique_ptr<Devices>& devices : classes_) devices->peak = devices->in_use;
}

int64_t SimulatedMemory::bytes_in_use_of(uint32_t class_number) const { return classes_[class_number]->in_use; }
int64_t SimulatedMemory::peak_bytes_of(uint32_t class_number) const { return classes_[class_number]->peak; }
int64_t SimulatedMemory::bytes_in_use(int64_t device) const { return class_of(device).in_use; }
int64_t SimulatedMemory::peak_bytes(int64_t device) const { return class_of(device).peak; }
DeviceMemory SimulatedMemory::memory(int64_t device, size_t num_largest) const {
  return class_of(device).memory(device, num_largest);
}

}  // namespace dtorch
