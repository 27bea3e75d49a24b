// `dtorch_app supervise -- COMMAND ...`: starts a command of dtorch_app as a job, and again from its last checkpoint
// when it was lost. No rank itself.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <sstream>

#include "apps/common/config_file.h"
#include "apps/dtorch_app/commands.h"
#include "apps/dtorch_app/train_options.h"
#include "dtorch/options.h"
#include "dtorch/supervisor.h"

namespace dtorch::app {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

struct Options {
  std::string hosts, launcher = "mpirun", launcher_options, wrapper, stop_after, result, clean;
  int64_t ranks = 0, spares = 0, retries = 3;
  bool elastic = false;
};

CommandLine command_line(Options& options) {
  CommandLine command(
      "dtorch_app supervise [options] -- COMMAND [its options]",
      "Runs a command of dtorch_app as a job of K + 1 ranks on K hosts, or of --np ranks on this machine, and starts "
      "it again when a "
      "rank or a host is lost: from the last checkpoint, on the hosts that still answer. SIGUSR1, SIGTERM, SIGHUP, "
      "SIGQUIT and Ctrl-C ask the job to save and end; SIGUSR2 tells on stderr what it is doing. Exit codes: 0 done, 1 "
      "refused or failed, 77 saved and stopped, 78 lost, 79 a deadline passed.");
  auto text = [](std::string& at, const char* name) { return po::value(&at)->default_value(at)->value_name(name); };
  auto number = [](int64_t& at) { return po::value(&at)->default_value(at)->value_name("N"); };
  auto add = command.options().add_options();
  add("hosts", text(options.hosts, "LIST"),
      "hosts with commas between (default: those of the Slurm job, if it is one)");
  add("np", number(options.ranks), "ranks on this machine, without hosts (0: one process, no mpirun's ranks)");
  add("spares", number(options.spares),
      "hosts of the list that are used only when others are lost; with --recover also more ranks than --np");
  add("retries", number(options.retries),
      "times in a row that it is started again without a new checkpoint before it gives up");
  add("stop-after", text(options.stop_after, "TIME"),
      "ask the job to save and end after this time (3h50m), over all attempts");
  add("elastic", po::bool_switch(&options.elastic),
      "of train without --devices and --dp: one device a host, so that data parallelism shrinks with the hosts; "
      "otherwise the job keeps its devices, more of them a host, and its losses to the last bit");
  add("result", text(options.result, "FILE"), "write how it ended (JSON; default: the command's, DTORCH_RESULT)");
  add("launcher", text(options.launcher, "NAME"), "mpirun or srun");
  add("launcher-options", text(options.launcher_options, "WORDS"), "more options of it, with blanks between");
  add("wrapper", text(options.wrapper, "WORDS"), "put before the program on every rank, with blanks between");
  add("clean", text(options.clean, "ID"), "instead: end what is left of a supervised job on this host");
  return command;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> hosts_of(const Options& options) {
  if (options.hosts.empty()) return options.ranks > 0 ? std::vector<std::string>() : slurm_hosts();
  std::istringstream in(options.hosts);
  std::vector<std::string> hosts;
  for (std::string host; std::getline(in, host, ',');) hosts.push_back(host);
  return hosts;
}

// Steps done of the newest checkpoint by the names of their folders; -1: none.
int64_t saved_steps(const std::string& folder) {
  int64_t newest = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("step-") || name.size() > 20 || name.find_first_not_of("0123456789", 5) != std::string::npos)
      continue;
    if (fs::exists(entry.path() / "manifest.json")) newest = std::max<int64_t>(newest, std::atoll(name.c_str() + 5));
  }
  return newest;
}

// By the command's own --recover, its configuration file or its environment variable.
bool goes_on_in_the_job(std::vector<std::string> command) {
  add_runtime_options_of_config(command);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(command.size());
  return parse_runtime_options(argc, argv.data()).recover;
}

// What `train` needs to be started again, and where it saves. The command's mistakes are found here, before any rank
// starts.
std::string complete_train(std::vector<std::string>& command, size_t num_hosts, bool elastic) {
  std::vector<std::string> copy = command;
  add_runtime_options_of_config(copy);
  std::vector<char*> argv;
  for (std::string& word : copy) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(copy.size());
  const RuntimeOptions runtime = parse_runtime_options(argc, argv.data());
  TrainOptions train;
  train.command_line().parse(argc, argv.data());
  train.check();
  if (train.checkpoint_dir.empty()) throw UserError("supervise: train needs --checkpoint-dir, to go on from there");
  if (!train.resume) command.push_back("--resume");
  if (elastic && (runtime.devices > 0 || train.layout.dp > 0))
    throw UserError("supervise: --elastic needs train without --devices and --dp, which follow the hosts then");
  if (!elastic && runtime.devices == 0 && num_hosts > 0) command.push_back("--devices=" + std::to_string(num_hosts));
  if (train.save_every == 0)
    std::cerr << "supervise: without --save-every a job that is lost begins anew\n" << std::flush;
  return train.checkpoint_dir;
}

int clean_host(const std::string& id) {
  std::vector<Process> left = supervised_processes(id);
  std::erase_if(left, [](const Process& process) { return process.id() == ::getpid(); });
  end_processes(left, 0, 5);
  remove_unused_segments();
  return 0;
}

int say_end(const SupervisedEnd& end, const std::string& path) {
  write_result(path, {end.code, end.status, end.reason});
  std::cerr << "supervise: " + end.status + (end.reason.empty() ? "" : ": " + end.reason) + " (" +
                   std::to_string(end.attempts) + (end.attempts == 1 ? " attempt" : " attempts") +
                   (end.progress >= 0 ? ", saved at step " + std::to_string(end.progress) : "") + ")\n"
            << std::flush;
  return end.code;
}

void check(const Options& options, size_t num_hosts, bool recover) {
  if (options.launcher != "mpirun" && options.launcher != "srun") throw UserError("--launcher must be mpirun or srun");
  if (options.ranks < 0 || options.spares < 0 || options.retries < 0)
    throw UserError("--np, --spares and --retries must not be negative");
  const bool are_ranks_here = recover && num_hosts == 0 && options.ranks > 0;
  if (options.spares > 0 && options.spares >= static_cast<int64_t>(num_hosts) && !are_ranks_here)
    throw UserError("--spares must leave at least one of the " + std::to_string(num_hosts) + " hosts");
  if (options.launcher == "srun" && num_hosts == 0) throw UserError("--launcher srun needs a Slurm job or --hosts");
}

// Seconds, by the rules of the option of that name that every program has.
double seconds_of(std::string time) {
  if (time.empty()) return 0;
  std::string program = "supervise", name = "--stop-after";
  char* words[] = {program.data(), name.data(), time.data(), nullptr};
  int count = 3;
  return parse_runtime_options(count, words).stop_after_s;
}

// Unlike any other job's: by it processes are found, to be ended, and the job's own files are named.
std::string new_id() {
  char host[256] = {};
  const std::string name = ::gethostname(host, sizeof host - 1) == 0 ? host : "host";
  std::random_device device;
  std::ostringstream id;
  id << name << '.' << ::getpid() << '.' << std::hex << device() << device();
  return id.str();
}

SupervisedJob job_of(const Options& options, std::vector<std::string> command) {
  SupervisedJob job;
  job.hosts = hosts_of(options);
  job.recover = goes_on_in_the_job(command);
  check(options, job.hosts.size(), job.recover);
  job.ranks = std::max<int64_t>(1, options.ranks);
  job.spares = options.spares;
  job.retries = options.retries;
  job.launcher = options.launcher;
  job.launcher_options = words_of(options.launcher_options);
  job.wrapper = words_of(options.wrapper);
  job.stop_after_s = seconds_of(options.stop_after);
  job.id = new_id();
  std::string folder;
  if (command[0] == "train") {
    const size_t active = job.hosts.empty() ? 0 : job.hosts.size() - static_cast<size_t>(job.spares);
    folder = complete_train(command, active, options.elastic);
    fs::create_directories(folder);
  }
  // Rank 0 may run on another host than this, so the file lies in a folder that all of them share.
  const fs::path shared = !folder.empty()     ? fs::absolute(folder)
                          : job.hosts.empty() ? fs::temp_directory_path()
                                              : fs::current_path();
  job.result = shared.string() + "/.result." + job.id;
  const std::string program = fs::canonical("/proc/self/exe");
  job.command = std::move(command);
  job.command.insert(job.command.begin(), program);
  job.probe_command = {program, "supervise", "--clean", job.id};
  job.progress = [folder] { return folder.empty() ? -1 : saved_steps(folder); };
  return job;
}

// Where to write how all attempts together ended: what the options say, else the command's, else the environment. Takes
// it away from the command, which says how each attempt ended in a file of its own.
std::string take_result(std::vector<std::string>& own, std::vector<std::string>& command) {
  const std::string of_all = take_result_option(own), of_command = take_result_option(command);
  const char* const variable = std::getenv("DTORCH_RESULT");
  const std::string of_environment = variable == nullptr ? "" : variable;
  ::unsetenv("DTORCH_RESULT");
  if (!of_all.empty()) return of_all;
  return of_command.empty() ? of_environment : of_command;
}

}  // namespace

std::string help_supervise() {
  Options options;
  return command_line(options).help();
}

int run_supervise(int argc, char** argv) {
  block_supervisor_signals();
  char** const split = std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
  std::vector<std::string> own(argv, split), command(std::min(split + 1, argv + argc), argv + argc);
  const std::string path = take_result(own, command);
  try {
    Options options;
    command_line(options).parse(static_cast<int>(split - argv), argv);
    if (!options.clean.empty()) return clean_host(options.clean);
    clear_result(path);
    if (!take_result_option(command).empty()) throw UserError("--result is given twice");
    if (command.empty()) throw UserError("supervise which command? usage: dtorch_app supervise [options] -- train ...");
    return say_end(supervise(job_of(options, command)), path);
  } catch (const std::exception&) {
    write_result(path, result_of(std::current_exception()));
    throw;
  }
}

}  // namespace dtorch::app
