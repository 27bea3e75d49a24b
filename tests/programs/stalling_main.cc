// A program that holds up its job on purpose: trains nothing, but adds and gathers in a loop, with 8 devices.
//   stalling_program kernel   device 5 never leaves the operator `stall` of the third round
//   stalling_program none     goes on until it is asked to stop
// Prints "round N" to stdout after each round. Needs no LibTorch, so it runs in both builds.
#include <condition_variable>
#include <cstring>
#include <iostream>
#include <mutex>
#include <string>

#include "dtorch/dtorch.h"

namespace {

using namespace dtorch;

constexpr int64_t kStallingDevice = 5;

void stall_kernel(KernelContext& context) {
  if (context.device() == kStallingDevice && context.scalar(0).as_int() != 0) {
    // Never destroyed: this thread still waits when the process ends.
    static auto* const mutex = new std::mutex;
    static auto* const never = new std::condition_variable;
    std::unique_lock lock(*mutex);
    never->wait(lock, [] { return false; });
  }
  context.output(0) = context.input(0);
}

std::vector<OutputMeta> infer_stall(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }
Rule stall_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kInFirst);
}

constinit OperatorDef stall_op = {
    .name = "stall",
    .signature = "stall(x) -> Tensor",
    .infer = infer_stall,
    .rule = stall_rule,
    .kernel = stall_kernel,
};

Tensor stall(const Tensor& x, bool on, Where where = Where::current()) {
  const Scalar scalars[] = {Scalar::of_int(on ? 1 : 0)};
  return record(stall_op, NoAttrs{}, {&x}, where, {.scalars = scalars});
}

int stalling_program(Client& client, int argc, char** argv) {
  const bool stalls = argc > 1 && std::string(argv[1]) == "kernel";
  const DeviceMesh mesh = init_device_mesh("cpu", {client.num_devices()});
  Tensor x = full({client.num_devices()}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
  for (int round = 1; !client.stop_requested(); ++round) {
    const Tensor held = stall(x, stalls && round == 3);
    const Tensor whole = (held + x).redistribute({Replicate()});
    x = (whole + whole).redistribute({Shard(0)});
    static_cast<void>(x.to_host());
    std::cout << "round " + std::to_string(round) + "\n" << std::flush;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  OperatorRegistry::global().add(stall_op);
  return dtorch::run(argc, argv, stalling_program);
}
