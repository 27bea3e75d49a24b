// Cases of the kind of C05: what a call knows of earlier ones. Attributes and plain numbers that change from call to
// call, on one layout and on layouts in turn; creation and positions on every layout.
#include <functional>

#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

using CallCase = KernelTest;

struct Spread {
  Shape mesh;
  Placements placements;
};
std::vector<Spread> spreads() {
  return {{{2}, {R()}},           {{2}, {S(0)}},          {{3}, {S(1)}},         {{8}, {S(0)}},
          {{2, 2}, {S(0), S(0)}}, {{2, 2}, {S(1), S(0)}}, {{2, 3}, {R(), S(1)}}, {{2, 2, 2}, {S(0), S(1), S(0)}},
          {{2}, {P()}},           {{2, 2}, {P(), S(0)}}};
}

// The call with each number 0 .. count - 1, forth and back, on every spread in turn.
void expect_no_memory(int64_t count, const std::function<Tensor(const Tensor&, int64_t)>& use,
                      double tolerance = 1e-11) {
  const HostTensor value = normal({7, 6}, kFloat64, 31);
  std::vector<HostTensor> want;
  for (int64_t i = 0; i < count; ++i) want.push_back(use(from_host(value), i).to_host());
  for (const Spread& spread : spreads()) {
    const Tensor x = distribute(value, cpu_mesh(spread.mesh), spread.placements);
    SCOPED_TRACE(x.str());
    for (int64_t step = 0; step < 2 * count; ++step) {
      const int64_t i = step < count ? step : 2 * count - 1 - step;
      EXPECT_EQ(check_tensor(use(x, i), want[static_cast<size_t>(i)], tolerance), "") << i;
    }
  }
}

TEST_F(CallCase, AttributesThatChange) {
  expect_no_memory(7, [](const Tensor& x, int64_t i) { return narrow(x, 0, i, 1); });
  expect_no_memory(6, [](const Tensor& x, int64_t i) { return slice(x, 0, i, 7, 1 + i % 3); });
  expect_no_memory(7, [](const Tensor& x, int64_t i) { return select(x, 0, i); });
  expect_no_memory(5, [](const Tensor& x, int64_t i) { return roll(x, {i - 2}, {i % 2}); });
  expect_no_memory(5, [](const Tensor& x, int64_t i) { return tril(x, i - 2); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) {
    return pad(x, {i, 1}, "constant", static_cast<double>(i) * 0);
  });
  expect_no_memory(2, [](const Tensor& x, int64_t i) { return cumsum(x, i); });
  expect_no_memory(2, [](const Tensor& x, int64_t i) { return sum(x, {i}); });
  expect_no_memory(2, [](const Tensor& x, int64_t i) { return sum(x, {0}, i == 1); });
  expect_no_memory(3, [](const Tensor& x, int64_t i) { return var(x, {0}, static_cast<double>(i)); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return norm(x, 1 + static_cast<double>(i)); });
  expect_no_memory(5, [](const Tensor& x, int64_t i) { return topk(x, i + 1, 0).first; });
  expect_no_memory(2, [](const Tensor& x, int64_t i) { return max(x, i).second; });
  expect_no_memory(
      3, [](const Tensor& x, int64_t i) { return to(x, i == 0   ? kFloat32
                                                       : i == 1 ? kFloat64
                                                                : kBFloat16); }, 2e-2);
  expect_no_memory(3, [](const Tensor& x, int64_t i) { return diagonal(x, i - 1); });
  expect_no_memory(3, [](const Tensor& x, int64_t i) { return repeat(x, {1 + i, 1}); });
  expect_no_memory(2, [](const Tensor& x, int64_t i) {
    return permute(x, i == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1, 0});
  });
}

TEST_F(CallCase, NumbersThatChange) {
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return x * i; });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return x * (0.5 * static_cast<double>(i)); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return x / (1 + i); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return mean(x).reduced() * i + 10 * i; });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return i % 2 == 0 ? x * 2 : x * 2.0; });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return add(x, x, i); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return pow(abs(x.reduced()), i); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) {
    return clamp(x.reduced(), -0.1 * static_cast<double>(i), 0.2 * static_cast<double>(i));
  });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return masked_fill(x.reduced(), x.reduced() > 0, i); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return full_like(x, i) + x.reduced(); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) { return softplus(x.reduced(), 1 + static_cast<double>(i), 20); });
  expect_no_memory(4, [](const Tensor& x, int64_t i) {
    return layer_norm(x.redistribute(Placements(x.mesh().num_axes(), R())), {6}, {}, {},
                      0.1 * static_cast<double>(i + 1));
  });
}

TEST_F(CallCase, GradientsThatAreOnAndOff) {
  const HostTensor value = normal({7, 6}, kFloat64, 31), factor = normal({6, 4}, kFloat64, 32);
  HostTensor want;
  for (const Spread& spread : spreads()) {
    if (spread.placements[0].is_partial()) continue;
    const DeviceMesh mesh = cpu_mesh(spread.mesh);
    SCOPED_TRACE(spread.placements.str());
    for (int round = 0; round < 6; ++round) {
      Tensor x = distribute(value, mesh, spread.placements), w = distribute(factor, Layout::replicated(mesh));
      x.requires_grad_(round % 2 == 0);
      w.requires_grad_(round % 3 != 1);
      const Tensor loss = sum(square(matmul(x, w).reduced()));
      EXPECT_EQ(loss.requires_grad(), round % 2 == 0 || round % 3 != 1);
      if (!loss.requires_grad()) continue;
      loss.backward();
      EXPECT_EQ(x.grad().defined(), round % 2 == 0);
      EXPECT_EQ(w.grad().defined(), round % 3 != 1);
      if (!w.grad().defined()) continue;
      const HostTensor got = w.grad().to_host();
      if (!want.defined()) want = got;
      EXPECT_EQ(difference(got, want, 1e-11), "") << round;
    }
  }
}

TEST_F(CallCase, WhatIsCreatedIsTheSameOnEveryLayout) {
  using Make = std::function<Tensor(const TensorOptions&)>;
  const std::vector<std::pair<std::string, Make>> makes = {
      {"arange", [](const TensorOptions& o) { return arange(7, o); }},
      {"arange with steps", [](const TensorOptions& o) { return arange(9, -3, -2, o); }},
      {"arange of floating", [](const TensorOptions& o) { return arange(0.5, 4.0, 0.25, o); }},
      {"linspace", [](const TensorOptions& o) { return linspace(-1, 2, 11, o); }},
      {"logspace", [](const TensorOptions& o) { return logspace(0, 2, 5, 2, o); }},
      {"randperm", [](const TensorOptions& o) { return randperm(13, o); }},
      {"randint", [](const TensorOptions& o) { return randint(3, 50, {9}, o); }},
      {"eye", [](const TensorOptions& o) { return eye(5, 7, o); }},
      {"full",
       [](const TensorOptions& o) {
         return full({5, 7}, 2.5, o);
       }},
      {"zeros",
       [](const TensorOptions& o) {
         return zeros({0, 3}, o);
       }},
      {"rand",
       [](const TensorOptions& o) {
         return rand({5, 7}, o);
       }},
      {"randn",
       [](const TensorOptions& o) {
         return randn({5, 7}, o);
       }},
      {"uniform",
       [](const TensorOptions& o) {
         return uniform(-2, 3, {5, 7}, o);
       }},
      {"normal",
       [](const TensorOptions& o) {
         return normal(1, 2, {5, 7}, o);
       }},
      {"exponential",
       [](const TensorOptions& o) {
         return exponential(2, {5, 7}, o);
       }},
      {"gumbel",
       [](const TensorOptions& o) {
         return gumbel({5, 7}, o);
       }},
      {"bernoulli",
       [](const TensorOptions& o) {
         return bernoulli(0.3, {5, 7}, o);
       }},
      {"triangle", [](const TensorOptions& o) { return tril_indices(4, 5, 1, o); }},
  };
  for (const auto& [name, make] : makes) {
    SCOPED_TRACE(name);
    for (const bool half : {false, true}) {
      TensorOptions options;
      if (half && name != "triangle" && name != "randperm" && name != "randint" && !name.starts_with("arange"))
        options.dtype = kBFloat16;
      manual_seed(11);
      const HostTensor one = make(options).to_host(), next = make(options).to_host();
      for (const Spread& spread : spreads()) {
        for (const std::vector<std::string>& order : {std::vector<std::string>{}, std::vector<std::string>{"b", "a"}}) {
          if (!order.empty() && spread.mesh.ndim() != 2) continue;
          TensorOptions own = options;
          own.mesh = spread.mesh.ndim() == 2 ? cpu_mesh(spread.mesh, {"a", "b"}) : cpu_mesh(spread.mesh);
          own.placements = spread.placements;
          own.order = order;
          for (Placement& p : own.placements) p = p.is_shard() && p.dim >= one.shape().ndim() ? S(0) : p;
          SCOPED_TRACE(own.layout(one.shape().ndim()).str());
          manual_seed(11);
          EXPECT_EQ(check_tensor(make(own), one, 0), "");
          EXPECT_EQ(check_tensor(make(own), next, 0), "");
        }
      }
    }
  }
}

// A refused call leaves the sequence of random numbers where it was.
TEST_F(CallCase, ARefusedCallDrawsNothing) {
  const DeviceMesh mesh = cpu_mesh({2});
  const Tensor p = distribute(normal({1, 2, 4, 4}, kFloat64, 1), mesh, {P()}),
               columns = distribute(normal({3, 4}, kFloat64, 2), mesh, {S(1)}),
               whole_numbers = distribute(seq({3, 4}), mesh, {R()}),
               elsewhere = from_host(normal({3, 4}, kFloat64, 2), {.mesh = DeviceMesh("cpu", {2}, {2, 3})});
  const std::vector<std::pair<std::string, std::function<void()>>> refused = {
      {"dropout", [&] { dropout(whole_numbers, 0.5); }},
      {"attention", [&] { scaled_dot_product_attention(p, p, p, {.dropout_p = 0.5}); }},
      {"attention with a mask",
       [&] {
         scaled_dot_product_attention(p.reduced(), p.reduced(), p.reduced(), {.attn_mask = columns, .dropout_p = 0.5});
       }},
      {"gumbel_softmax", [&] { gumbel_softmax(columns, 1.0, false, 1); }},
      {"gumbel_softmax of integers", [&] { gumbel_softmax(whole_numbers); }},
      {"bernoulli", [&] { bernoulli(distribute(normal({4}, kFloat64, 1), mesh, {P()})); }},
      {"normal", [&] { normal(columns, elsewhere); }},
      {"poisson", [&] { poisson(whole_numbers); }},
      {"multinomial", [&] { multinomial(whole_numbers, 2); }},
      {"alpha_dropout", [&] { alpha_dropout(whole_numbers, 0.5); }},
      {"feature_dropout", [&] { feature_dropout(whole_numbers, 0.5); }},
      {"randn",
       [&] {
         randn({3}, {.mesh = DeviceMesh("cpu", {2}, {0, 99})});
       }},
      {"randn of integers", [&] { randn({3}, {.dtype = kInt64}); }},
      {"randint", [&] { randint(5, 5, {3}); }},
      {"rand_like", [&] { rand_like(whole_numbers); }},
  };
  client().manual_seed(3);
  randn({2});
  const RandomState before = client().graph().random_state();
  for (const auto& [name, call] : refused) {
    EXPECT_THROW(call(), UserError) << name;
    EXPECT_EQ(client().graph().random_state(), before) << name;
    client().graph().set_random_state(before);
  }
}

}  // namespace
}  // namespace dtorch::test
