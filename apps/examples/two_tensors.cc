// The smallest program: two tensors spread over four devices, added. Run it alone, or under mpirun with any number of
// ranks:
//   build/bin/two_tensors --devices 4
//   mpirun -np 3 build/bin/two_tensors --devices 4
#include <dtorch/dtorch.h>

#include <iostream>

using namespace dtorch;

int main(int argc, char** argv) {
  return dtorch::run(argc, argv, [](Client& client) {
    DeviceMesh mesh = init_device_mesh("cpu", {client.devices()}, {"dp"});
    Tensor x = randn({256, 128}, {.mesh = mesh, .placements = {Shard(0)}});
    Tensor y = randn({256, 128}, {.mesh = mesh, .placements = {Shard(0)}});
    Tensor z = x + y;  // z.placements() == {Shard(0)}; nothing waits
    std::cout << z.shape() << ' ' << z.placements() << ' ' << z.sum().item<float>() << '\n';  // the read waits
  });
}
