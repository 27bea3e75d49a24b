// Fuzz target for the options that every program has: the input is a command line, its words apart by zero bytes. What
// isn't legal is a UserError, and leaves the command line as it was.
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/options_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dtorch;
  std::vector<std::string> words = {"program", ""};
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      words.emplace_back();
    } else {
      words.back().push_back(static_cast<char>(data[i]));
    }
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::vector<char*> before = argv;
  int argc = static_cast<int>(words.size());
  try {
    const RuntimeOptions options = parse_runtime_options(argc, argv.data());
    DTORCH_CHECK(options.devices >= 0 && options.nodes >= 1 && options.threads_per_device >= 1 &&
                     options.deadline_s >= 0 && options.inflight_operators >= 1 && options.inflight_bytes >= 1,
                 "an illegal value was taken");
    DTORCH_CHECK(argc >= 1 && static_cast<size_t>(argc) <= words.size() && argv[static_cast<size_t>(argc)] == nullptr,
                 "argv isn't ended by null");
  } catch (const UserError&) {
    DTORCH_CHECK(argv == before && argc == static_cast<int>(words.size()), "a refused command line was changed");
  }
  return 0;
}
