#include "tests/worker/cluster.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/def/moves_data.h"
#include "runtime/graph/compute_streams.h"
#include "runtime/graph/fused_runs.h"
#include "runtime/graph/transfer_buckets.h"

namespace dtorch::testing_worker {

const TensorMeta* meta(const DeviceMesh& mesh, const Shape& shape, const Placements& placements, DType dtype) {
  return intern_meta(shape, dtype, Layout(mesh, placements, shape.ndim()));
}

PieceWriter& PieceWriter::call(const OperatorDef* op, std::vector<std::pair<OperandId, const TensorMeta*>> inputs,
                               std::vector<std::pair<OperandId, const TensorMeta*>> outputs,
                               std::vector<int64_t> scalars) {
  std::vector<OperandId> input_ids, output_ids;
  std::vector<const TensorMeta*> input_metas, output_metas;
  for (auto [id, meta] : inputs) {
    input_ids.push_back(id);
    input_metas.push_back(meta);
  }
  for (auto [id, meta] : outputs) {
    output_ids.push_back(id);
    output_metas.push_back(meta);
  }
  uint32_t spec = spec_of(op, std::move(input_metas), std::move(output_metas));
  if (moves_data(known_[spec], OperatorRegistry::global())) ++transfers_;
  add(spec, input_ids, output_ids, scalars);
  return *this;
}

PieceWriter& PieceWriter::fuse(size_t num_calls) {
  std::vector<Operator>& calls = piece_.graph_part.operators;
  for (size_t i = calls.size() - num_calls; i + 1 < calls.size(); ++i) calls[i].flags |= kFusedWithNext;
  return *this;
}

PieceWriter& PieceWriter::together(size_t num_calls) {
  std::vector<Operator>& calls = piece_.graph_part.operators;
  for (size_t i = calls.size() - num_calls; i + 1 < calls.size(); ++i) calls[i].flags |= kSentWithNext;
  return *this;
}

PieceWriter& PieceWriter::on(uint16_t stream) {
  set_stream(piece_.graph_part.operators.back(), stream);
  return *this;
}

PieceWriter& PieceWriter::release(std::vector<OperandId> operands) {
  add(kReleaseSpec, operands, {}, {});
  return *this;
}

uint32_t PieceWriter::spec_of(const OperatorDef* op, std::vector<const TensorMeta*> inputs,
                              std::vector<const TensorMeta*> outputs) {
  for (const OperatorSpec& spec : known_) {
    if (spec.op == op->index && spec.inputs == inputs && spec.outputs == outputs) return spec.id;
  }
  OperatorSpec spec;
  spec.id = static_cast<uint32_t>(known_.size());
  spec.op = op->index;
  spec.inputs = std::move(inputs);
  spec.outputs = std::move(outputs);
  known_.push_back(spec);
  piece_.new_specs.push_back(spec);
  return spec.id;
}

void PieceWriter::add(uint32_t spec, const std::vector<OperandId>& inputs, const std::vector<OperandId>& outputs,
                      const std::vector<int64_t>& scalars) {
  LogicalGraph& graph = piece_.graph_part;
  Operator op;
  op.spec = spec;
  op.first_operand = static_cast<uint32_t>(graph.operands.size());
  op.first_scalar = static_cast<uint32_t>(graph.scalars.size());
  op.num_inputs = static_cast<uint16_t>(inputs.size());
  op.num_outputs = static_cast<uint16_t>(outputs.size());
  op.num_scalars = static_cast<uint16_t>(scalars.size());
  graph.operators.push_back(op);
  graph.operands.insert(graph.operands.end(), inputs.begin(), inputs.end());
  graph.operands.insert(graph.operands.end(), outputs.begin(), outputs.end());
  for (int64_t scalar : scalars) graph.scalars.push_back(Scalar::of_int(scalar));
}

Piece PieceWriter::take() {
  Piece piece = std::move(piece_);
  piece.graph = graph_;
  piece_ = Piece();
  piece_.first_transfer = transfers_;
  return piece;
}

Cluster::Cluster(std::vector<int32_t> node_of_device, int32_t fan_out, int32_t compute_streams)
    : fabric_(*std::max_element(node_of_device.begin(), node_of_device.end()) + 1),
      tree_(fabric_.num_nodes(), fan_out) {
  ops();
  config_.node_of_device = node_of_device;
  config_.num_nodes = fabric_.num_nodes();
  config_.fan_out = fan_out;
  config_.compute_streams = compute_streams;
  std::vector<int32_t> used(static_cast<size_t>(config_.num_nodes));
  for (int32_t node : node_of_device) config_.slot_of_device.push_back(used[static_cast<size_t>(node)]++);
  for (int32_t number = 0; number < config_.num_nodes; ++number) {
    auto node = std::make_unique<Node>();
    node->comm = std::make_unique<CommThread>(fabric_.make_transport(number), std::vector<ProgressSource*>{},
                                              [](std::exception_ptr) { ADD_FAILURE() << "the comm thread failed"; });
    node->worker = std::make_unique<SubController>(number, fabric_.control(number), *node->comm);
    node->thread = std::thread([raw = node.get()] { raw->code = raw->worker->run(); });
    nodes_.push_back(std::move(node));
  }
  send_to_all(encode(config_));
}

void Cluster::begin_epoch(uint32_t epoch) {
  config_.epoch = epoch;
  encoder_ = {};
  send_to_all(encode(config_));
}

void Cluster::send_to_all(Message message) {
  message.epoch = config_.epoch;
  for (int32_t node : tree_.children(kController)) controller().send(node, message);
}

Cluster::~Cluster() {
  if (!ended_) end(1);
}

Sequence Cluster::send(PieceWriter& writer) {
  Piece piece = writer.take();
  piece.sequence = next_++;
  send_to_all(encoder_.encode(piece));
  return piece.sequence;
}

void Cluster::define(PieceWriter& writer, TemplateId id, uint32_t num_live_ins) {
  Piece piece = writer.take();
  TemplateDefinition definition;
  definition.graph = writer.graph();
  definition.id = id;
  definition.new_specs = std::move(piece.new_specs);
  definition.body = std::make_shared<const TemplateBody>(std::move(piece.graph_part), num_live_ins);
  send_to_all(encoder_.encode(definition));
}

Sequence Cluster::replay(Replay replay) {
  replay.sequence = next_++;
  send_to_all(encode(replay));
  return replay.sequence;
}

Sequence Cluster::send_to(int32_t node, PieceWriter& writer) {
  Piece piece = writer.take();
  piece.sequence = next_++;
  controller().send(node, encoder_.encode(piece));
  return piece.sequence;
}

void Cluster::feed(uint64_t number, const std::vector<int64_t>& values, std::vector<int32_t> nodes) {
  auto bytes = std::make_shared<Bytes>(values.size() * sizeof(int64_t));
  if (!values.empty()) std::memcpy(bytes->data(), values.data(), bytes->size());
  send_to_all(encode(Feed{0, number, 1, std::move(nodes)}, bytes));
}

void Cluster::handle_one() {
  std::optional<Envelope> envelope = controller().inbox().pop_for(std::chrono::seconds(60));
  ASSERT_TRUE(envelope.has_value()) << "nothing arrives any more";
  const Message& message = envelope->message;
  switch (message.kind) {
    case MessageKind::kHello:
      EXPECT_EQ(decode_hello(message).registry_hash, OperatorRegistry::global().hash());
      break;
    case MessageKind::kAck:
      acks_[decode_ack(message).node].push_back(decode_ack(message));
      break;
    case MessageKind::kError:
      errors_.push_back(decode_error(message));
      break;
    case MessageKind::kReadData: {
      ReadData data = decode_read_data(message);
      reads_[data.read].emplace_back(data.box, message.payload);
      break;
    }
    case MessageKind::kGoodbye:
      ++goodbyes_;
      break;
    default:
      ADD_FAILURE() << "unexpected message";
      break;
  }
}

bool Cluster::acknowledged(int32_t node, Sequence sequence) {
  for (const Ack& ack : acks_[node]) {
    if (std::find(ack.sequences.begin(), ack.sequences.end(), sequence) != ack.sequences.end()) return true;
  }
  return false;
}

void Cluster::wait_for(Sequence sequence, int32_t node) {
  while (!acknowledged(node, sequence) && !::testing::Test::HasFatalFailure()) handle_one();
}

void Cluster::wait_for(Sequence sequence) {
  for (int32_t node : tree_.children(kController)) wait_for(sequence, node);
}

void Cluster::wait_for_errors(size_t count) {
  while (errors_.size() < count && !::testing::Test::HasFatalFailure()) handle_one();
}

std::map<int64_t, int64_t> Cluster::read(uint64_t number, const Shape& global_shape) {
  std::map<int64_t, int64_t> values;
  Shape strides = contiguous_strides(global_shape);
  for (const auto& [box, bytes] : reads_[number]) {
    Shape index(box.ndim(), 0);
    for (int64_t i = 0; i < box.num_elements(); ++i) {
      int64_t at = 0, value = 0;
      for (int64_t dim = 0; dim < box.ndim(); ++dim) at += (box.offset[dim] + index[dim]) * strides[dim];
      std::memcpy(&value, bytes->data() + static_cast<size_t>(i) * sizeof value, sizeof value);
      EXPECT_EQ(values.count(at), 0u) << "element " << at << " came twice";
      values[at] = value;
      for (int64_t dim = box.ndim() - 1; dim >= 0 && ++index[dim] == box.size[dim]; --dim) index[dim] = 0;
    }
  }
  return values;
}

std::vector<int> Cluster::end(int exit_code) {
  ended_ = true;
  Message message = encode(Shutdown{exit_code, "the test ends"});
  for (int32_t node = 0; node < fabric_.num_nodes(); ++node) controller().send(node, message);
  while (goodbyes_ < fabric_.num_nodes() && !::testing::Test::HasFatalFailure()) handle_one();
  std::vector<int> codes;
  for (const std::unique_ptr<Node>& node : nodes_) {
    node->thread.join();
    codes.push_back(node->code);
  }
  for (const std::unique_ptr<Node>& node : nodes_) node->comm->stop(exit_code != 0);
  nodes_.clear();
  return codes;
}

}  // namespace dtorch::testing_worker
