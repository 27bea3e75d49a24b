// The data plane's door: tagged point-to-point byte transfers between nodes (Sub-Controllers). Comm thread only. Two
// implementations: MPI (mpi_transport) and in-process (in_process, N nodes as N threads of one process).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace dtorch {

class Transport {
 public:
  using Request = uint64_t;
  virtual ~Transport() = default;
  virtual int32_t node() const = 0;
  // What keeps a buffer alive. MPI can't take back a request that the peer has begun to answer: the memory of one that
  // begin_epoch() has withdrawn is held by this until it has really ended.
  using Owner = std::shared_ptr<const void>;
  // The buffer belongs to the transfer until test() returns true or begin_epoch() has withdrawn it. Messages of one
  // sender with one tag arrive in order. Tags are below kMaxTag.
  virtual Request send(int32_t to, uint32_t tag, std::span<const std::byte> buffer, Owner owner = nullptr) = 0;
  // The message must be exactly as long as the buffer, else test() throws RuntimeFault.
  virtual Request receive(int32_t from, uint32_t tag, std::span<std::byte> buffer, Owner owner = nullptr) = 0;
  // True once when the transfer has completed; the request is then gone. Never blocks.
  virtual bool test(Request request) = 0;
  // Withdraws all requests under way: nothing completes them any more, and none may be tested. Later ones belong to
  // `epoch` and match those of the same epoch only; messages of nodes that have begun it earlier wait for them. Waits
  // for nobody.
  virtual void begin_epoch(uint32_t epoch) = 0;
  // Called by the comm thread in every turn, for what has no request.
  virtual void tidy() {}
  // True when progress is made only by calling test (MPI): the comm thread must poll while something is outstanding.
  virtual bool needs_polling() const = 0;
  // Where needs_polling() is false: called, from any thread, when a request may have completed. Null: nobody is told
  // any more, and no call is under way when this returns.
  virtual void set_wakeup(std::function<void()>) {}
  // Number of requests that test() has reported as complete: the comm thread sees activity by it.
  virtual uint64_t completed() const { return 0; }
  virtual int64_t messages_sent() const = 0;  // any thread
  virtual int64_t bytes_sent() const = 0;     // any thread

  static constexpr uint32_t kMaxTag = uint32_t{1} << 30;
  // The highest bits of a tag: the number of its epoch, of 64.
  static constexpr uint32_t kEpochShift = 24;
  static constexpr uint32_t epoch_bits(uint32_t epoch) { return epoch % (kMaxTag >> kEpochShift) << kEpochShift; }
};

}  // namespace dtorch
