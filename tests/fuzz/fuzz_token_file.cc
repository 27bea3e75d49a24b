// Fuzz target for token files: the input is a whole file. What opens has its tokens inside of the file and a
// vocabulary; everything else is a RuntimeFault.
#include "io/token_data.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dtorch;
  const test::MemoryFile file(data, size);
  try {
    const TokenData opened = TokenData::open(file.path());
    DTORCH_CHECK(opened.num_tokens() >= 0 && opened.num_tokens() <= static_cast<int64_t>(size),
                 "tokens leave the file");
    DTORCH_CHECK(opened.vocab() >= 1, "no vocabulary");
  } catch (const RuntimeFault&) {
    return 0;
  }
  return 0;
}
