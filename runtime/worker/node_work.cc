#include "runtime/worker/node_work.h"

#include <algorithm>

#include "mesh/binding.h"
#include "runtime/graph/compute_streams.h"
#include "runtime/graph/transfer_buckets.h"

namespace dtorch {
namespace {

// Operand numbers are dense, so a larger one is damage.
constexpr size_t kMaxSlots = size_t{1} << 26;
// More threads don't fold faster than memory answers.
constexpr size_t kMaxFoldThreads = 8;

void check_slot(OperandId slot) {
  if (slot >= kMaxSlots) throw DecodeError("operand number " + std::to_string(slot) + " is too large");
}

size_t num_slots(const std::vector<OperandId>& operands) {
  OperandId last = 0;
  for (OperandId id : operands) last = std::max(last, id & kMaxOperand);
  check_slot(last);
  return operands.empty() ? 0 : size_t{last} + 1;
}

}  // namespace

NodeWork::NodeWork(std::shared_ptr<NodeContext> node, DeviceBackend& backend, std::map<int64_t, MemoryCounter*>& memory)
    : node_(std::move(node)),
      backend_(backend),
      local_devices_(devices_of(node_->binding, node_->node)),
      decoder_(static_cast<uint16_t>(OperatorRegistry::global().size()), node_->binding.num_devices()) {
  for (int64_t device : local_devices_) {
    MemoryCounter*& counter = memory[device];
    if (counter == nullptr) counter = new_memory_counter();
    node_->devices.emplace_back(device, counter, node_->num_streams());
  }
  // While the comm thread folds, streams wait for it: with it no more threads than these, nor than cores.
  const size_t num_busy = std::min<size_t>(local_devices_.size(), std::thread::hardware_concurrency());
  node_->helpers = std::make_unique<HelperThreads>(std::clamp<size_t>(num_busy, 1, kMaxFoldThreads) - 1);
  if (AcceleratorLibrary* library = backend.library(); library != nullptr && library->communicators() != nullptr) {
    // A little sooner than the job's end, so that who waits for whom is what one reads.
    constexpr double kPartOfDeadline = 0.5;
    node_->num_accelerators = library->num_accelerators();
    node_->communicators =
        std::make_shared<DeviceCommunicators>(*library->communicators(), node_->comm, node_->node, node_->config.epoch,
                                              kPartOfDeadline * node_->config.deadline_s);
  }
  for (size_t i = 0; i < local_devices_.size(); ++i)
    streams_.push_back(std::make_unique<KernelStream>(node_, backend_, i, local_devices_[i]));
}

NodeWork::~NodeWork() { end(false); }

void NodeWork::take_feed(const Feed& feed, SharedBytes bytes) {
  if (!bytes) bytes = std::make_shared<const Bytes>();
  feeds_[feed.feed] = {std::move(bytes), feed.num_uses};
}

SnapshotOrder NodeWork::take_snapshot(const Message& message) {
  SnapshotOrder order = decoder_.decode_snapshot(message);
  const int32_t num_nodes = order.places.num_nodes();
  if (num_nodes != 0 && num_nodes != node_->config.num_nodes) {
    throw DecodeError("a snapshot has places on " + std::to_string(num_nodes) + " nodes; there are " +
                      std::to_string(node_->config.num_nodes));
  }
  for (const LiveValue& value : order.values) check_slot(value.slot);
  return order;
}

NodeWork::GraphState& NodeWork::graph_of(GraphId id) {
  const auto [at, is_new] = graphs_.try_emplace(id);
  if (is_new) {
    if (free_numbers_.empty()) free_numbers_.push_back(graphs_.size() - 1);
    at->second.number = free_numbers_.back();
    free_numbers_.pop_back();
  }
  return at->second;
}

void NodeWork::take_piece(const Message& message) {
  auto run = std::make_unique<PieceRun>();
  run->piece = decoder_.decode(message);
  check_streams(run->piece.graph_part);
  GraphState& graph = graph_of(run->piece.graph);
  add_specs(std::move(run->piece.new_specs), graph);
  if (run->piece.sequence == 0) return;
  run->num_slots = num_slots(run->piece.graph_part.operands);
  if (!run->piece.closes_graph) return start(std::move(run), graph);
  auto retired = std::make_shared<GraphState>(std::move(graph));
  graphs_.erase(run->piece.graph);
  free_numbers_.push_back(retired->number);  // streams empty their table with this piece, before the next Graph's first
  run->retired = retired;
  start(std::move(run), *retired);
}

void NodeWork::take_template(const Message& message) {
  TemplateDefinition definition = decoder_.decode_template(message);
  check_streams(definition.body->calls());
  GraphState& graph = graph_of(definition.graph);
  add_specs(std::move(definition.new_specs), graph);
  if (graph.templates.size() <= definition.id) graph.templates.resize(size_t{definition.id} + 1);
  auto plan = std::make_shared<TemplatePlan>(definition.body, graph.specs, streams_.size(), node_->num_streams());
  for (uint32_t scalar : definition.varying) {
    plan->varying.add(scalar);
    for (TemplatePlan::Device& device : plan->devices) device.varying.add(scalar);
  }
  graph.templates[definition.id] = std::move(plan);
}

void NodeWork::take_replay(const Message& message) {
  Replay replay = decoder_.decode_replay(message);
  GraphState& graph = graph_of(replay.graph);
  auto run = std::make_unique<PieceRun>();
  run->piece.sequence = replay.sequence;
  run->piece.graph = replay.graph;
  run->piece.first_transfer = replay.first_transfer;
  run->piece.wants_ack_now = replay.wants_ack_now;
  run->piece.wants_statistics = replay.wants_statistics;
  run->num_slots = num_slots(replay.operands);
  std::shared_ptr<TemplatePlan> plan = graph.templates.at(replay.id);
  if (node_->num_streams() > 1) run->scalars_of_device.resize(streams_.size());
  run->replay = std::make_unique<const ReplayRun>(std::move(plan), std::move(replay));
  start(std::move(run), graph);
}

void NodeWork::check_streams(const LogicalGraph& calls) const {
  for (const Operator& op : calls.operators) {
    if (stream_of(op) >= node_->num_streams())
      throw DecodeError("a call is of compute stream " + std::to_string(stream_of(op)) + "; there are " +
                        std::to_string(node_->num_streams()));
  }
}

// Prepares everything that can fail before any stream sees the run.
void NodeWork::start(std::unique_ptr<PieceRun> run, GraphState& graph) {
  run->node = node_;
  run->graph = graph.number;
  run->new_specs.swap(graph.untold_specs);
  run->parts.store(static_cast<int64_t>(streams_.size()) + 1, std::memory_order_relaxed);
  node_->acks.begin(run->piece.sequence, run->piece.wants_ack_now, run->piece.wants_statistics);
  PieceRun* shared = run.release();  // freed by its last part
  try {
    if (shared->replay) {
      prepare_replay(*shared);
    } else {
      prepare_calls(*shared, graph);
    }
  } catch (...) {
    bucket_.clear();
    shared->parts.fetch_sub(static_cast<int64_t>(streams_.size()), std::memory_order_relaxed);
    shared->finish_part();
    throw;
  }
  for (const std::unique_ptr<KernelStream>& stream : streams_) stream->push(shared);
  shared->finish_part();
}

void NodeWork::add_specs(std::vector<OperatorSpec> new_specs, GraphState& graph) {
  for (OperatorSpec& spec : new_specs) {
    // Numbers are dense but for specs whose calls were all dropped; the decoder has bounded them.
    if (graph.specs.size() <= spec.id) graph.specs.resize(size_t{spec.id} + 1);
    std::unique_ptr<const LoweredSpec>& lowered = graph.specs[spec.id];
    DTORCH_CHECK(lowered == nullptr, "an operator spec is defined twice");
    lowered = lower_spec(std::move(spec), local_devices_, *node_, backend_);
    graph.untold_specs.push_back(lowered.get());
  }
}

void NodeWork::prepare_calls(PieceRun& run, const GraphState& graph) {
  const LogicalGraph& calls = run.piece.graph_part;
  uint64_t transfer = run.piece.first_transfer;
  BucketWalk buckets;
  for (size_t i = 0; i < calls.operators.size(); ++i) {
    const Operator& op = calls.operators[i];
    if (!op.is_call()) {
      buckets.goes_on(op, false);
      continue;
    }
    DTORCH_CHECK(op.spec < graph.specs.size() && graph.specs[op.spec] != nullptr, "a call of an unknown operator spec");
    const LoweredSpec& spec = *graph.specs[op.spec];
    const bool goes_on = buckets.goes_on(op, spec.moves);
    if (spec.moves && !goes_on) submit_bucket();
    if (spec.moves) prepare_move(run, static_cast<uint32_t>(i), transfer++, spec);
    if (!spec.uses_feed) continue;
    DTORCH_CHECK(op.num_scalars >= 1, "from_host without the number of its host data");
    prepare_feed(run, calls.scalars_of(op)[0].bits, static_cast<uint32_t>(i), spec);
  }
  submit_bucket();
}

void NodeWork::prepare_replay(PieceRun& run) {
  const Replay& replay = run.replay->replay;
  TemplatePlan& plan = *run.replay->plan;
  for (uint32_t scalar : replay.new_varying) plan.varying.add(scalar);
  const std::vector<TemplatePlan::Prepared>& prepared = plan.prepared;
  const auto before = [](const TemplatePlan::Prepared& a, uint32_t call) { return a.call < call; };
  uint64_t transfer = run.piece.first_transfer;
  for (auto at = std::lower_bound(prepared.begin(), prepared.end(), replay.first_call, before);
       at != prepared.end() && at->call < replay.end_call; ++at) {
    const uint32_t op_index = at->call - replay.first_call;
    if (at->spec->moves && !at->goes_on) submit_bucket();
    if (at->spec->moves) prepare_move(run, op_index, transfer++, *at->spec);
    if (at->spec->uses_feed) prepare_feed(run, plan.first_scalar_of(at->call, replay), op_index, *at->spec);
  }
  submit_bucket();
}

void NodeWork::prepare_feed(PieceRun& run, uint64_t number, uint32_t op_index, const LoweredSpec& spec) {
  auto at = feeds_.find(number);
  if (at == feeds_.end()) return;  // the kernel says so
  if (spec.num_users > 0) {
    PieceRun::FeedUse& use = run.feeds.emplace_back();
    use.op_index = op_index;
    use.bytes = at->second.bytes;
    use.users.store(spec.num_users, std::memory_order_relaxed);
  }
  if (at->second.uses_left <= 1) {
    feeds_.erase(at);
  } else {
    --at->second.uses_left;
  }
}

void NodeWork::prepare_move(PieceRun& run, uint32_t op_index, uint64_t number, const LoweredSpec& spec) {
  if (!spec.takes_part) return;
  PieceRun::Move& move = run.moves.emplace_back();
  move.op_index = op_index;
  const size_t num_outputs = spec.spec.outputs.size();
  move.arrivals.resize(local_devices_.size() * num_outputs);
  std::vector<IntrusivePtr<Arrival>> arrivals;  // in the plan's order
  for (int64_t device : spec.move_destinations()) {
    auto index =
        static_cast<size_t>(std::find(local_devices_.begin(), local_devices_.end(), device) - local_devices_.begin());
    DTORCH_CHECK(index < local_devices_.size(), "a plan names a device that isn't of this node");
    for (size_t output = 0; output < num_outputs; ++output) {
      arrivals.push_back(make_intrusive<Arrival>(streams_[index]->parker(), *node_->devices[index].memory,
                                                 Place{run.piece.sequence, op_index}, spec.spec.id));
      move.arrivals[index * num_outputs + output] = arrivals.back();
    }
  }
  if (!spec.groups.empty()) return node_->communicators->prepare(run.piece.graph, spec.groups, number, node_->binding);
  run.parts.fetch_add(1, std::memory_order_relaxed);
  if (spec.plan && streams_.front()->queue() && DeviceMove::is_within_node(*spec.plan)) {
    DeviceMove::Queues queues;
    for (size_t i = 0; i < streams_.size(); ++i) queues[local_devices_[i]] = streams_[i]->queue();
    move.on_devices = std::make_shared<DeviceMove>(spec.plan, op_index, std::move(queues), std::move(arrivals), &run);
    return;
  }
  const auto begin = [&](auto task) {
    if (!spec.move_sources().empty()) {
      move.task = IntrusivePtr<CommTask>(task.get());
      move.sources = &task->sources();
      move.providers.store(static_cast<int64_t>(spec.move_sources().size()), std::memory_order_relaxed);
    }
    bucket_.push_back({IntrusivePtr<CommTask>(task.get()), spec.plan, number});
  };
  if (spec.plan)
    begin(make_intrusive<OperandTransfer>(spec.plan, number, op_index, std::move(arrivals), &run));
  else
    begin(make_intrusive<OperandExchange>(spec.exchange, number, op_index, std::move(arrivals), &run));
}

// Before the sources exist, so that receives are posted early and all nodes start moves in one order.
void NodeWork::submit_bucket() {
  if (bucket_.size() > 1) {
    const auto has_plan = [](const Bucket::Member& member) { return member.plan != nullptr; };
    DTORCH_CHECK(std::ranges::all_of(bucket_, has_plan), "an exchange of rows isn't put together with others");
    node_->comm.submit(IntrusivePtr<CommTask>(new Bucket(std::move(bucket_))));
  } else if (!bucket_.empty()) {
    node_->comm.submit(std::move(bucket_.front().transfer));
  }
  bucket_.clear();
}

void NodeWork::run_on_streams(const std::function<void(KernelStream& stream, size_t local_index)>& errand) {
  if (streams_.empty()) return;
  auto run = std::make_unique<PieceRun>();
  run->node = node_;
  run->errand = errand;
  run->parts.store(static_cast<int64_t>(streams_.size()), std::memory_order_relaxed);
  PieceRun* shared = run.release();  // freed by its last part
  for (const std::unique_ptr<KernelStream>& stream : streams_) stream->push(shared);
}

void NodeWork::end(bool drain) {
  if (drain) {
    node_->acks.wait_idle();
  } else {
    node_->acks.silence();
    node_->background.silence();
    node_->aborting.store(true);
    if (node_->communicators) node_->communicators->cancel();
    for (const std::unique_ptr<KernelStream>& stream : streams_) stream->wake();
  }
  for (const std::unique_ptr<KernelStream>& stream : streams_) stream->stop();
}

}  // namespace dtorch
