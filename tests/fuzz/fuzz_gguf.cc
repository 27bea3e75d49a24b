// Fuzz target for GGUF files: the input is a whole file. What opens must lie inside of the file; everything else is a
// DecodeError, or a KeyError for a value of another type.
#include "io/gguf.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dtorch;
  const test::MemoryFile file(data, size);
  try {
    const gguf::File opened = gguf::open(file.path());
    for (const auto& [name, entry] : opened.entries()) {
      const int64_t blocks = entry.shape.num_elements() / gguf::block_elements(entry.encoding);
      DTORCH_CHECK(
          entry.offset >= 0 && entry.offset + blocks * gguf::block_bytes(entry.encoding) <= static_cast<int64_t>(size),
          "tensor '" + name + "' leaves the file");
    }
  } catch (const DecodeError&) {
    return 0;
  }
  return 0;
}
