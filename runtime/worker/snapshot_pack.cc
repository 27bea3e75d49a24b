// Parts of snapshots as bytes; see snapshot_store.h.
#include <cstdint>
#include <cstring>

#include "runtime/worker/native/native_metadata.h"
#include "runtime/worker/snapshot_store.h"

namespace dtorch {

namespace {

constexpr size_t kAlignment = 64;

}  // namespace

SharedBytes pack_part(const NativeTensor& value, SnapshotPart& fields) {
  fields.dtype = value.dtype();
  fields.local_shape = value.local_shape();
  fields.strides = value.strides();
  const auto item = static_cast<size_t>(size_of(fields.dtype));
  const auto extent = static_cast<size_t>(extent_of(fields.local_shape, fields.strides)) * item;
  if (extent == 0) return nullptr;
  const std::byte* first = value.data();
  const size_t lead = reinterpret_cast<uintptr_t>(first) % kAlignment;
  auto bytes = std::make_shared<Bytes>();
  if (lead % item == 0) {
    fields.lead = static_cast<int64_t>(lead);
    bytes->reserve(lead + extent);
    bytes->resize(lead);
  }
  bytes->insert(bytes->end(), first, first + extent);
  return bytes;
}

NativeTensor unpack_part(const SnapshotPart& fields, const SharedBytes& payload) {
  const int64_t extent = extent_of(fields.local_shape, fields.strides);
  if (extent == 0) return NativeTensor::empty(fields.local_shape, fields.dtype);
  const int64_t lead = fields.lead / size_of(fields.dtype);
  const bool is_plain = lead == 0 && fields.strides == contiguous_strides(fields.local_shape);
  const NativeTensor base = NativeTensor::empty(is_plain ? fields.local_shape : Shape{lead + extent}, fields.dtype);
  std::memcpy(base.data() + fields.lead, payload->data() + fields.lead,
              static_cast<size_t>(extent * size_of(fields.dtype)));
  return is_plain ? base : strided_view(base, fields.local_shape, fields.strides, lead);
}

}  // namespace dtorch
