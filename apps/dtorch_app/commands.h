// The sub-commands of dtorch_app. Each gets what follows its name; returns the exit code or throws.
#pragma once
#include "dtorch/dtorch.h"

namespace dtorch::app {

int run_devices(Client& client, int argc, char** argv);
// `devices --check`, which needs no job; argv[0] is "devices".
int check_devices(int argc, char** argv);
int run_supervise(int argc, char** argv);  // the same
int run_prepare(Client& client, int argc, char** argv);
int run_train(Client& client, int argc, char** argv);
int run_plan(Client& client, int argc, char** argv);
int run_generate(Client& client, int argc, char** argv);
int run_evaluate(Client& client, int argc, char** argv);
int run_checkpoint(Client& client, int argc, char** argv);
int run_bench(Client& client, int argc, char** argv);

std::string help_devices();
std::string help_prepare();
std::string help_train();
std::string help_plan();
std::string help_generate();
std::string help_evaluate();
std::string help_checkpoint();
std::string help_bench();
std::string help_supervise();

}  // namespace dtorch::app
