// Cases of the kind of C13 and C17: gradients at the boundaries of redistributions, of pending sums, of values that are
// used twice or not at all; no_grad, detach, retain_graph.
#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

using GradientCase = KernelTest;

HostTensor weights(const Shape& shape) { return normal(shape, kFloat64, 900); }

// A leaf, and its gradient from `loss`.
HostTensor gradient_of(const Tensor& leaf, const std::function<Tensor(const Tensor&)>& loss) {
  Tensor own = leaf.detach();
  own.requires_grad_();
  loss(own).backward();
  const Tensor gradient = own.grad();
  Placements expected = own.placements();
  for (Placement& p : expected) p = p.is_partial() ? R() : p;
  EXPECT_EQ(gradient.placements(), expected);
  EXPECT_EQ(gradient.mesh(), own.mesh());
  return gradient.to_host();
}

struct Spread {
  Shape mesh;
  Placements placements;
};
std::vector<Spread> spreads() {
  return {{{1}, {R()}},
          {{2}, {R()}},
          {{2}, {S(0)}},
          {{3}, {S(1)}},
          {{2}, {P()}},
          {{8}, {S(0)}},
          {{2, 2}, {S(0), S(0)}},
          {{2, 2}, {S(1), S(0)}},
          {{2, 2}, {P(), S(0)}},
          {{2, 2}, {S(0), P()}},
          {{2, 2}, {P(), P()}},
          {{2, 3}, {R(), S(1)}},
          {{2, 2, 2}, {S(0), P(), S(0)}}};
}

// `loss` on every spread of a [5, 3] leaf gives the gradient of one device.
void expect_equal_gradients(const std::function<Tensor(const Tensor&)>& loss) {
  const HostTensor value = normal({5, 3}, kFloat64, 901);
  const HostTensor one = gradient_of(from_host(value), loss);
  for (const Spread& spread : spreads()) {
    const Tensor leaf = distribute(value, cpu_mesh(spread.mesh), spread.placements);
    SCOPED_TRACE(leaf.str());
    EXPECT_EQ(difference(gradient_of(leaf, loss), one, 1e-11), "");
  }
}

Placements all(const Tensor& x, const Placement& placement) { return Placements(x.mesh().num_axes(), placement); }
Tensor weighted(const Tensor& x) { return sum(x * distribute(weights(x.shape()), Layout::replicated(x.mesh()))); }
// Half of the weight on every device: what arrives at x is pending where x is whole.
Tensor weighted_pending(const Tensor& x) {
  Placements placements = x.placements();
  for (Placement& p : placements) p = p.is_replicate() ? P() : R();
  return sum(x * distribute(weights(x.shape()), x.mesh(), placements));
}

TEST_F(GradientCase, RedistributionsBetweenAnyPlacements) {
  for (const Placement& to : {R(), S(0), S(1), P()}) {
    SCOPED_TRACE(to.str());
    expect_equal_gradients([&](const Tensor& x) { return weighted(x.redistribute(all(x, to))); });
    expect_equal_gradients([&](const Tensor& x) { return weighted_pending(x.redistribute(all(x, to))); });
    expect_equal_gradients([&](const Tensor& x) {
      return weighted(square(x.redistribute(all(x, to)).redistribute(all(x, S(1))).redistribute(all(x, R()))));
    });
  }
}

TEST_F(GradientCase, ToAnotherMeshAndBack) {
  for (const Placements& there : {Placements{R()}, Placements{S(0)}, Placements{S(1)}, Placements{P()}}) {
    expect_equal_gradients([&](const Tensor& x) {
      const Tensor moved = x.redistribute(DeviceMesh("cpu", {3}, {7, 2, 5}), there);
      const Tensor back = moved.redistribute(x.mesh(), all(x, S(0)));
      return weighted(square(back)) + weighted(back);
    });
    expect_equal_gradients([&](const Tensor& x) {
      return weighted_pending(x.redistribute(DeviceMesh("cpu", {2}, {6, 1}), there) * 3.0);
    });
  }
}

TEST_F(GradientCase, UsedOnTwoMeshes) {
  expect_equal_gradients([](const Tensor& x) {
    const DeviceMesh other("cpu", {2}, {4, 1});
    const Tensor here = weighted(x), there = weighted(x.redistribute(other, {S(0)}));
    return here.redistribute(other, {R()}) + there;
  });
}

TEST_F(GradientCase, UsedTwiceInDifferentLayouts) {
  expect_equal_gradients([](const Tensor& x) {
    const Tensor a = x.redistribute(all(x, S(0))), b = x.redistribute(all(x, R())), c = x.redistribute(all(x, S(1)));
    return sum(square(a)) + sum(exp(b)) + weighted(c) + weighted_pending(b) + sum(x.reduced() * 2.0);
  });
}

TEST_F(GradientCase, WithAnotherDtypeOnTheWay) {
  const auto loss = [](const Tensor& x) {
    return to(sum(square(x.redistribute(all(x, R()), {.dtype = kFloat32}))), kFloat64);
  };
  const HostTensor value = normal({5, 3}, kFloat64, 901);
  const HostTensor one = gradient_of(from_host(value), loss);
  for (const Spread& spread : spreads()) {
    const Tensor leaf = distribute(value, cpu_mesh(spread.mesh), spread.placements);
    SCOPED_TRACE(leaf.str());
    EXPECT_EQ(difference(gradient_of(leaf, loss), one, 1e-6), "");
  }
}

TEST_F(GradientCase, PartsOfAValueAreUsed) {
  expect_equal_gradients(
      [](const Tensor& x) { return sum(square(select(x.reduced(), 0, 3))) + sum(slice(x, 0, 0, 5, 2)); });
  expect_equal_gradients(
      [](const Tensor& x) { return sum(square(slice(transpose(slice(x.reduced(), 0, 1, 5), 0, 1), 1, 0, 4, 3))); });
  expect_equal_gradients([](const Tensor& x) { return max(x) + min(x, 0).first.sum(); });
  expect_equal_gradients([](const Tensor& x) { return sum(topk(x, 2, 0).first * 2.0); });
  expect_equal_gradients([](const Tensor& x) { return sum(sort(x, 1, true).first.select(1, 0)); });
}

TEST_F(GradientCase, OneOfSeveralOutputsIsUsed) {
  expect_equal_gradients([](const Tensor& x) { return weighted(chunk(x.redistribute(all(x, R())), 3, 0)[1]); });
  expect_equal_gradients([](const Tensor& x) { return weighted(var_mean(x, {0}).second); });
  expect_equal_gradients([](const Tensor& x) { return weighted(unbind(x.redistribute(all(x, R())), 1)[2]); });
}

TEST_F(GradientCase, DetachedAndWithoutGradients) {
  expect_equal_gradients([](const Tensor& x) { return sum(x.reduced() * square(x.reduced()).detach()); });
  expect_equal_gradients([](const Tensor& x) {
    Tensor factor;
    {
      const NoGrad no_grad;
      factor = exp(x.reduced());
    }
    EXPECT_FALSE(factor.requires_grad());
    return sum(x.reduced() * factor);
  });
  expect_equal_gradients([](const Tensor& x) {
    const NoGrad no_grad;
    const EnableGrad again;
    return sum(square(x.reduced()));
  });
  // Through integers nothing comes back.
  expect_equal_gradients([](const Tensor& x) { return sum(x) + to(sum(to(x.reduced(), kInt64)), kFloat64); });
}

TEST_F(GradientCase, TwiceOverOneTape) {
  const HostTensor value = normal({5, 3}, kFloat64, 901);
  HostTensor one;
  for (const Spread& spread : spreads()) {
    Tensor x = distribute(value, cpu_mesh(spread.mesh), spread.placements);
    SCOPED_TRACE(x.str());
    x.requires_grad_();
    const Tensor y = x * 1.5, loss = sum(square(y.reduced()));
    y.retain_grad();
    backward({loss}, {}, {}, {.retain_graph = true});
    const HostTensor first = x.grad().to_host(), of_y = y.grad().to_host();
    loss.backward();
    EXPECT_EQ(difference(x.grad().to_host(), (from_host(first) * 2.0).to_host(), 1e-12), "");
    EXPECT_EQ(difference((from_host(of_y) * 1.5).to_host(), first, 1e-12), "");
    EXPECT_THROW(loss.backward(), UserError);
    if (!one.defined()) one = first;
    EXPECT_EQ(difference(first, one, 1e-12), "");
    x.zero_grad();
    EXPECT_FALSE(x.grad().defined());
  }
}

TEST_F(GradientCase, OfNoScalarWithAGradientOfAnyLayout) {
  const HostTensor value = normal({5, 3}, kFloat64, 901), given = normal({5, 3}, kFloat64, 902);
  const HostTensor one = (from_host(value) * from_host(given) * 2.0).to_host();
  for (const Spread& spread : spreads()) {
    for (const Placement& placement : {R(), S(0), S(1), P()}) {
      Tensor x = distribute(value, cpu_mesh(spread.mesh), spread.placements);
      SCOPED_TRACE(x.str() + " with a gradient " + placement.str());
      x.requires_grad_();
      square(x.reduced()).backward(distribute(given, x.mesh(), all(x, placement)));
      EXPECT_EQ(check_tensor(x.grad(), one, 1e-11), "");
    }
  }
}

TEST_F(GradientCase, OfInnerValues) {
  const HostTensor value = normal({5, 3}, kFloat64, 901);
  HostTensor one;
  for (const Spread& spread : spreads()) {
    Tensor x = distribute(value, cpu_mesh(spread.mesh), spread.placements);
    SCOPED_TRACE(x.str());
    x.requires_grad_();
    const Tensor y = sum_pending(x.reduced(), {1}), z = sum(square(y.reduced()));
    const std::vector<Tensor> found = gradients({z}, {}, {y, x});
    EXPECT_FALSE(x.grad().defined());
    const HostTensor of_y = found[0].to_host();
    if (!one.defined()) one = of_y;
    EXPECT_EQ(difference(of_y, one, 1e-12), "");
    EXPECT_EQ(found[1].shape(), x.shape());
  }
}

TEST_F(GradientCase, LinearLayersWhoseWeightsAreSplit) {
  const HostTensor x_host = normal({4, 6}, kFloat64, 1), w_host = normal({5, 6}, kFloat64, 2),
                   b_host = normal({5}, kFloat64, 3);
  std::vector<HostTensor> one;
  const std::vector<std::array<Placement, 3>> layouts = {{R(), R(), R()},   {S(0), R(), R()},  {R(), S(0), S(0)},
                                                         {S(1), S(1), R()}, {S(1), S(1), P()}, {P(), R(), P()},
                                                         {R(), P(), P()},   {S(1), R(), R()}};
  for (int64_t devices : {1, 2, 3, 8}) {
    for (const auto& [px, pw, pb] : layouts) {
      const DeviceMesh mesh = cpu_mesh({devices});
      std::vector<Tensor> leaves = {distribute(x_host, mesh, {px}), distribute(w_host, mesh, {pw}),
                                    distribute(b_host, mesh, {pb})};
      SCOPED_TRACE(std::to_string(devices) + " " + px.str() + pw.str() + pb.str());
      for (Tensor& leaf : leaves) leaf.requires_grad_();
      const Tensor y = linear(leaves[0], leaves[1], leaves[2]);
      sum(square(y.reduced())).backward();
      std::vector<HostTensor> got = {y.to_host()};
      for (const Tensor& leaf : leaves) got.push_back(leaf.grad().to_host());
      if (one.empty()) one = got;
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(difference(got[i], one[i], 1e-11), "") << i;
      for (const Tensor& leaf : leaves) EXPECT_FALSE(leaf.grad().layout().has_partial());
    }
  }
}

TEST_F(GradientCase, AnUnusedLeafHasNone) {
  Tensor used = distribute(normal({4}, kFloat64, 1), cpu_mesh({2}), {S(0)}),
         unused = distribute(normal({4}, kFloat64, 2), cpu_mesh({2}), {S(0)});
  used.requires_grad_();
  unused.requires_grad_();
  sum(square(used)).backward();
  EXPECT_TRUE(used.grad().defined());
  EXPECT_FALSE(unused.grad().defined());
}

TEST_F(GradientCase, OfNothing) {
  for (const Placement& placement : {R(), S(0), S(1)}) {
    Tensor x = distribute(HostTensor({0, 3}, kFloat64), cpu_mesh({2}), {placement}),
           w = distribute(normal({3, 4}, kFloat64, 1), cpu_mesh({2}), {R()});
    x.requires_grad_();
    w.requires_grad_();
    sum(matmul(x, w)).backward();
    EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
    EXPECT_EQ(check_tensor(w.grad(), HostTensor({3, 4}, kFloat64), 0), "");
  }
}

}  // namespace
}  // namespace dtorch::test
