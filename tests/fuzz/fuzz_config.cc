// Fuzz target for configuration files: the input is a whole file, read as a command's options and as those that every
// program has. What isn't legal is a UserError that begins with the file and its line, or names the option.
#include <string>
#include <vector>

#include "apps/common/config_file.h"
#include "apps/common/layout_options.h"
#include "dtorch/options.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dtorch;
  const test::MemoryFile file(data, size);
  const std::string path = file.path();
  std::vector<std::string> words = {"program", "--config", path};
  try {
    app::CommandLine command("program [options]", "A program.");
    app::LayoutOptions layout;
    layout.add_to(command);
    std::vector<char*> argv = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    command.parse(3, argv.data());
  } catch (const UserError&) {
  }
  try {
    app::add_runtime_options_of_config(words);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int argc = static_cast<int>(words.size());
    const RuntimeOptions options = parse_runtime_options(argc, argv.data());
    DTORCH_CHECK(options.devices >= 0 && options.nodes >= 1, "an illegal value was taken");
  } catch (const UserError&) {
  }
  return 0;
}
