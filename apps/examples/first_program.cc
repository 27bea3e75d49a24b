// The README's program: a loss over a batch split on "dp", its gradient, and an error that says what would be legal.
//   build/bin/first_program --devices 4
#include <dtorch/dtorch.h>

#include <iostream>
using namespace dtorch;

int main(int argc, char** argv) {
  return dtorch::run(argc, argv, [](Client& client) {
    DeviceMesh mesh = init_device_mesh("cpu", {client.num_devices()}, {"dp"});
    Tensor x = randn({256, 128}, {.mesh = mesh, .placements = {Shard(0)}});
    Tensor w = randn({128, 64}, {.mesh = mesh, .requires_grad = true});
    Tensor loss = matmul(x, w).relu().mean();  // nothing waits
    loss.backward();                           // w's gradient is reduced over "dp" when it is read
    std::cout << loss.item<float>() << ' ' << w.grad().placements() << '\n';  // a read waits
    try {
      softmax(x, 0);  // dim 0 is split over "dp"
    } catch (const PlacementError& error) {
      std::cout << error.what() << '\n';  // the operator, its inputs, the axis, the legal rows, the cheapest fix
    }
  });
}
