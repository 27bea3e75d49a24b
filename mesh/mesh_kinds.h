// Whether meshes of kind "cuda" mean something to the job of this process. (Kind "cpu" fits devices of every kind.)
// Thread-safe.
#pragma once
#include <functional>
#include <string>

namespace dtorch {

// While it lives, meshes of kind "cuda" are refused: the job's devices are no GPUs. found: a sentence's part that says
// which GPUs could be had, asked for when one is refused.
class NoCudaMeshes {
 public:
  explicit NoCudaMeshes(std::function<std::string()> found);
  ~NoCudaMeshes();
  NoCudaMeshes(const NoCudaMeshes&) = delete;
  NoCudaMeshes& operator=(const NoCudaMeshes&) = delete;
};

// Why a mesh of this kind is refused, as a sentence; "" when it isn't.
std::string problem_of_mesh_kind(const std::string& kind);

}  // namespace dtorch
