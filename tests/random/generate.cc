// Generation of random programs.
#include "tests/random/builder.h"
#include "tests/random/run_program.h"

namespace dtorch::test {

Program generate_program(uint64_t number, const GenerateOptions& options) {
  // Of its own, so that a program doesn't depend on how many came before it.
  std::mt19937_64 random(options.seed * 77777 + number);
  const bool gradients = static_cast<double>(random() >> 11) * 0x1p-53 < options.gradients;
  const auto spread = static_cast<uint64_t>(options.max_operators - options.min_operators + 1);
  const auto wanted = options.min_operators + static_cast<int64_t>(random() % spread);
  Builder builder(number, options.seed, gradients, 1 + static_cast<int>(random() % 3));
  for (int i = 0; i < 2; ++i) builder.leaf({builder.random_shape(1, 3)});
  for (int64_t tries = 0; builder.num_operators() < wanted && tries < 60 * wanted; ++tries) {
    std::optional<Proposal> proposal;
    const Known* x = options.extra_calls.empty() || !builder.chance(0.1) ? nullptr : builder.any_real();
    if (x != nullptr) {
      const auto& [text, call] = options.extra_calls[builder.below(options.extra_calls.size())];
      proposal = Proposal{.text = text, .inputs = {x->number}, .run = call};
    } else {
      proposal = propose(builder.below(num_proposals()), builder);
    }
    if (proposal) builder.call(std::move(*proposal));
  }
  return builder.take();
}

}  // namespace dtorch::test
