// The operators of the worker's tests. Their kernels need no LibTorch, so they run in both builds.
#include <cstring>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

int64_t* items(const NativeTensor& tensor) { return reinterpret_cast<int64_t*>(tensor.data()); }

NativeTensor new_output(const KernelContext& context) {
  return NativeTensor::empty(context.output_box(0).size, context.output_meta(0).dtype);
}

void fill_kernel(KernelContext& context) {
  NativeTensor result = new_output(context);
  std::fill_n(items(result), result.num_elements(), context.scalar(0).as_int());
  context.output(0) = std::move(result);
}

void for_each_element(const Box& box, const Shape& global_shape, auto f) {
  Shape strides = contiguous_strides(global_shape);
  Shape index(box.ndim(), 0);
  for (int64_t i = 0; i < box.num_elements(); ++i) {
    int64_t number = 0;
    for (int64_t dim = 0; dim < box.ndim(); ++dim) number += (box.offset[dim] + index[dim]) * strides[dim];
    f(i, number);
    for (int64_t dim = box.ndim() - 1; dim >= 0 && ++index[dim] == box.size[dim]; --dim) index[dim] = 0;
  }
}

void iota_kernel(KernelContext& context) {
  NativeTensor result = new_output(context);
  for_each_element(context.output_box(0), context.output_meta(0).global_shape,
                   [&](int64_t local, int64_t global) { items(result)[local] = global; });
  context.output(0) = std::move(result);
}

void add_kernel(KernelContext& context) {
  NativeTensor a = context.input(0).contiguous(), b = context.input(1).contiguous();
  NativeTensor result;
  if (a.impl() == context.input(0).impl()) a.reset();  // no second handle when asking
  bool reuse = !a && context.may_reuse(0);
  if (!a) a = context.input(0);
  if (reuse) ++reuses();
  result = reuse ? a : new_output(context);
  for (int64_t i = 0; i < result.num_elements(); ++i) items(result)[i] = items(a)[i] + items(b)[i];
  context.output(0) = std::move(result);
}

void fail_kernel(KernelContext&) { throw std::runtime_error("boom"); }

void wrong_shape_kernel(KernelContext& context) {
  Shape shape = context.output_box(0).size;
  ++shape[0];
  context.output(0) = NativeTensor::empty(shape, kInt64);
}

void unset_kernel(KernelContext&) {}

void note_kernel(KernelContext& context) {
  std::lock_guard lock(notes().mutex);
  notes().by_device[context.device()].push_back(context.scalar(0).as_int());
}

void wait_kernel(KernelContext& context) {
  gate().pass();
  NativeTensor result = new_output(context);
  std::fill_n(items(result), result.num_elements(), 1);
  context.output(0) = std::move(result);
}

void from_host_kernel(KernelContext& context) {
  NativeTensor result = new_output(context);
  for_each_element(context.output_box(0), context.output_meta(0).global_shape, [&](int64_t local, int64_t global) {
    std::memcpy(&items(result)[local], context.feed() + global * 8, 8);
  });
  context.output(0) = std::move(result);
}

OperatorDef* def(const char* name, KernelFn kernel, Lowering lowering = Lowering::kKernel) {
  auto* result = new OperatorDef;  // lives as long as the process, like any operator
  result->name = name;
  result->kernel = kernel;
  result->lowering = lowering;
  OperatorRegistry::global().add(*result);
  return result;
}

TestOps register_ops() {
  TestOps result;
  result.fill = def("test.fill", fill_kernel);
  result.iota = def("test.iota", iota_kernel);
  result.add = def("test.add", add_kernel);
  result.fail = def("test.fail", fail_kernel);
  result.wrong_shape = def("test.wrong_shape", wrong_shape_kernel);
  result.unset = def("test.unset", unset_kernel);
  result.note = def("test.note", note_kernel);
  result.wait = def("test.wait", wait_kernel);
  result.from_host = def("from_host", from_host_kernel);
  result.redistribute = def("test.redistribute", nullptr, Lowering::kTransfer);
  result.composition = def("test.composition", nullptr);
  result.read = def("test.read", nullptr, Lowering::kRead);
  return result;
}

}  // namespace

const TestOps& ops() {
  static const TestOps result = register_ops();
  return result;
}

std::atomic<int>& reuses() {
  static std::atomic<int> count{0};
  return count;
}

Notes& notes() {
  static Notes instance;
  return instance;
}

Gate& gate() {
  static Gate instance;
  return instance;
}

void Gate::set(bool open) {
  std::lock_guard lock(mutex_);
  open_ = open;
  changed_.notify_all();
}

void Gate::pass() {
  std::unique_lock lock(mutex_);
  ++waiting_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return open_; });
  --waiting_;
}

void Gate::wait_for_visitor() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_ > 0; });
}

}  // namespace dtorch::testing_worker
