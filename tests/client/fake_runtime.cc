#include "tests/client/fake_runtime.h"

#include "ops/def/operator_def.h"

namespace dtorch::testing {

FakeRuntime::FakeRuntime(int64_t num_devices, int32_t num_nodes) : binding_(block_binding(num_devices, num_nodes)) {}

FakeRuntime::~FakeRuntime() {
  for (auto& [link, thread] : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void FakeRuntime::attach(std::shared_ptr<GraphLink> link) {
  links_.push_back(link);
  threads_[link.get()] = std::thread([this, link] { execute(*link); });
}

void FakeRuntime::detach(GraphLink& link) { threads_.at(&link).join(); }

void FakeRuntime::hold() {
  std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeRuntime::release() {
  std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void FakeRuntime::fail_reads(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  read_failure_ = std::move(error);
}

void FakeRuntime::fail_fatally(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  fatal_failure_ = std::move(error);
}

std::vector<LoggedRecord> FakeRuntime::log() const {
  std::lock_guard lock(mutex_);
  return log_;
}

std::vector<std::string> FakeRuntime::operators() const {
  std::vector<std::string> names;
  for (const LoggedRecord& record : log()) {
    if (record.spec) names.push_back(record.op);
  }
  return names;
}

std::vector<std::string> FakeRuntime::violations() const {
  std::lock_guard lock(mutex_);
  return violations_;
}

size_t FakeRuntime::num_live() const {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [graph, operands] : live_) count += operands.size();
  return count;
}

void FakeRuntime::execute(GraphLink& link) {
  RecordReader reader;
  for (bool open = true; open;) {
    link.ring.wait_readable();
    while (open && reader.read(link.ring)) {
      std::exception_ptr fatal;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !held_; });
        fatal = fatal_failure_;
      }
      open = reader.kind() != RecordKind::kClose;
      if (fatal) {
        fail(link, reader, fatal);
      } else {
        handle(link, reader);
      }
      reader.consume(link.ring);
    }
  }
}

void FakeRuntime::fail(GraphLink& link, RecordReader& reader, const std::exception_ptr& failure) {
  {
    std::lock_guard lock(link.failure_mutex);
    link.failure = failure;
  }
  link.failed.store(true);
  const IntrusivePtr<RecordPayload> payload = reader.take_payload();
  if (payload && payload->read) payload->read->fail(failure);
}

void FakeRuntime::handle(GraphLink& link, RecordReader& reader) {
  LoggedRecord record;
  record.kind = reader.kind();
  record.spec = reader.spec();
  record.op = record.spec ? OperatorRegistry::global().at(record.spec->op).name : "";
  record.inputs.assign(reader.inputs().begin(), reader.inputs().end());
  record.outputs.assign(reader.outputs().begin(), reader.outputs().end());
  record.releases.assign(reader.releases().begin(), reader.releases().end());
  record.scalars.assign(reader.scalars().begin(), reader.scalars().end());
  record.where = reader.where();
  IntrusivePtr<RecordPayload> payload = reader.take_payload();
  std::exception_ptr failure;
  {
    std::lock_guard lock(mutex_);
    std::set<OperandId>& live = live_[link.id];
    for (OperandId operand : record.releases) {
      if (live.erase(operand) == 0) violations_.push_back("released twice: " + std::to_string(operand));
    }
    for (OperandId operand : record.inputs) {
      if (!live.contains(operand))
        violations_.push_back(record.op + " reads a dead operand " + std::to_string(operand));
    }
    for (OperandId operand : record.outputs) {
      if (!live.insert(operand).second)
        violations_.push_back(record.op + " overwrites operand " + std::to_string(operand));
    }
    if (record.spec) check(record);
    log_.push_back(record);
    failure = read_failure_;
  }
  if (!payload || !payload->read) return;
  ReadState& read = *payload->read;
  if (failure && record.kind == RecordKind::kOperator) {
    read.fail(failure);
    return;
  }
  const Box& region = read.region();
  visit_dtype(read.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      std::vector<T> values(static_cast<size_t>(region.num_elements()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(static_cast<float>(i));
      read.add_box(region, reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T));
    }
  });
  read.complete();
}

void FakeRuntime::check(const LoggedRecord& record) {
  if (record.spec->inputs.size() != record.inputs.size() || record.spec->outputs.size() != record.outputs.size()) {
    violations_.push_back(record.op + " has other operands than its spec");
  }
}

}  // namespace dtorch::testing
