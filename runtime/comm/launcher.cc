#include "runtime/comm/launcher.h"

#include <dlfcn.h>
#include <mpi.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

// Open MPI speaks a launcher's language by a component, a file beside its library. True as well when there are none to
// be seen: they are in the library then.
bool mpi_may_speak_pmi2() {
  Dl_info library;
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &library) == 0) return true;
  std::error_code ignored;
  const fs::path folder = fs::canonical(library.dli_fname, ignored).parent_path() / "openmpi";
  bool any = false;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("mca_pmix_s1.") || name.starts_with("mca_pmix_s2.")) return true;
    any = any || name.starts_with("mca_pmix_");
  }
  return !any;
}

}  // namespace

long number_in(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 ? value : -1;
}

int64_t ranks_asked_for() {
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const long value = number_in(size); value >= 0) return value;
  }
  const long tasks = number_in("SLURM_STEP_NUM_TASKS");
  return number_in("SLURM_PROCID") >= 0 && tasks >= 0 ? tasks : 0;
}

bool launched_with_mpi() {
  const int64_t asked = ranks_asked_for();
  return asked > 0 ? asked > 1 : number_in("PMIX_RANK") >= 0;
}

bool is_first_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* rank = std::getenv(name);
    if (rank != nullptr && *rank != '\0') return std::string_view(rank) == "0";
  }
  return true;
}

std::string no_pmi(int64_t asked) {
  return (asked > 1 ? "asked for " + std::to_string(asked) + " ranks, I see 1" : "MPI was started with one rank") +
         ": srun without a matching PMI? (try srun --mpi=pmix, or mpirun)";
}

void check_launcher() {
  const int64_t asked = ranks_asked_for();
  if (asked <= 1 || is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK")) return;
  if (is_set("SLURM_PROCID") && is_set("PMI_FD") ? mpi_may_speak_pmi2() : is_set("PMI_RANK") || is_set("PMI_FD"))
    return;
  throw RuntimeFault(no_pmi(asked));
}

}  // namespace dtorch
