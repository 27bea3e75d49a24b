// A Main-Controller over the in-process fabric, with nodes that only pretend, and Graphs whose records the test writes
// itself.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/comm/in_process.h"
#include "runtime/controller/main_controller.h"
#include "runtime/graph/inspection.h"
#include "runtime/graph/templates.h"

namespace dtorch {

// Operators "test_make" (no input), "test_add", "test_sum" (2 inputs), "test_scale" (elementwise), "test_pair" (2
// inputs, 2 outputs), "test_effect", "test_move" (a redistribute) and "test_read".
const OperatorDef& test_operator(const std::string& name);
inline constexpr int64_t kTestElements = 4;  // of every test tensor, float32

// Pretends to be node `node`: says Hello, decodes pieces and keeps them (of a replay its calls; operands without a slot
// have kTemporary and their name), acknowledges (at once, or when the test says
// so), answers reads with `kReadValue` in all elements (node 0 only).
class FakeNode {
 public:
  static constexpr float kReadValue = 7;
  static constexpr OperandId kTemporary = 0x40000000u;
  struct Behaviour {
    bool acknowledges = true;
    bool says_goodbye = true;
    std::string versions = "fake 1";
    uint64_t registry_hash = 0;                     // 0: the real one
    std::map<std::string, std::string> fails = {};  // operator name -> what its kernel says, on device = node
    // What it says when the controller asks what it is doing, without number and node; null: nothing.
    std::function<Answer(int32_t node)> answers = {};
  };
  FakeNode(InProcessFabric& fabric, int32_t node, Behaviour behaviour);
  ~FakeNode();

  // Waits (10 s at most) until `count` pieces have arrived; returns a copy of all.
  std::vector<Piece> wait_pieces(size_t count);
  // Waits until pieces with `count` operators (without releases) have arrived.
  std::vector<Piece> wait_operators(size_t count);
  std::vector<Piece> pieces();
  std::vector<Replay> replays();
  std::vector<TemplateDefinition> templates();
  std::vector<uint64_t> feeds();  // numbers, in order of arrival
  void acknowledge(Sequence sequence);
  void acknowledge_all();          // what has arrived and isn't acknowledged
  void acknowledge_from_now_on();  // and all that comes
  void report(int64_t device, Sequence sequence, uint32_t op_index, const std::string& message);

 private:
  void serve();
  void take_piece(Piece piece);
  Piece expand(const Replay& replay);
  void send_ack(std::vector<Sequence> sequences);
  ControlEndpoint& endpoint_;
  const int32_t node_;
  const Behaviour behaviour_;
  std::atomic<bool> acknowledges_;
  std::unique_ptr<PieceDecoder> decoder_;  // the thread's
  std::map<std::pair<GraphId, uint32_t>, uint16_t> op_of_spec_;
  std::map<std::pair<GraphId, TemplateId>, VaryingScalars> varying_;
  std::map<std::pair<GraphId, TemplateId>, std::vector<Scalar>> scalars_;
  std::map<GraphId, std::map<OperandId, OperandId>> slot_of_name_;  // of the instance under way
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Piece> pieces_;  // under mutex_, as all below
  std::set<Sequence> unacknowledged_;
  std::vector<uint64_t> feeds_;
  std::vector<Replay> replays_;
  std::vector<TemplateDefinition> templates_;
  std::thread thread_;
};

// Writes records as a client does.
class TestGraph {
 public:
  TestGraph(MainController& controller, GraphId id, DeviceMesh mesh);
  ~TestGraph();  // closes

  // Appends a call; `line` is its source line in "user.cc". Returns the output slots.
  std::vector<OperandId> call(const std::string& op, std::vector<OperandId> inputs, uint32_t line = 1,
                              std::vector<OperandId> releases = {});
  OperandId make(uint32_t line = 1) { return call("test_make", {}, line)[0]; }
  OperandId add(OperandId a, OperandId b, uint32_t line = 1) { return call("test_add", {a, b}, line)[0]; }
  // A test_make whose bytes travel from the host.
  OperandId feed(uint64_t number, int64_t num_elements = kTestElements);
  IntrusivePtr<ReadState> read(OperandId value, uint32_t line = 1);
  void release(std::vector<OperandId> slots);
  void flush() { write({.kind = RecordKind::kFlush}); }
  IntrusivePtr<ReadState> barrier();
  void close();
  GraphLink& link() { return *link_; }

 private:
  struct Content {
    RecordKind kind = RecordKind::kOperator;
    const OperatorSpec* spec = nullptr;
    IntrusivePtr<RecordPayload> payload = {};
    uint32_t line = 1;
    std::vector<OperandId> inputs = {}, outputs = {}, releases = {};
    std::vector<Scalar> scalars = {};
  };
  void write(const Content& content);
  const OperatorSpec& spec_of(const std::string& op);
  MainController& controller_;
  DeviceMesh mesh_;
  std::shared_ptr<GraphLink> link_;
  std::map<std::string, std::unique_ptr<OperatorSpec>> specs_;
  OperandId next_slot_ = 0;
  bool closed_ = false;
};

// Without the passes that compare calls: tests make the same ones again and again and count them.
RuntimeOptions plain_options();

// Nodes and controller, started. options.devices: 4 unless set.
struct FakeCluster {
  FakeCluster(int32_t num_nodes, FakeNode::Behaviour behaviour = {}, RuntimeOptions options = plain_options());
  ~FakeCluster();
  FakeNode& node(size_t n) { return *nodes[n]; }
  void acknowledge_from_now_on() {
    for (auto& node : nodes) node->acknowledge_from_now_on();
  }
  InProcessFabric fabric;
  std::vector<std::unique_ptr<FakeNode>> nodes;
  std::unique_ptr<MainController> controller;
  DeviceMesh mesh;
};

// What ReadState::get throws, as text; "" when it throws nothing. Waits 10 s at most ("timeout").
std::string failure_of(const IntrusivePtr<ReadState>& read);
// Waits, yielding, until the condition holds; false after 10 s.
bool eventually(const std::function<bool()>& condition);
// Operators of a piece by name, releases as "release".
std::vector<std::string> names_of(const std::vector<Piece>& pieces);

}  // namespace dtorch
