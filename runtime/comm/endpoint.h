// The control channel: messages between the Main-Controller and the Sub-Controllers, over MPI point-to-point or inside
// one process. The same messages on both.
#pragma once
#include <cstdint>

#include "runtime/base/blocking_queue.h"
#include "runtime/graph/messages.h"

namespace dtorch {

// Address of the Main-Controller; Sub-Controllers are 0 .. num_nodes-1.
inline constexpr int32_t kController = -1;

struct Envelope {
  int32_t from = kController;
  Message message;
};
using Inbox = BlockingQueue<Envelope>;

class ControlEndpoint {
 public:
  virtual ~ControlEndpoint() = default;
  // Any thread; never blocks on the receiver. Messages of one sender to one receiver arrive in order.
  virtual void send(int32_t to, Message message) = 0;
  // What arrives here.
  virtual Inbox& inbox() = 0;
  virtual int64_t messages_sent() const = 0;
  virtual int64_t bytes_sent() const = 0;
  // Nothing is sent to that node any more, what is under way to or from it is abandoned, and nothing more is delivered
  // from it (but for what is in the inbox already). Any thread.
  virtual void set_lost(int32_t node) { static_cast<void>(node); }
};

}  // namespace dtorch
