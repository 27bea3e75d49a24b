#include "apps/common/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "apps/common/config_file.h"
#include "dtorch/dtorch.h"
#include "dtorch/options.h"

namespace dtorch::app {

namespace po = boost::program_options;

namespace {

// What Boost says, but where the text that it has read has a percent sign. Boost puts an argument where its message has
// %value%, and again where the argument has that, for ever.
std::string text_of(const po::error& error, const std::string& input) {
  const auto* of_option = dynamic_cast<const po::error_with_option_name*>(&error);
  if (of_option == nullptr || input.find('%') == std::string::npos) return error.what();
  return "the argument for option '" + of_option->get_option_name() + "' is invalid";
}

}  // namespace

CommandLine::CommandLine(std::string usage, std::string about)
    : usage_(std::move(usage)), about_(std::move(about)), options_("Options of this command", 120) {
  options_.add_options()("config", po::value<std::string>()->value_name("FILE"),
                         "read options from a file, one 'name = value' a line; the command line wins")(
      "help", "print this text");
}

template <typename Parse>
void CommandLine::store(const std::string& place, const std::string& input, const Parse& parse) {
  const std::string before = place.empty() ? "" : place + ": ";
  try {
    po::store(parse(), values_);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names;
    for (const auto& option : options_.options()) names.push_back("--" + option->long_name());
    for (const std::string& name : runtime_option_names()) names.push_back(name);
    std::string name = error.get_option_name();
    if (!name.starts_with("--")) name = "--" + name;
    const std::string near = nearest_word(name, names);
    throw UserError(before + "unknown option '" + name + "'" + (near.empty() ? "" : "; did you mean " + near + "?") +
                    " (--help lists all)");
  } catch (const po::too_many_positional_options_error&) {
    throw UserError("an argument without an option name; usage: " + usage_);
  } catch (const po::error& error) {
    throw UserError(before + text_of(error, input) + " (--help lists all)");
  }
}

void CommandLine::parse(int argc, char** argv) {
  using Style = po::command_line_style::style_t;
  const int style = po::command_line_style::default_style & ~Style::allow_guessing & ~Style::allow_short;
  const std::string input = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  store("", input,
        [&] { return po::command_line_parser(argc, argv).options(options_).style(style).positional(words_).run(); });
  if (values_.count("config")) {
    for (const ConfigLine& line : read_config(values_["config"].as<std::string>())) {
      if (is_runtime_option(line.name)) continue;  // taken before the job began
      std::istringstream text(line.text);
      store(line.place, line.text, [&] { return po::parse_config_file(text, options_); });
    }
  }
  try {
    po::notify(values_);
  } catch (const po::error& error) {
    throw UserError(std::string(error.what()) + " (--help lists all)");
  }
}

std::string CommandLine::help() const {
  std::ostringstream out;
  out << "usage: " << usage_ << "\n" << about_ << "\n\n" << options_ << "\n" << format_runtime_options();
  // Boost leaves a blank where it breaks a line.
  std::istringstream lines(out.str());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

po::typed_value<double>* real_option(double& at) {
  // The shortest text that reads back as the same number: 0.1, not 0.10000000000000001.
  return po::value(&at)->default_value(at, fmt::format("{}", at))->value_name("X");
}

}  // namespace dtorch::app
