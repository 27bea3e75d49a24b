#include "runtime/worker/read_sender.h"

#include <algorithm>

#include "runtime/worker/local_move.h"

namespace dtorch {
namespace {

struct Sender {
  NodeContext& node;
  uint64_t read;
  const NativeTensor& part;
  const Box& part_box;
  int64_t max_bytes;

  void send(const Box& box) {
    auto payload = std::make_shared<Bytes>(static_cast<size_t>(box.num_elements() * size_of(part.dtype())));
    pack_box(part, local_box(box, part_box), payload->data());
    ReadData data;
    data.epoch = node.config.epoch;
    data.node = node.node;
    data.read = read;
    data.box = box;
    node.control.send(kController, encode(data, std::move(payload)));
  }

  void cut(const Box& box, int64_t dim) {
    int64_t bytes = box.num_elements() * size_of(part.dtype());
    if (bytes <= max_bytes || dim == box.ndim()) return send(box);
    int64_t rows = std::max<int64_t>(1, max_bytes / (bytes / box.size[dim]));
    for (int64_t first = 0; first < box.size[dim]; first += rows) {
      Box slab = box;
      slab.offset[dim] += first;
      slab.size[dim] = std::min(rows, box.size[dim] - first);
      cut(slab, dim + 1);
    }
  }
};

}  // namespace

void send_part(NodeContext& node, uint64_t read, const NativeTensor& part, const Box& box, int64_t max_bytes) {
  if (box.empty()) return;
  Sender{node, read, part, box, max_bytes}.cut(box, 0);
}

}  // namespace dtorch
