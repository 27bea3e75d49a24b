// A test on the GPUs of this machine; skipped, with the reason, where there are none.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "runtime/accelerator/accelerator.h"

namespace dtorch::test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override;
  AcceleratorLibrary& library() { return *library_; }
  Accelerator& gpu(int32_t index = 0) { return library_->accelerator(index); }
  // A value of the host on the GPU, and back. Waits.
  NativeTensor to_gpu(DeviceStream& stream, const std::vector<std::byte>& bytes, const Shape& shape, DType dtype);
  std::vector<std::byte> to_host(DeviceStream& stream, const NativeTensor& value);

 private:
  AcceleratorLibrary* library_ = nullptr;
  std::unique_ptr<Accelerator::ThreadScope> thread_;
};

}  // namespace dtorch::test
