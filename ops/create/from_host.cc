// from_host: values from the client's memory, sent out of band. scalars: [number of the host data]. by_device: the host
// data holds the parts of all devices of the mesh, one after the other in mesh order (from_local); else the whole
// tensor, row-major.
#include <cstring>

#include "ops/create/operators.h"
#include "runtime/client/call_error.h"
#include "runtime/client/graph_core.h"

namespace dtorch {
namespace {

using namespace create;

struct FromHostAttrs : CreateAttrs {
  bool by_device = false;
  template <class V>
  void fields(V& v) {
    CreateAttrs::fields(v);
    v("by_device", by_device);
  }
};

std::vector<OutputMeta> from_host_infer(const InferContext& context) {
  const auto& attributes = context.attributes<FromHostAttrs>();
  check_shape(context.op, attributes.shape);
  return {{attributes.shape, attributes.dtype}};
}

void copy_own_part(const KernelContext& context, const NativeTensor& part) {
  const TensorMeta& meta = context.output_meta(0);
  const auto num_bytes = static_cast<size_t>(part.num_bytes());
  if (num_bytes == 0) return;
  int64_t elements_before = 0;
  const int64_t own_index = meta.layout.mesh().index_of(context.device());
  for (int64_t i = 0; i < own_index; ++i) elements_before += meta.layout.box_at(meta.global_shape, i).num_elements();
  std::memcpy(part.data(), context.feed() + elements_before * size_of(meta.dtype), num_bytes);
}

void from_host_kernel(KernelContext& context) {
  const TensorMeta& meta = context.output_meta(0);
  DTORCH_CHECK(context.feed() != nullptr || meta.global_shape.num_elements() == 0, "from_host without host data");
  if (context.attributes<FromHostAttrs>().by_device) {
    NativeTensor part = NativeTensor::empty(context.output_box(0).size, meta.dtype);
    copy_own_part(context, part);
    context.output(0) = std::move(part);
    return;
  }
  bool done = false;
  NativeTensor part = make_part(context, &done);
  if (!done) {
    const int64_t item = size_of(meta.dtype);
    for_each_contiguous_run(
        meta.global_shape, context.output_box(0), [&](int64_t global, int64_t local, int64_t length) {
          std::memcpy(part.data() + local * item, context.feed() + global * item, static_cast<size_t>(length * item));
        });
  }
  context.output(0) = std::move(part);
}

std::vector<Sample> from_host_samples() {
  return {{.name = "uneven",
           .inputs = {},
           .call =
               [](const std::vector<Tensor>&) {
                 std::vector<float> values(35);
                 for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f * static_cast<float>(i) - 3.0f;
                 return std::vector<Tensor>{from_host(HostTensor::of<float>({5, 7}, values))};
               }},
          {.name = "one row", .inputs = {}, .call = [](const std::vector<Tensor>&) {
             return std::vector<Tensor>{from_host(HostTensor::of<int64_t>({1, 3}, {4, -5, 6}))};
           }}};
}

Tensor record_from_host(const FromHostAttrs& attributes, HostTensor host, const Layout& layout, const Where& where) {
  const Scalar number = Scalar::of_int(static_cast<int64_t>(next_host_data_number()));
  // The reference that record() takes over.
  auto* payload = new RecordPayload;
  payload->add_ref();
  payload->feed = std::move(host);
  return record(from_host_op, attributes, {}, where,
                {.scalars = {&number, 1}, .output_layouts = {&layout, 1}, .payload = payload});
}

}  // namespace

constinit OperatorDef from_host_op = {
    .name = "from_host",
    .signature = "from_host(host_tensor, options) -> Tensor",
    .attributes = attribute_codec<FromHostAttrs>(),
    .infer = from_host_infer,
    .kernel = from_host_kernel,
    .samples = from_host_samples,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};

Tensor from_host(const HostTensor& host, const TensorOptions& options, Where where) {
  if (!host.defined()) throw at_line(UserError("[from_host] the host tensor is undefined"), where);
  FromHostAttrs attributes;
  attributes.shape = host.shape();
  attributes.dtype = host.dtype();
  Tensor tensor = record_from_host(attributes, host, options.layout(host.shape().ndim(), where), where);
  if (options.requires_grad) tensor.requires_grad_();
  return tensor;
}

Tensor from_local(const Layout& layout, const std::function<HostTensor(int64_t, Shape)>& make,
                  const Shape& global_shape, Where where) {
  check_shape("from_local", global_shape);
  FromHostAttrs attributes;
  attributes.shape = global_shape;
  attributes.by_device = true;
  auto bytes = std::make_shared<std::vector<std::byte>>();
  const std::vector<int64_t>& devices = layout.mesh().devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    const Shape local_shape = layout.local_shape(global_shape, devices[i]);
    const HostTensor part = make(devices[i], local_shape);
    if (!part.defined() || part.shape() != local_shape) {
      throw at_line(
          ShapeError("[from_local] the part of device " + std::to_string(devices[i]) + " is " +
                     (part.defined() ? part.shape().str() : "undefined") + ", asked was " + local_shape.str()),
          where);
    }
    if (i == 0) attributes.dtype = part.dtype();
    if (part.dtype() != attributes.dtype) {
      throw at_line(
          DTypeError("[from_local] the part of device " + std::to_string(devices[i]) + " is " + name_of(part.dtype()) +
                     ", that of device " + std::to_string(devices[0]) + " is " + name_of(attributes.dtype)),
          where);
    }
    bytes->insert(bytes->end(), part.bytes(), part.bytes() + part.num_bytes());
  }
  const auto num_items = static_cast<int64_t>(bytes->size()) / size_of(attributes.dtype);
  return record_from_host(attributes, HostTensor({num_items}, attributes.dtype, bytes), layout, where);
}

Tensor from_local(const DeviceMesh& mesh, const Placements& placements,
                  const std::function<HostTensor(int64_t, Shape)>& make, const Shape& global_shape, Where where) {
  return from_local(Layout(mesh, placements, global_shape.ndim(), where), make, global_shape, where);
}

}  // namespace dtorch
