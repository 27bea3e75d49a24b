// What gpu.h promises, with LibTorch.
#include "tests/cuda/gpu.h"

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/gpu/cuda_library.h"

namespace dtorch::test {

void GpuTest::SetUp() {
  try {
    library_ = &load_cuda_library();
  } catch (const UserError& error) {
    GTEST_SKIP() << error.what();
  }
  thread_ = gpu().enter_thread(1);
}

NativeTensor GpuTest::to_gpu(DeviceStream& stream, const std::vector<std::byte>& bytes, const Shape& shape,
                             DType dtype) {
  NativeTensor host = gpu().allocate_host(shape, dtype), value = stream.allocate(shape, dtype, nullptr);
  std::memcpy(host.data(), bytes.data(), bytes.size());
  stream.copy(host, value);
  stream.synchronize();
  return value;
}

std::vector<std::byte> GpuTest::to_host(DeviceStream& stream, const NativeTensor& value) {
  NativeTensor host = gpu().allocate_host(value.local_shape(), value.dtype());
  stream.copy(value, host);
  stream.synchronize();
  return {host.data(), host.data() + host.num_bytes()};
}

}  // namespace dtorch::test
