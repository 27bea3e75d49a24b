// The check of positions, ids and classes (ops/create/checked_index.h) without a wait: their least and greatest go to
// pinned memory in the stream's order, and who is called when they are there tells the stream's failure.
#include <torch/library.h>

#include "ops/create/checked_index.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/cuda_stream.h"

namespace dtorch::cuda {
namespace {

void check_range(const at::Tensor& extremes, int64_t first, int64_t end, c10::string_view what, c10::string_view why) {
  CudaStream& stream = CudaStream::current();
  const NativeTensor host = stream.accelerator().allocate_host({2}, kInt64);
  stream.copy(from_aten(extremes.contiguous()), host);
  stream.call_on_host(
      [&stream, host, first, end, mark = stream.marking(), what = std::string(what), why = std::string(why)] {
        const auto* values = reinterpret_cast<const int64_t*>(host.data());
        const std::string problem = problem_of_range(values[0], values[1], first, end, what, why);
        if (!problem.empty()) stream.tell_failure(mark, problem);
      });
}

}  // namespace

void define_checks() {
  // For ever, as the library.
  static auto* const library = new torch::Library(torch::Library::FRAGMENT, "dtorch", std::nullopt, __FILE__, __LINE__);
  const std::string schema =
      std::string(kCheckRange) + "(Tensor extremes, int first, int end, str what, str why) -> ()";
  library->def(schema.c_str());
  library->impl(kCheckRange, torch::dispatch(c10::DispatchKey::CUDA, &check_range));
}

}  // namespace dtorch::cuda
