// Fuzz target for safetensors headers: the input is a whole file. What opens must lie inside of the file; everything
// else is a DecodeError.
#include "io/safetensors.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dtorch;
  const test::MemoryFile file(data, size);
  try {
    const safetensors::File opened = safetensors::open(file.path());
    for (const auto& [name, entry] : opened.entries()) {
      const int64_t bytes = entry.shape.num_elements() * size_of(entry.dtype);
      DTORCH_CHECK(entry.offset >= 0 && bytes >= 0 && entry.offset + bytes <= static_cast<int64_t>(size),
                   "tensor '" + name + "' leaves the file");
    }
  } catch (const DecodeError&) {
    return 0;
  }
  return 0;
}
