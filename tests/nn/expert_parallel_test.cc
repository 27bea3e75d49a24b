// Expert parallelism by an all-to-all of ragged rows: values, gradients and capacity on every kind of layout, devices
// that get no token, and what moves.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/fake_device.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

class ExpertParallelTest : public KernelTest {
 protected:
  struct Placed {
    Layout tokens, weights, outer;  // of x and gates; of w1 and w3; of w2
  };
  struct Result {
    std::vector<HostTensor> values;  // y, dx, dgates, dw1, dw3, dw2
  };
  struct Sizes {
    Shape tokens;
    int64_t experts = 4, dim = 5, inner = 3;
  };
  // Each row gives some experts a weight: those of `chosen`.
  static HostTensor gates_of(const Sizes& sizes, const std::function<bool(int64_t token, int64_t expert)>& chosen) {
    Shape shape = sizes.tokens;
    shape.push_back(sizes.experts);
    std::vector<double> gates;
    for (int64_t token = 0; token < sizes.tokens.num_elements(); ++token) {
      for (int64_t e = 0; e < sizes.experts; ++e)
        gates.push_back(chosen(token, e) ? 0.25 + 0.01 * static_cast<double>(token + e) : 0.0);
    }
    return HostTensor::of<double>(shape, gates);
  }
  static Result compute(const Sizes& sizes, const HostTensor& gates, const Placed& placed) {
    Shape x_shape = sizes.tokens;
    x_shape.push_back(sizes.dim);
    const auto leaf = [](const HostTensor& value, const Layout& layout) {
      return distribute(value, layout).requires_grad_();
    };
    const Shape inner = {sizes.experts, sizes.inner, sizes.dim}, outer = {sizes.experts, sizes.dim, sizes.inner};
    const std::vector<Tensor> in = {leaf(normal(x_shape, kFloat64, 1), placed.tokens), leaf(gates, placed.tokens),
                                    leaf(normal(inner, kFloat64, 2), placed.weights),
                                    leaf(normal(inner, kFloat64, 3), placed.weights),
                                    leaf(normal(outer, kFloat64, 4), placed.outer)};
    const Tensor y = expert_parallel(in[0], in[1], in[2], in[3], in[4]).reduced();
    EXPECT_EQ(y.layout(), placed.tokens);
    (y * distribute(normal(x_shape, kFloat64, 5), y.layout())).sum().backward();
    Result result;
    result.values.push_back(y.to_host());
    for (const Tensor& x : in) {
      EXPECT_EQ(x.grad().layout(), x.layout());
      result.values.push_back(x.grad().to_host());
    }
    return result;
  }
  static void expect_same_as_one_device(const Sizes& sizes, const HostTensor& gates, const Placed& placed) {
    SCOPED_TRACE(placed.tokens.str() + ", experts " + placed.weights.str());
    const Layout one = Layout::replicated(cpu_mesh({1}));
    const Result want = compute(sizes, gates, {one, one, one}), got = compute(sizes, gates, placed);
    const char* names[] = {"y", "dx", "dgates", "dw1", "dw3", "dw2"};
    for (size_t i = 0; i < want.values.size(); ++i)
      EXPECT_EQ(difference(got.values[i], want.values[i], 1e-12), "") << names[i];
  }
  // Tokens [B, T] split on `tokens`, experts on the axis "ep", their inner dim on "tp" where there is one.
  static Placed placed(const DeviceMesh& mesh, const Placements& tokens, int64_t ndim) {
    Placements inner(mesh.num_axes(), Replicate()), outer(mesh.num_axes(), Replicate());
    inner[mesh.axis("ep")] = outer[mesh.axis("ep")] = Shard(0);
    if (mesh.has_axis("tp")) {
      inner[mesh.axis("tp")] = Shard(1);
      outer[mesh.axis("tp")] = Shard(2);
    }
    return {Layout(mesh, tokens, ndim), Layout(mesh, inner, 3), Layout(mesh, outer, 3)};
  }
  static bool two_of(int64_t token, int64_t expert, int64_t experts) {
    return expert == token % experts || expert == (token * 3 + 1) % experts;
  }
};

TEST_F(ExpertParallelTest, EveryLayoutGivesTheValuesAndGradientsOfOneDevice) {
  struct Case {
    DeviceMesh mesh;
    Placements tokens;
  };
  const Case cases[] = {
      {cpu_mesh({2}, {"ep"}), {Shard(0)}},
      {cpu_mesh({4}, {"ep"}), {Shard(0)}},
      {cpu_mesh({3}, {"ep"}), {Shard(1)}},
      {cpu_mesh({2, 3}, {"dp", "ep"}), {Shard(0), Shard(0)}},
      {cpu_mesh({3, 2}, {"ep", "dp"}), {Shard(0), Shard(0)}},
      {cpu_mesh({2, 2, 2}, {"dp", "ep", "ulysses_cp"}), {Shard(0), Shard(0), Shard(1)}},
      {cpu_mesh({2, 2, 2}, {"ep", "tp", "dp"}), {Shard(0), Replicate(), Shard(0)}},
      {cpu_mesh({2, 2}, {"ep", "replicas"}), {Shard(0), Replicate()}},
      // Not split over the experts' axis: nothing has to travel there, and results are a sum.
      {cpu_mesh({2, 2}, {"dp", "ep"}), {Shard(0), Replicate()}},
  };
  for (int64_t experts : {4, 5}) {
    const Sizes sizes{.tokens = {5, 4}, .experts = experts};
    const HostTensor gates = gates_of(sizes, [&](int64_t t, int64_t e) { return two_of(t, e, experts); });
    for (const auto& [mesh, tokens] : cases) expect_same_as_one_device(sizes, gates, placed(mesh, tokens, 3));
  }
}

TEST_F(ExpertParallelTest, DevicesThatGetNoTokenOrHaveNoExpertWork) {
  const Layout split(cpu_mesh({4}, {"ep"}), {Shard(0)}, 2);
  for (int64_t experts : {2, 4}) {
    const Sizes sizes{.tokens = {6}, .experts = experts};
    const Placed on = placed(split.mesh(), {Shard(0)}, 2);
    expect_same_as_one_device(sizes, gates_of(sizes, [](int64_t, int64_t e) { return e == 1; }), on);
    expect_same_as_one_device(sizes, gates_of(sizes, [](int64_t, int64_t) { return false; }), on);
    expect_same_as_one_device(sizes, gates_of(sizes, [](int64_t, int64_t) { return true; }), on);
    const Sizes one_token{.tokens = {1}, .experts = experts};
    expect_same_as_one_device(one_token, gates_of(one_token, [](int64_t, int64_t e) { return e == 0; }), on);
  }
}

TEST_F(ExpertParallelTest, OperandsThatDoNotFitAreRefusedAtTheCall) {
  const Placed on = placed(cpu_mesh({2}, {"ep"}), {Shard(0)}, 2);
  const auto make = [](const Shape& shape, const Layout& layout, DType dtype = kFloat64) {
    return distribute(normal(shape, kFloat64, 1).to(dtype), layout);
  };
  const Tensor x = make({6, 5}, on.tokens), gates = make({6, 4}, on.tokens), w1 = make({4, 3, 5}, on.weights),
               w2 = make({4, 5, 3}, on.outer);
  const auto message = [&](const Tensor& g, const Tensor& w3) -> std::string {
    try {
      expert_parallel(x, g, w1, w3, w2);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message(gates, w1), "accepted");
  for (const std::string& text : {message(gates, make({4, 2, 5}, on.weights)), message(make({6, 3}, on.tokens), w1),
                                  message(make({5, 4}, on.tokens), w1)})
    EXPECT_NE(text.find("[expert_parallel] expected x [..., D], gates [..., E]"), std::string::npos) << text;
  const std::string dtypes = message(gates, make({4, 3, 5}, on.weights, kFloat32));
  EXPECT_NE(dtypes.find("[expert_parallel]"), std::string::npos) << dtypes;
}

TEST_F(ExpertParallelTest, CapacityDropsTheSameTokensOnEveryLayout) {
  const nn::MoeConfig config{.dim = 4, .inner = 3, .experts = 4, .top_k = 2, .capacity_factor = 0.5};
  const auto run = [&](const Layout& tokens, const Layout& experts) {
    const auto weight = [&](const Shape& shape, uint64_t seed) {
      return distribute(normal(shape, kFloat64, seed), experts);
    };
    return nn::moe_forward(distribute(normal({6, 5, 4}, kFloat64, 1), tokens), config,
                           distribute(normal({4, 4}, kFloat64, 2), Layout::replicated(tokens.mesh())),
                           weight({4, 3, 4}, 3), weight({4, 3, 4}, 4), weight({4, 4, 3}, 5))
        .y.to_host();
  };
  const Layout one = Layout::replicated(cpu_mesh({1}));
  const HostTensor want = run(one, one);
  const std::vector<double> values = want.to_vector<double>();
  EXPECT_GT(std::ranges::count(values, 0.0), 0) << "no token lost all its experts, so nothing is shown";
  for (const auto& [mesh, tokens] :
       std::vector<std::pair<DeviceMesh, Placements>>{{cpu_mesh({2}, {"ep"}), {Shard(0)}},
                                                      {cpu_mesh({3}, {"ep"}), {Shard(1)}},
                                                      {cpu_mesh({2, 2}, {"ep", "dp"}), {Shard(0), Shard(0)}},
                                                      {cpu_mesh({4, 2}, {"ep", "cp"}), {Shard(0), Shard(1)}}}) {
    const Placed on = placed(mesh, tokens, 3);
    EXPECT_EQ(difference(run(on.tokens, on.weights), want, 1e-13), "") << on.tokens.str();
  }
}

// Two choices a token, spread evenly over the experts.
TEST_F(ExpertParallelTest, MovesFewerBytesThanGatheringTheTokens) {
  if (on_fake_devices())
    GTEST_SKIP() << "what accelerators move by collectives isn't counted as bytes of the data plane";
  const Sizes sizes{.tokens = {64}, .experts = 8, .dim = 32, .inner = 4};
  const HostTensor gates = gates_of(sizes, [](int64_t t, int64_t e) { return e == t % 8 || e == (t + t / 8 + 1) % 8; });
  const auto moved = [](const std::function<Tensor()>& call) {
    client().synchronize();
    const int64_t before = client().stats().data_bytes;
    const Tensor y = call();
    client().synchronize();
    return client().stats().data_bytes - before;
  };
  for (const DeviceMesh& mesh : {DeviceMesh("cpu", {2}, {0, 4}, {"ep"}), cpu_mesh({8}, {"ep"})}) {
    const Placed on = placed(mesh, {Shard(0)}, 2);
    const Layout whole = Layout::replicated(mesh);
    const Tensor x = distribute(normal({64, 32}, kFloat64, 1), on.tokens), g = distribute(gates, on.tokens),
                 w1 = distribute(normal({8, 4, 32}, kFloat64, 2), on.weights),
                 w3 = distribute(normal({8, 4, 32}, kFloat64, 3), on.weights),
                 w2 = distribute(normal({8, 32, 4}, kFloat64, 4), on.outer);
    const int64_t exchanged = moved([&] { return expert_parallel(x, g, w1, w3, w2); });
    const int64_t gathered = moved(
        [&] { return moe_experts(x.redistribute(whole), g.redistribute(whole), w1, w3, w2).redistribute(on.tokens); });
    RecordProperty("exchanged_" + std::to_string(mesh.num_devices()), std::to_string(exchanged));
    RecordProperty("gathered_" + std::to_string(mesh.num_devices()), std::to_string(gathered));
    // Rows that change nodes: with their gates there, as results back.
    const int64_t parts = mesh.num_devices();
    const auto node_of = [&](int64_t part) { return part * 2 / parts; };
    int64_t rows = 0;
    for (int64_t t = 0; t < 64; ++t) {
      const std::set<int64_t> chosen = {t % 8 * parts / 8, (t + t / 8 + 1) % 8 * parts / 8};
      for (int64_t part : chosen) rows += node_of(part) != node_of(t * parts / 64);
    }
    const int64_t least = rows * (32 + 8 / parts + 32) * 8, headers = 2 * 2 * (64 + 192);
    EXPECT_EQ(exchanged, least + headers);
    EXPECT_LT(exchanged, gathered);
  }
}

}  // namespace
}  // namespace dtorch::test
