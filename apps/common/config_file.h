// Options from a file: one 'name = value' a line, '#' begins a comment. The names are those of the command line without
// dashes, a command's own and those that every program has.
#pragma once
#include <string>
#include <vector>

namespace dtorch::app {

struct ConfigLine {
  std::string place;  // "run.conf, line 3"
  std::string name;   // before '='
  std::string text;   // the line
};

// Lines that hold something. Throws UserError: the file can't be read, or a name stands there twice.
std::vector<ConfigLine> read_config(const std::string& path);

// Whether every program has an option of that name.
bool is_runtime_option(const std::string& name);

// `words` are a command line. Appends what its --config file says of options that every program has, for the runtime
// to read; the command line wins. Throws as read_config.
void add_runtime_options_of_config(std::vector<std::string>& words);

}  // namespace dtorch::app
