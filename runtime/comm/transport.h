// The data plane's door: tagged point-to-point byte transfers between nodes (Sub-Controllers). Comm thread only. Two
// implementations: MPI (mpi_transport) and in-process (in_process, N nodes as N threads of one process).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace dtorch {

class Transport {
 public:
  using Request = uint64_t;
  virtual ~Transport() = default;
  virtual int32_t node() const = 0;
  // The buffer belongs to the transfer until test() returns true. Messages of one sender with one tag arrive in order.
  // Tags are below kMaxTag.
  virtual Request send(int32_t to, uint32_t tag, std::span<const std::byte> buffer) = 0;
  // The message must be exactly as long as the buffer, else test() throws RuntimeFault.
  virtual Request receive(int32_t from, uint32_t tag, std::span<std::byte> buffer) = 0;
  // True once when the transfer has completed; the request is then gone. Never blocks.
  virtual bool test(Request request) = 0;
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
};

}  // namespace dtorch
