// Trains a small Llama on a token file (dtorch_app prepare), on one device. train_many.cc beside it is the same program
// on sixteen.
//   build/bin/train_one data/kjv.h5
#include <dtorch/io.h>
#include <dtorch/nn.h>

#include <iostream>
using namespace dtorch;

int main(int argc, char** argv) {
  return dtorch::run(argc, argv, [](Client& client, int count, char** words) {
    if (count != 2) throw UserError("usage: " + std::string(words[0]) + " TOKENS.h5");
    client.manual_seed(7);
    const nn::LlamaConfig sizes{.dim = 64, .layers = 4, .heads = 8, .kv_heads = 4, .vocab = 256};
    nn::Llama model(sizes);
    TokenBatches batches = TokenData::open(words[1]).batches(/*batch=*/8, /*length=*/64, {});
    optim::AdamW optimizer(model.parameters(), {.lr = 1e-3, .weight_decay = 0.1});
    for (int64_t step = 0; step < 20; ++step) {
      Batch batch = batches.next(step);
      Tensor loss = model.loss(batch.inputs, batch.targets);
      loss.backward();
      nn::clip_grad_norm(model.parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
      if (step % 5 == 4) std::cout << step + 1 << ' ' << loss.item<float>() << '\n';
    }
    return 0;
  });
}
