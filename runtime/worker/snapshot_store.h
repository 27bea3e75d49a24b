// SnapshotStore: the snapshots that a node keeps (runtime/graph/snapshot.h): its own devices' values by handle, and
// copies of other nodes' boxes as bytes. It lives over epochs. A thread of its own packs and sends what others want,
// so that neither devices nor messages wait for that.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/comm/endpoint.h"
#include "runtime/graph/snapshot.h"
#include "runtime/worker/kept_value.h"
#include "runtime/worker/send_window.h"

namespace dtorch {

class SnapshotStore {
 public:
  // `control` isn't owned and outlives this object.
  SnapshotStore(ControlEndpoint& control, int32_t node) : control_(control), node_(node) {}
  ~SnapshotStore();  // ends the thread
  SnapshotStore(const SnapshotStore&) = delete;
  SnapshotStore& operator=(const SnapshotStore&) = delete;

  // --- the Sub-Controller's thread
  // A cut is there: so many devices will add their parts.
  void begin(SnapshotId snapshot, size_t num_devices);
  // Sends the copies that other nodes keep, and says SnapshotStored when they, and those that this node keeps, are
  // there, or that memory for them is short. Doesn't block.
  void store(SnapshotOrder order);
  // Earlier ones are dropped.
  void commit(SnapshotId snapshot);
  // It won't be stored.
  void drop(SnapshotId snapshot);
  // Nothing of earlier epochs is sent any more.
  void begin_epoch(uint32_t epoch);
  // A value that comes from elsewhere: where it will be settled. device: this node's.
  using NewArrival = std::function<IntrusivePtr<Arrival>(int64_t device)>;
  // All others are dropped. Returns what each of `devices`, this node's now, begins with, and sends other nodes what
  // theirs need. live: by node.
  std::vector<KeptPart> restore(const SnapshotOrder& order, const std::vector<int64_t>& devices,
                                const std::vector<int32_t>& node_of_device, const std::vector<bool>& live,
                                const NewArrival& new_arrival);
  // From another node. One that comes before this epoch's restore() waits for it, since other nodes may be ahead.
  // Throws DecodeError when nobody waits for it.
  void take_part(SnapshotPart part, SharedBytes payload);

  // --- a device's stream
  void add(SnapshotId snapshot, int64_t device, KeptPart part);

 private:
  static constexpr int64_t kMaxBytesUnderWay = int64_t{64} << 20;
  using Key = std::tuple<int64_t, GraphId, OperandId>;  // whose part
  // A copy is its owner's, another part the device's that begins with it.
  static Key key_of(const SnapshotPart& part) { return {part.device, part.graph, part.slot}; }
  struct Copy {
    SnapshotPart fields;
    SharedBytes payload;
  };
  struct Kept {
    size_t parts_missing = 0;
    std::map<int64_t, KeptPart> parts;             // by device
    std::map<Key, Copy> copies;                    // of other nodes' devices
    std::set<Key> copies_missing;                  // since `order`
    std::map<Key, IntrusivePtr<Arrival>> awaited;  // by device that begins with it
    std::shared_ptr<const SnapshotOrder> order;    // to be stored
    bool copies_sent = false, said = false;        // since `order`
    std::optional<SnapshotPlaces> restored_from;   // copies are there already
  };
  // What the thread sends: a part, or a copy that it keeps.
  struct Sending {
    SnapshotPart fields = {};      // without shape and bytes
    std::vector<int32_t> to = {};  // nodes
    KeptValue kept = {};
    std::optional<Copy> copy = {};
  };
  void loop();
  bool next_sending(std::unique_lock<std::mutex>& lock);
  bool next_store();  // under mutex_, as the next two
  void plan_copies(SnapshotId snapshot, Kept& kept);
  void say_stored(SnapshotId snapshot, Kept& kept);
  void give_up(SnapshotId snapshot);  // under mutex_, as the next
  void drop_copies_to_send(SnapshotId snapshot);
  void send(Sending sending, uint32_t epoch, const std::shared_ptr<SendWindow>& window);
  void wake_thread();
  void fail(const std::string& what);
  IntrusivePtr<Arrival> awaited_for(const SnapshotPart& part);  // under mutex_; throws as take_part
  static const KeptValue* find(const Kept& kept, int64_t device, const LiveValue& value);

  ControlEndpoint& control_;
  const int32_t node_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<SnapshotId, Kept> kept_;  // under mutex_, as all below
  std::deque<Sending> to_send_;
  std::vector<Copy> early_;   // parts that came before restore()
  bool is_restored_ = false;  // since begin_epoch()
  uint32_t epoch_ = 0;
  std::shared_ptr<SendWindow> window_ = std::make_shared<SendWindow>(kMaxBytesUnderWay);  // of the epoch
  bool ending_ = false;
  std::thread thread_;  // since the first store or restore
};

// A value as it travels, and back. The memory between a view's first and last element is copied, with its strides and
// its place within 64 bytes, so that no kernel rounds otherwise.
SharedBytes pack_part(const NativeTensor& value, SnapshotPart& fields);
NativeTensor unpack_part(const SnapshotPart& fields, const SharedBytes& payload);

}  // namespace dtorch
