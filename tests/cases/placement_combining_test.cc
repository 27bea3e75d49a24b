// placement_cases.md, E (extras) on operators that combine across shards, on more layouts than the table's, and F.3 and
// F.4. F.2 is the generic checker (tests/ops).
#include <functional>

#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

constexpr double kFloat32Tolerance = 1e-5;

Tensor strided(const std::vector<Tensor>& in) { return conv2d(in[0], in[1], in[2], {.stride = 2}); }
Tensor padded(const std::vector<Tensor>& in) { return conv2d(in[0], in[1], {}, {.padding = 1}); }

TEST_F(PlacementCase, X01) {
  const Tensor x = iota_on({1, 4, 16, 16}, {2}, {S(3)}), w = iota_on({8, 4, 2, 2}, {2}, {R()}),
               b = iota_on({8}, {2}, {R()});
  const Tensor y = strided({x, w, b});
  EXPECT_EQ(y.shape(), (Shape{1, 8, 8, 8}));
  expect_tensor(y, {S(3)}, on_one_device(strided, {x, w, b}), kFloat32Tolerance);
  expect_local_shapes(y, {{1, 8, 8, 4}, {1, 8, 8, 4}});
}

// The columns that a device lacks travel: the value is right, on even and uneven splits.
TEST_F(PlacementCase, X02) {
  for (int64_t devices : {2, 3}) {
    const Tensor x = iota_on({1, 4, 16, 16}, {devices}, {S(3)}),
                 w = distribute(normal({8, 4, 3, 3}, kFloat32, 2), cpu_mesh({devices}), {R()});
    expect_tensor(padded({x, w}), {S(3)}, on_one_device(padded, {x, w}), kFloat32Tolerance);
  }
}

TEST_F(PlacementCase, X10OnMoreLayouts) {
  const auto joined = [](const std::vector<Tensor>& in) { return cat({in[0], in[1]}, 1); };
  const std::vector<std::pair<Shape, Placements>> layouts = {
      {{2}, {S(1)}}, {{3}, {S(1)}}, {{2, 2}, {S(1), S(1)}}, {{2, 2}, {S(0), S(1)}}, {{2, 3}, {S(1), S(2)}}};
  for (const auto& [mesh, placements] : layouts) {
    const Tensor a = iota_on({3, 8, 4, 5}, mesh, placements),
                 b = distribute(normal({3, 5, 4, 5}, kFloat32, 10), cpu_mesh(mesh), placements);
    const Tensor y = joined({a, b});
    SCOPED_TRACE(y.str());
    EXPECT_EQ(y.shape(), (Shape{3, 13, 4, 5}));
    EXPECT_EQ(check_tensor(y, on_one_device(joined, {a, b}), 0), "");
    for (const Placement& p : y.placements()) EXPECT_FALSE(p.is_partial());
    EXPECT_EQ(check_tensor(y * 2.0, on_one_device([&](const auto& in) { return joined(in) * 2.0; }, {a, b}), 0), "");
    EXPECT_EQ(
        check_tensor(sum(y), on_one_device([&](const auto& in) { return sum(joined(in)); }, {a, b}), kFloat32Tolerance),
        "");
  }
}

TEST_F(PlacementCase, X15OnMoreLayouts) {
  const HostTensor value = normal({5, 8}, kFloat32, 15);
  const std::vector<std::pair<Shape, Placements>> layouts = {
      {{3}, {S(0)}}, {{8}, {S(0)}}, {{3}, {S(1)}}, {{2, 2}, {S(0), S(0)}}, {{2, 3}, {S(0), S(1)}}};
  for (const auto& [mesh, placements] : layouts) {
    for (int64_t dim : {0, 1}) {
      const Tensor x = distribute(value, cpu_mesh(mesh), placements);
      SCOPED_TRACE(x.str() + " dim " + std::to_string(dim));
      const auto [values, indices] = max(x, dim);
      const auto [one_values, one_indices] = max(from_host(value), dim);
      EXPECT_EQ(indices.dtype(), kInt64);
      Placements expected = placements;
      for (Placement& p : expected) p = p.is_shard(dim) ? R() : p.is_shard() ? S(0) : p;
      expect_tensor(values, expected, one_values.to_host());
      expect_tensor(indices, expected, one_indices.to_host());
    }
  }
}

TEST_F(PlacementCase, X21) {
  const DeviceMesh mesh = cpu_mesh({2, 2, 2}, {"dp", "ulysses_cp", "ring_cp"});
  for (bool is_causal : {false, true}) {
    std::vector<Tensor> in;
    for (uint64_t seed : {1, 2, 3}) {
      in.push_back(distribute(normal({2, 4, 16, 8}, kFloat32, seed), mesh, {S(0), S(2), S(2)}));
    }
    const auto attend = [&](const std::vector<Tensor>& qkv) {
      return scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {.is_causal = is_causal});
    };
    const Tensor out = attend(in);
    expect_tensor(out, {S(0), S(2), S(2)}, on_one_device(attend, in), kFloat32Tolerance);
    expect_local_shapes(out, std::vector<Shape>(8, Shape{1, 4, 4, 8}));
  }
}

// The real local tensors have the inferred shapes and dtypes, where shapes and dtypes change on the way.
TEST_F(PlacementCase, F03MetadataEqualsTheRealTensors) {
  const Tensor x = iota_on({5, 8}, {2, 2}, {S(0), S(1)});
  const std::vector<Tensor> results = {
      x > 0,           to(x, kFloat64),     to(x, kBFloat16),
      to(x, kInt64),   x + to(x, kFloat64), transpose(x, 0, 1),
      unsqueeze(x, 1), sum(x, {0}),         sum(x, {1}, true),
      argmax(x, 0),    max(x, 1).second,    matmul(x, transpose(x, 0, 1).redistribute({R(), S(0)}))};
  for (const Tensor& y : results) {
    SCOPED_TRACE(y.str());
    for (int64_t i = 0; i < 4; ++i) {
      const HostTensor local = y.to_host_local(i);
      EXPECT_EQ(local.dtype(), y.dtype());
      EXPECT_EQ(local.shape(), y.layout().box_at(y.shape(), i).size);
    }
    EXPECT_EQ(y.to_host().shape(), y.shape());
    EXPECT_EQ(y.to_host().dtype(), y.dtype());
  }
}

// Row C01, which must hold after every error.
void expect_first_row_to_hold() {
  const HostTensor value = iota({8, 7, 4, 6});
  const Tensor x = from_host(value, {.mesh = cpu_mesh({4}), .placements = {S(0)}});
  expect_tensor(x, {S(0)}, value);
  expect_local_shapes(x, {4, Shape{2, 7, 4, 6}});
}

TEST_F(PlacementCase, F04AfterAnyErrorTheFirstRowHolds) {
  const Tensor rows = iota_on({4, 8}, {2}, {S(0)}), columns = iota_on({4, 8}, {2}, {S(1)}),
               p = iota_on({4, 8}, {4}, {P()}), whole = iota_on({4, 8}, {2}, {R()}),
               half = distribute(iota({4, 8}, kFloat16), cpu_mesh({2}), {R()}),
               elsewhere = from_host(iota({4, 8}), {.mesh = DeviceMesh("cpu", {2}, {2, 3})});
  struct Wrong {
    const char* row;
    std::function<void()> call;
    std::vector<std::string> named;  // the message has the operator and the offending placements
  };
  const std::vector<Wrong> calls = {
      {"C06",
       [] {
         zeros({4, 4}, {.mesh = cpu_mesh({2, 2}), .placements = {S(0)}});
       },
       {"1", "2"}},
      {"C10",
       [] {
         DeviceMesh("cpu", {2}, {0, 0});
       },
       {"0"}},
      {"C28", [&] { rows + columns; }, {"[add]", "Shard(0)", "Shard(1)"}},
      {"C29", [&] { p + 1.0; }, {"[add]", "Partial(sum)"}},
      {"C30 relu", [&] { relu(p); }, {"[relu]", "Partial(sum)"}},
      {"C30 exp", [&] { exp(p); }, {"[exp]", "Partial(sum)"}},
      {"C30 gt", [&] { p > 0; }, {"[gt]", "Partial(sum)"}},
      {"X03",
       [&] { layer_norm(columns, {8}, iota_on({8}, {2}, {R()}), iota_on({8}, {2}, {R()})); },
       {"[layer_norm]", "Shard(1)"}},
      {"X08",
       [] {
         view(iota_on({2, 16, 6}, {2}, {S(2)}), {2, 16, 3, 2});
       },
       {"Shard(2)", "3", "2"}},
      {"X09", [&] { softmax(columns, -1); }, {"[softmax]", "Shard(1)"}},
      {"X12", [&] { chunk(columns, 2, 1); }, {"Shard(1)"}},
      {"X19", [&] { whole + elsewhere; }, {"[0, 1]", "[2, 3]"}},
      {"X20 dtype", [&] { linear(whole, half); }, {"[linear]", "float16", "float32"}},
      {"X20 shape",
       [&] {
         linear(whole, iota_on({4, 9}, {2}, {R()}));
       },
       {"[linear]", "[4, 8]", "[4, 9]"}},
  };
  for (const Wrong& wrong : calls) {
    SCOPED_TRACE(wrong.row);
    const std::string what = message_of<UserError>(wrong.call);
    for (const std::string& part : wrong.named) EXPECT_TRUE(contains(what, part)) << part << " isn't in " << what;
    expect_first_row_to_hold();
  }
}

// An error that only a kernel can see comes with the read; the job goes on.
TEST_F(PlacementCase, F04AfterAKernelsFailureTheFirstRowHolds) {
  const Tensor ids = from_host(HostTensor::of<int64_t>({2}, {3, 600}), {.mesh = cpu_mesh({4})});
  const Tensor y = embedding(ids, iota_on({600, 101}, {4}, {S(1)}));
  EXPECT_TRUE(contains(message_of<RuntimeFault>([&] { y.to_host(); }), "embedding"));
  expect_first_row_to_hold();
}

}  // namespace
}  // namespace dtorch::test
