#include "mesh/mesh_kinds.h"

#include <mutex>
#include <utility>

namespace dtorch {
namespace {

// Of the process, as its options are.
struct Refusal {
  std::mutex mutex;
  std::function<std::string()> found;  // under mutex; empty: nothing is refused
};
Refusal& refusal() {
  static auto* all = new Refusal;
  return *all;
}

}  // namespace

NoCudaMeshes::NoCudaMeshes(std::function<std::string()> found) {
  std::lock_guard lock(refusal().mutex);
  refusal().found = std::move(found);
}

NoCudaMeshes::~NoCudaMeshes() {
  std::lock_guard lock(refusal().mutex);
  refusal().found = nullptr;
}

std::string problem_of_mesh_kind(const std::string& kind) {
  if (kind != "cuda") return "";
  std::function<std::string()> found;
  {
    std::lock_guard lock(refusal().mutex);
    found = refusal().found;
  }
  if (!found) return "";
  return "a mesh of kind \"cuda\" needs GPUs, and this job's devices are CPUs (--device cpu; " + found() +
         "); start it with --device cuda where GPUs are, or give the mesh the kind \"cpu\", which fits every device";
}

}  // namespace dtorch
