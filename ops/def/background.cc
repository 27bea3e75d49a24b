#include "ops/def/background.h"

#include "runtime/base/error.h"

namespace dtorch {
namespace {

thread_local Background* background_of_this_thread = nullptr;

}  // namespace

Background& this_nodes_background() {
  DTORCH_CHECK(background_of_this_thread != nullptr, "background work is started by kernels only");
  return *background_of_this_thread;
}

void set_background_of_this_thread(Background* background) { background_of_this_thread = background; }

}  // namespace dtorch
