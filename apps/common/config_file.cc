#include "apps/common/config_file.h"

#include <algorithm>
#include <boost/algorithm/string/trim.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "dtorch/dtorch.h"
#include "dtorch/options.h"

namespace dtorch::app {

namespace {

constexpr const char* kOption = "--config";

// "" when the command line names none.
std::string config_path(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].starts_with(std::string(kOption) + "=")) return words[i].substr(std::string_view(kOption).size() + 1);
    if (words[i] == kOption && i + 1 < words.size()) return words[i + 1];
  }
  return "";
}

bool names_option(const std::vector<std::string>& words, const std::string& option) {
  return std::ranges::any_of(words,
                             [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
}

}  // namespace

std::vector<ConfigLine> read_config(const std::string& path) {
  std::ifstream file(path);
  if (!file || !std::filesystem::is_regular_file(path))
    throw UserError(std::string(kOption) + ": cannot read '" + path + "'");
  std::vector<ConfigLine> lines;
  std::set<std::string> names;
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    text.erase(std::min(text.find('#'), text.size()));
    boost::trim(text);
    if (text.empty()) continue;
    std::string name = text.substr(0, text.find('='));
    boost::trim(name);
    std::string place = path + ", line " + std::to_string(number);
    if (!names.insert(name).second) throw UserError(place + ": " + name + " is there twice");
    lines.push_back({std::move(place), std::move(name), std::move(text)});
  }
  return lines;
}

bool is_runtime_option(const std::string& name) {
  const std::vector<std::string> names = runtime_option_names();
  return std::ranges::find(names, "--" + name) != names.end();
}

void add_runtime_options_of_config(std::vector<std::string>& words) {
  const std::string path = config_path(words);
  if (path.empty()) return;
  for (const ConfigLine& line : read_config(path)) {
    const std::string option = "--" + line.name;
    if (!is_runtime_option(line.name) || names_option(words, option)) continue;
    const size_t equals = line.text.find('=');
    if (equals == std::string::npos) throw UserError(line.place + ": '" + line.text + "' is no 'name = value'");
    std::string value = line.text.substr(equals + 1);
    boost::trim(value);
    words.push_back(option + "=" + value);
  }
}

}  // namespace dtorch::app
