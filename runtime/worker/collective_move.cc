#include "runtime/worker/collective_move.h"

#include "runtime/base/error.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch {
namespace {

using Kind = DevicePlan::Kind;

NativeTensor part_of(const NativeTensor& value, const Box& box) {
  return box == whole(value.local_shape()) ? value : value.narrowed(box);
}

// One step on one device. What it makes is of the stream's own memory, so that only the value that came from outside
// has to be kept.
struct StepRun {
  const DevicePlan::Step& step;
  Communicator& communicator;
  CommunicatorFactory& factory;
  DeviceStream& stream;
  MemoryCounter* memory;
  const NativeTensor& value;

  NativeTensor run() {
    switch (step.kind) {
      case Kind::kAllReduce:
        return all_reduce();
      case Kind::kAllGather:
        return all_gather();
      case Kind::kReduceScatter:
        return reduce_scatter();
      case Kind::kBroadcast:
        return broadcast();
      case Kind::kExchange:
        break;
    }
    return exchange();
  }

 private:
  NativeTensor allocate(const Shape& local_shape) { return stream.allocate(local_shape, step.dtype, memory); }
  int64_t num_ranks() const { return static_cast<int64_t>(step.group.size()); }

  NativeTensor packed(const NativeTensor& part) {
    if (part.is_contiguous()) return part;
    NativeTensor copy = allocate(part.local_shape());
    stream.copy(part, copy);
    return copy;
  }

  // Rank r's place among parts of step.count elements each.
  NativeTensor place_in(const NativeTensor& padded, size_t rank) const {
    const Shape& size = step.parts[rank].size;
    return strided_view(padded, size, contiguous_strides(size), static_cast<int64_t>(rank) * step.count);
  }

  // The parts lie one behind the other in `all`, as the library wants them.
  bool is_stacked(const NativeTensor& all) const {
    if (!all.is_contiguous()) return false;
    const int64_t bytes = step.count * size_of(step.dtype);
    for (size_t rank = 0; rank < step.parts.size(); ++rank) {
      const Box& box = step.parts[rank];
      if (box.num_elements() != step.count) return false;
      const NativeTensor part = part_of(all, box);
      if (!part.is_contiguous() || part.data() - all.data() != static_cast<int64_t>(rank) * bytes) return false;
    }
    return true;
  }

  NativeTensor all_reduce() {
    const NativeTensor source = packed(value);
    NativeTensor result = allocate(step.to_shape);
    if (step.count != 0)
      communicator.all_reduce(stream, source.data(), result.data(), step.count, step.dtype, step.reduce);
    return result;
  }

  NativeTensor all_gather() {
    NativeTensor result = allocate(step.to_shape);
    if (step.count == 0) return result;
    NativeTensor source = packed(value);
    if (source.num_elements() != step.count) {
      const NativeTensor padded = allocate({step.count});
      const Shape shape = source.local_shape();
      stream.copy(source, strided_view(padded, shape, contiguous_strides(shape), 0));
      source = padded;
    }
    const bool is_direct = is_stacked(result);
    const NativeTensor all = is_direct ? result : allocate({num_ranks() * step.count});
    communicator.all_gather(stream, source.data(), all.data(), step.count, step.dtype);
    for (size_t rank = 0; rank < step.parts.size() && !is_direct; ++rank) {
      if (!step.parts[rank].empty()) stream.copy(place_in(all, rank), part_of(result, step.parts[rank]));
    }
    return result;
  }

  NativeTensor reduce_scatter() {
    NativeTensor result = allocate(step.to_shape);
    if (step.count == 0) return result;
    NativeTensor all = value;
    if (!is_stacked(value)) {
      all = allocate({num_ranks() * step.count});
      for (size_t rank = 0; rank < step.parts.size(); ++rank) {
        if (!step.parts[rank].empty()) stream.copy(part_of(value, step.parts[rank]), place_in(all, rank));
      }
    }
    const bool is_direct = result.num_elements() == step.count;
    const NativeTensor own = is_direct ? result : allocate({step.count});
    communicator.reduce_scatter(stream, all.data(), own.data(), step.count, step.dtype, step.reduce);
    if (!is_direct && result.num_elements() != 0) {
      const Shape& shape = step.to_shape;
      stream.copy(strided_view(own, shape, contiguous_strides(shape), 0), result);
    }
    return result;
  }

  NativeTensor broadcast() {
    const NativeTensor source = step.rank == step.root ? packed(value) : NativeTensor();
    NativeTensor result = step.is_destination ? allocate(step.to_shape) : source;
    if (step.count != 0)
      communicator.broadcast(stream, source ? source.data() : nullptr, result.data(), step.count, step.dtype,
                             step.root);
    return step.is_destination ? result : NativeTensor();
  }

  NativeTensor exchange() {
    NativeTensor result = step.is_destination ? allocate(step.to_shape) : NativeTensor();
    std::vector<NativeTensor> outgoing;
    for (const DevicePlan::Send& send : step.sends) outgoing.push_back(packed(part_of(value, send.box)));
    std::vector<std::vector<NativeTensor>> incoming;  // by piece and source
    for (const DevicePlan::Piece& piece : step.pieces) incoming.push_back(places_for(piece, result));
    send_and_receive(outgoing, incoming);
    for (size_t p = 0; p < step.pieces.size(); ++p)
      finish(step.pieces[p], incoming[p], part_of(result, step.pieces[p].box));
    return result;
  }

  void send_and_receive(const std::vector<NativeTensor>& outgoing,
                        const std::vector<std::vector<NativeTensor>>& incoming) {
    factory.group_begin();
    try {
      for (size_t i = 0; i < outgoing.size(); ++i)
        communicator.send(stream, outgoing[i].data(), outgoing[i].num_elements(), step.dtype, step.sends[i].to);
      for (size_t p = 0; p < step.pieces.size(); ++p) {
        for (size_t i = 0; i < incoming[p].size(); ++i) {
          const NativeTensor& place = incoming[p][i];
          const int32_t from = step.pieces[p].sources[i].rank;
          if (from != step.rank) communicator.receive(stream, place.data(), place.num_elements(), step.dtype, from);
        }
      }
    } catch (...) {
      end_group_after_failure();
      throw;
    }
    factory.group_end();
  }

  // The thread's next group is one of its own. What this one says now is of what has failed before.
  void end_group_after_failure() noexcept {
    try {
      factory.group_end();
    } catch (const std::exception&) {
    }
  }

  bool is_copy(const DevicePlan::Piece& piece) const { return piece.sources.size() == 1 && step.divisor == 1; }

  // Where the sources of a piece are, or will be.
  std::vector<NativeTensor> places_for(const DevicePlan::Piece& piece, const NativeTensor& result) {
    std::vector<NativeTensor> places;
    const NativeTensor target = part_of(result, piece.box);
    for (const DevicePlan::Piece::Source& source : piece.sources) {
      if (source.rank == step.rank)
        places.push_back(part_of(value, source.box));
      else
        places.push_back(is_copy(piece) && target.is_contiguous() ? target : allocate(piece.box.size));
    }
    return places;
  }

  void finish(const DevicePlan::Piece& piece, std::vector<NativeTensor>& sources, const NativeTensor& target) {
    if (sources.empty()) return stream.set_zero(target);
    if (is_copy(piece)) {
      if (sources[0].data() != target.data()) stream.copy(sources[0], target);
      return;
    }
    for (NativeTensor& source : sources) source = packed(source);
    if (target.is_contiguous()) return stream.fold(sources, step.reduce, step.divisor, target);
    const NativeTensor folded = allocate(target.local_shape());
    stream.fold(sources, step.reduce, step.divisor, folded);
    stream.copy(folded, target);
  }
};

}  // namespace

NativeTensor CollectiveMove::run(NativeTensor value) const {
  for (const DevicePlan::Step& step : plan.steps) {
    DTORCH_CHECK(!step.is_source || value, "a collective without this device's part");
    StepRun run{step, communicator_of(step.group), factory, stream, memory, value};
    value = run.run();
  }
  return value;
}

}  // namespace dtorch
