// A command's options: Boost.Program_options, a configuration file, and "did you mean".
#pragma once
#include <boost/program_options.hpp>
#include <string>
#include <vector>

namespace dtorch::app {

class CommandLine {
 public:
  // `usage`: "dtorch_app train --data FILE [options]".
  CommandLine(std::string usage, std::string about);
  // Add options to this: command.options().add_options()("steps", po::value(&steps)->default_value(100), "...").
  boost::program_options::options_description& options() { return options_; }
  // The words of an option may stand without its name: so many of them (-1: all that are left), in the order of calls.
  void add_words_of(const std::string& option, int count) { words_.add(option.c_str(), count); }
  // Options from the command line, then from --config FILE (config_file.h); the command line wins. Throws
  // UserError: an unknown option (with the nearest name), a bad value, a missing one.
  void parse(int argc, char** argv);
  bool given(const std::string& name) const { return values_.count(name) != 0 && !values_[name].defaulted(); }
  // Text of --help: this command's options and those of every DTorch program.
  std::string help() const;

 private:
  // What `parse` returns of `input`; its errors, told as ours, begin with the place.
  template <typename Parse>
  void store(const std::string& place, const std::string& input, const Parse& parse);
  std::string usage_, about_;
  boost::program_options::options_description options_;
  boost::program_options::positional_options_description words_;
  boost::program_options::variables_map values_;
};

// An option of a number with a fraction; `at` holds the default.
boost::program_options::typed_value<double>* real_option(double& at);

}  // namespace dtorch::app
