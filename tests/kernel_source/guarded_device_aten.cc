// guarded_device.h by two mappings of memory and LibTorch's own fallback to the CPU.
#include "tests/kernel_source/guarded_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/base/error.h"

namespace dtorch::test {
namespace {

constexpr auto kKind = c10::DeviceType::PrivateUse1;
constexpr size_t kPage = 4096;
std::atomic<int64_t> looks{0};

// Pages that can't be touched, followed by as many that hold the contents. Their lengths by the first address.
struct Regions {
  std::mutex mutex;
  std::map<std::byte*, size_t> all;  // under mutex; the guard's length
};
Regions& regions() {
  static auto* all = new Regions;
  return *all;
}

void free_region(void* data) {
  Regions& r = regions();
  std::lock_guard lock(r.mutex);
  const auto found = r.all.find(static_cast<std::byte*>(data));
  if (found == r.all.end()) return;
  ::munmap(found->first, 2 * found->second);
  r.all.erase(found);
}

struct GuardedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const size_t length = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
    void* memory = ::mmap(nullptr, 2 * length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DTORCH_CHECK(memory != MAP_FAILED, "no memory for a guarded tensor");
    auto* first = static_cast<std::byte*>(memory);
    DTORCH_CHECK(::mprotect(first + length, length, PROT_READ | PROT_WRITE) == 0, "mprotect");
    std::lock_guard lock(regions().mutex);
    regions().all[first] = length;
    return {first, first, &free_region, c10::Device(kKind, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_region; }
  void copy_data(void*, const void*, std::size_t) const override { DTORCH_CHECK(false, "a copy of guarded memory"); }
};
GuardedAllocator& allocator() {
  static GuardedAllocator one;
  return one;
}

at::Tensor new_guarded(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  return at::detail::empty_strided_generic(sizes, strides, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
}

// A tensor of the CPU on the contents.
at::Tensor unguarded(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  auto* first = static_cast<std::byte*>(const_cast<void*>(tensor.storage().data()));
  size_t length = 0;
  {
    std::lock_guard lock(regions().mutex);
    length = regions().all.at(first);
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                       c10::DataPtr(first + length, c10::Device(c10::DeviceType::CPU)));
  at::Tensor contents = at::empty({0}, tensor.options().device(at::kCPU));
  contents.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  contents.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return contents;
}

at::Tensor empty_contiguous(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                            std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}
at::Tensor empty_with_strides(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                              std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return new_guarded(sizes, strides, type.value_or(at::kFloat));
}
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  unguarded(to).copy_(unguarded(from));
  return to;
}
const at::Tensor& resize(const at::Tensor& tensor, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  if (tensor.sizes() == sizes) return tensor;
  const at::Tensor larger = new_guarded(sizes, at::empty(sizes).strides(), tensor.scalar_type());
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(larger.storage());
  impl->set_sizes_contiguous(sizes);
  return tensor;
}

// Functions whose results the host has to look at.
constexpr std::array<std::string_view, 5> kLooking = {"aten::_local_scalar_dense", "aten::nonzero",
                                                      "aten::masked_select", "aten::bincount", "aten::equal"};
void on_cpu(const c10::OperatorHandle& function, torch::jit::Stack* stack) {
  if (std::ranges::find(kLooking, function.schema().name()) != kLooking.end()) ++looks;
  at::native::cpu_fallback(function, stack);
}

// LibTorch asks a device of its own for these by other names than the CPU's, so that they have no way back to it.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                    at::IntArrayRef output_padding, int64_t groups) {
  std::optional<at::Tensor> own_bias;
  if (bias && bias->defined()) own_bias = unguarded(*bias);
  return to_guarded(at::convolution(unguarded(x), unguarded(weight), own_bias, stride, padding, dilation, transposed,
                                    output_padding, groups));
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolve_backward(const at::Tensor& g, const at::Tensor& x,
                                                                 const at::Tensor& weight, at::IntArrayRef stride,
                                                                 at::IntArrayRef padding, at::IntArrayRef dilation,
                                                                 bool transposed, at::IntArrayRef output_padding,
                                                                 int64_t groups, std::array<bool, 3> wanted) {
  const std::vector<int64_t> bias_sizes = {g.size(1)};
  const auto [dx, dweight, dbias] =
      at::convolution_backward(unguarded(g), unguarded(x), unguarded(weight), at::OptionalIntArrayRef(bias_sizes),
                               stride, padding, dilation, transposed, output_padding, groups, wanted);
  const auto back = [](const at::Tensor& gradient) { return gradient.defined() ? to_guarded(gradient) : gradient; };
  return {back(dx), back(dweight), back(dbias)};
}

}  // namespace

void define_guarded_device() {
  static const c10::impl::DeviceGuardImplRegistrar guard(kKind, new c10::impl::NoOpDeviceGuardImpl<kKind>);
  c10::SetAllocator(kKind, &allocator());
  using torch::CppFunction;
  static auto* all = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  all->fallback(CppFunction::makeFromBoxedFunction<&on_cpu>());
  static auto* aten =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten->impl("empty.memory_format", &empty_contiguous);
  aten->impl("empty_strided", &empty_with_strides);
  aten->impl("_copy_from", &copy_from);
  aten->impl("_copy_from_and_resize", [](const at::Tensor& from, const at::Tensor& to) {
    resize(to, from.sizes(), {});
    return copy_from(from, to, false);
  });
  aten->impl("resize_", &resize);
  aten->impl("convolution_overrideable", &convolve);
  aten->impl("convolution_backward_overrideable", &convolve_backward);
  aten->impl("as_strided", &at::native::as_strided_tensorimpl);
  aten->impl("view", &at::native::view);
  aten->impl("unfold", &at::native::unfold);
  aten->impl("_reshape_alias", &at::native::_reshape_alias);
}

at::Tensor to_guarded(const at::Tensor& tensor) {
  // Of a dim that is expanded there is one element; others can't be written to.
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1)
      return to_guarded(tensor.narrow(dim, 0, 1)).expand(tensor.sizes());
  }
  const at::Tensor result = new_guarded(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  unguarded(result).copy_(tensor);
  return result;
}
at::Tensor from_guarded(const at::Tensor& tensor) { return unguarded(tensor).clone(); }
int64_t num_looks() { return looks; }

}  // namespace dtorch::test
