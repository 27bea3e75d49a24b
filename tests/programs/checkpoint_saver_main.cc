// Goes on from the newest checkpoint in a folder, which must hold what its step says, and saves some more, one after
// the other, every second one asynchronously: for checkpoint_kill_test.cc, which kills it on the way.
//   checkpoint_saver FOLDER SAVES ROWS KEEP
#include <unistd.h>

#include <iostream>

#include "dtorch/dtorch.h"
#include "dtorch/io.h"
#include "dtorch/nn.h"

namespace dtorch {
namespace {

constexpr int64_t kColumns = 5;

struct Two : nn::Module {
  Two(int64_t num_devices, int64_t rows, int64_t step) {
    mesh = init_device_mesh("cpu", {num_devices});
    w = register_parameter("w", value({rows, kColumns}, step));
    b = register_parameter("b", value({rows}, step));
  }
  // Every element tells its place and the step.
  Tensor value(const Shape& shape, int64_t step) const {
    HostTensor host(shape, kFloat64);
    for (int64_t i = 0; i < host.num_elements(); ++i)
      host.mutable_data<double>()[i] = static_cast<double>(step) * 1e6 + static_cast<double>(i);
    return from_host(host, {.mesh = mesh, .placements = {Shard(0)}});
  }
  void set(int64_t step) {
    w.set_value(value(w.shape(), step));
    b.set_value(value(b.shape(), step));
  }
  bool holds(int64_t step) const {
    return w.value().to_host().equals(value(w.shape(), step).to_host()) &&
           b.value().to_host().equals(value(b.shape(), step).to_host());
  }
  DeviceMesh mesh;
  nn::Parameter w, b;
};

int save_on(Client& client, const std::string& folder, int64_t saves, int64_t rows, int64_t keep) {
  std::cout << client.describe_nodes() << "rank 0: process " << ::getpid() << std::endl;
  Two model(client.num_devices(), rows, 0);
  int64_t step = 0;
  if (checkpoint::latest(folder)) {
    checkpoint::Contents contents{.model = model};
    step = checkpoint::load(folder, contents).step;
    if (!model.holds(step)) {
      std::cerr << "error: the checkpoint of step " << step << " holds something else\n";
      return 3;
    }
  }
  for (const int64_t last = step + saves; step < last && !client.stop_requested();) {
    model.set(++step);
    const auto save = step % 2 == 0 ? checkpoint::save : checkpoint::save_async;
    save(folder, {.model = model, .step = step}, {.keep_last = keep}, Where::current());
  }
  checkpoint::wait();
  return 0;
}

}  // namespace
}  // namespace dtorch

int main(int argc, char** argv) {
  return dtorch::run(argc, argv, [](dtorch::Client& client, int count, char** words) {
    if (count != 5) throw dtorch::UserError("checkpoint_saver FOLDER SAVES ROWS KEEP");
    return dtorch::save_on(client, words[1], std::stoll(words[2]), std::stoll(words[3]), std::stoll(words[4]));
  });
}
