// placement_cases.md, C (elementwise), D (matmul, linear, reductions, embedding) and E (extras).
// X01, X02 and X21, and more layouts of X10 and X15, are in placement_combining_test.cc. Left out: none.
#include "nn/llama.h"
#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

constexpr double kFloat32Tolerance = 1e-5;

// --- C
TEST_F(PlacementCase, C25) {
  const Tensor x = iota_on({5, 3}, {2}, {S(0)}), y = iota_on({5, 3}, {2}, {S(0)});
  client().synchronize();
  const int64_t bytes_before = client().stats().data_bytes;
  const Tensor z = x + y;
  client().synchronize();
  EXPECT_EQ(client().stats().data_bytes, bytes_before);
  expect_tensor(z, {S(0)}, on_one_device([](const auto& in) { return in[0] + in[1]; }, {x, y}));
  expect_local_shapes(z, {{3, 3}, {2, 3}});
}

TEST_F(PlacementCase, C26) {
  const Tensor x = iota_on({3, 4, 5}, {2, 2}, {S(1), S(1)}), y = iota_on({4, 1}, {2, 2}, {R(), R()});
  client().synchronize();
  const int64_t bytes_before = client().stats().data_bytes;
  const Tensor z = x + y;
  client().synchronize();
  EXPECT_EQ(client().stats().data_bytes, bytes_before);
  expect_tensor(z, {S(1), S(1)}, on_one_device([](const auto& in) { return in[0] + in[1]; }, {x, y}));
}

TEST_F(PlacementCase, C28) {
  const Tensor x = iota_on({4, 6}, {2}, {S(0)}), y = iota_on({4, 6}, {2}, {S(1)});
  const std::string what = message_of([&] { x + y; });
  for (const char* part : {"[add]", "{Shard(0)}", "{Shard(1)}", "axis 0", "legal", "redistribute("})
    EXPECT_TRUE(contains(what, part)) << part << " isn't in " << what;
}

TEST_F(PlacementCase, C29) {
  const HostTensor value = iota({4, 6});
  const Tensor p = iota_on({4, 6}, {2}, {P()}), q = iota_on({4, 6}, {2}, {P()});
  expect_tensor(p + q, {P()}, (from_host(value) + from_host(value)).to_host(), kFloat32Tolerance);
  expect_tensor(p * 2.0, {P()}, (from_host(value) * 2.0).to_host(), kFloat32Tolerance);
  EXPECT_TRUE(contains(message_of([&] { p + 1.0; }), "[add]"));
}

TEST_F(PlacementCase, C30) {
  const Tensor p = iota_on({4, 8}, {4}, {P()});
  EXPECT_TRUE(contains(message_of([&] { relu(p); }), "[relu]"));
  EXPECT_TRUE(contains(message_of([&] { exp(p); }), "[exp]"));
  EXPECT_TRUE(contains(message_of([&] { p > 0; }), "[gt]"));
}

// --- D
Tensor product(const std::vector<Tensor>& in) { return matmul(in[0], in[1]); }
Tensor affine(const std::vector<Tensor>& in) { return linear(in[0], in[1], in[2]); }

TEST_F(PlacementCase, C31) {
  const Tensor a = iota_on({5, 8}, {2}, {S(0)}), b = iota_on({8, 6}, {2}, {R()});
  const Tensor y = matmul(a, b);
  expect_tensor(y, {S(0)}, on_one_device(product, {a, b}), kFloat32Tolerance);
  expect_local_shapes(y, {{3, 6}, {2, 6}});
}

TEST_F(PlacementCase, C32) {
  const Tensor a = iota_on({4, 9}, {4}, {S(1)}), b = iota_on({9, 6}, {4}, {S(0)});
  expect_local_shapes(a, {{4, 3}, {4, 2}, {4, 2}, {4, 2}});
  const Tensor y = matmul(a, b);
  EXPECT_EQ(y.placements(), Placements{P()});
  const HostTensor reference = on_one_device(product, {a, b});
  expect_tensor(y, {P()}, reference, kFloat32Tolerance);
  expect_tensor(y.redistribute({R()}), {R()}, reference, kFloat32Tolerance);
}

TEST_F(PlacementCase, C34) {
  const Tensor a = iota_on({4, 8}, {2, 2}, {S(0), R()}), b = iota_on({8, 6}, {2, 2}, {R(), S(1)});
  const Tensor y = matmul(a, b);
  expect_tensor(y, {S(0), S(1)}, on_one_device(product, {a, b}), kFloat32Tolerance);
  expect_local_shapes(y, {4, Shape{2, 3}});
}

TEST_F(PlacementCase, C35) {
  const Shape mesh = {2, 2, 2};
  const Tensor x = iota_on({2, 16, 8}, mesh, {S(1), S(1), R()}), w = iota_on({4, 8}, mesh, {R(), R(), S(0)}),
               b = iota_on({4}, mesh, {R(), R(), S(0)});
  const Tensor y = linear(x, w, b);
  expect_tensor(y, {S(1), S(1), S(2)}, on_one_device(affine, {x, w, b}), kFloat32Tolerance);
  expect_local_shapes(y, {8, Shape{2, 4, 2}});
}

TEST_F(PlacementCase, C36) {
  const Tensor x = iota_on({2, 9}, {2}, {S(1)}), w = iota_on({4, 9}, {2}, {S(1)}), b = iota_on({4}, {2}, {P()});
  const Tensor y = linear(x, w, b);
  const HostTensor reference = on_one_device(affine, {x, w, b});
  expect_tensor(y, {P()}, reference, kFloat32Tolerance);
  expect_tensor(y.redistribute({R()}), {R()}, reference, kFloat32Tolerance);
}

TEST_F(PlacementCase, C37) {
  const Tensor x = iota_on({5, 4, 8}, {2}, {S(0)});
  expect_tensor(sum(x), {R()}, on_one_device([](const auto& in) { return sum(in[0]); }, {x}), kFloat32Tolerance);
  expect_tensor(sum(x, {1}), {S(0)}, on_one_device([](const auto& in) { return sum(in[0], {1}); }, {x}),
                kFloat32Tolerance);
  const Tensor last = sum(x, {0, 1});
  EXPECT_EQ(last.shape(), (Shape{8}));
  expect_tensor(last, {R()}, on_one_device([](const auto& in) { return sum(in[0], {0, 1}); }, {x}), kFloat32Tolerance);
}

TEST_F(PlacementCase, C39) {
  const Tensor ids = from_host(HostTensor::of<int64_t>({2, 3}, {599, 0, 7, 42, 7, 300}), {.mesh = cpu_mesh({4})});
  const Tensor w = iota_on({600, 101}, {4}, {S(1)});
  const Tensor y = embedding(ids, w);
  expect_tensor(y, {S(2)}, on_one_device([](const auto& in) { return embedding(in[0], in[1]); }, {ids, w}));
  expect_local_shapes(y, {{2, 3, 26}, {2, 3, 25}, {2, 3, 25}, {2, 3, 25}});
}

// --- E
TEST_F(PlacementCase, X03) {
  const Tensor w = iota_on({8}, {2}, {R()}), b = iota_on({8}, {2}, {R()});
  const Tensor rows = iota_on({5, 8}, {2}, {S(0)}), columns = iota_on({5, 8}, {2}, {S(1)});
  const auto norm = [](const std::vector<Tensor>& in) { return layer_norm(in[0], {8}, in[1], in[2]); };
  expect_tensor(norm({rows, w, b}), {S(0)}, on_one_device(norm, {rows, w, b}), kFloat32Tolerance);
  EXPECT_TRUE(contains(message_of([&] { norm({columns, w, b}); }), "[layer_norm]"));
}

TEST_F(PlacementCase, X05) {
  const Tensor x = iota_on({4, 6}, {2}, {S(1)});
  const Tensor y = unsqueeze(x, -1);
  EXPECT_EQ(y.shape(), (Shape{4, 6, 1}));
  expect_tensor(y, {S(1)}, on_one_device([](const auto& in) { return unsqueeze(in[0], -1); }, {x}));
}

TEST_F(PlacementCase, X07) {
  const Tensor x = distribute(iota({2, 16, 8}), cpu_mesh({2, 2}, {"cp", "tp"}), {S(1), S(2)});
  const Tensor heads = view(x, {2, 16, 4, 2});
  EXPECT_EQ(heads.placements(), (Placements{S(1), S(2)}));
  const Tensor y = transpose(heads, 1, 2);
  EXPECT_EQ(y.shape(), (Shape{2, 4, 16, 2}));
  expect_tensor(y, {S(2), S(1)},
                on_one_device(
                    [](const auto& in) {
                      return transpose(view(in[0], {2, 16, 4, 2}), 1, 2);
                    },
                    {x}));
}

TEST_F(PlacementCase, X08) {
  const Tensor x = iota_on({2, 16, 6}, {2}, {S(2)});
  const std::string what = message_of([&] { view(x, {2, 16, 3, 2}); });
  EXPECT_TRUE(contains(what, "[2, 16, 6]") && contains(what, "Shard(2)") && contains(what, "redistribute(")) << what;
}

TEST_F(PlacementCase, X09) {
  const Tensor rows = iota_on({4, 128}, {2, 2}, {S(0), R()}), columns = iota_on({4, 128}, {2, 2}, {R(), S(1)});
  expect_tensor(softmax(rows, -1), {S(0), R()},
                on_one_device([](const auto& in) { return softmax(in[0], -1); }, {rows}), kFloat32Tolerance);
  EXPECT_TRUE(contains(message_of([&] { softmax(columns, -1); }), "[softmax]"));
}

TEST_F(PlacementCase, X10) {
  const Tensor a = iota_on({3, 8, 4, 5}, {2}, {S(1)}), b = iota_on({3, 8, 4, 5}, {2}, {S(1)});
  const auto joined = [](const std::vector<Tensor>& in) { return cat({in[0], in[1]}, 1); };
  const Tensor y = joined({a, b});
  EXPECT_TRUE(y.placements() == Placements{S(1)} || y.placements() == Placements{R()}) << y.str();
  EXPECT_EQ(check_tensor(y, on_one_device(joined, {a, b}), 0), "");
  EXPECT_EQ(check_tensor(y * 2.0, on_one_device([&](const auto& in) { return joined(in) * 2.0; }, {a, b}), 0), "");
}

TEST_F(PlacementCase, X12) {
  const Tensor x = iota_on({4, 8}, {2}, {S(1)});
  const std::string what = message_of([&] { chunk(x, 2, 1); });
  EXPECT_TRUE(contains(what, "Shard(1)") && contains(what, "redistribute(")) << what;
}

TEST_F(PlacementCase, X13) {
  const HostTensor odd = HostTensor::of<int64_t>({4, 8},
                                                 [] {
                                                   std::vector<int64_t> bits(32);
                                                   for (size_t i = 0; i < bits.size(); ++i)
                                                     bits[i] = static_cast<int64_t>(i % 3 == 1);
                                                   return bits;
                                                 }())
                             .to(kBool);
  const Tensor x = iota_on({4, 8}, {2}, {S(0)}), mask = from_host(odd, {.mesh = cpu_mesh({2})});
  const auto filled = [](const std::vector<Tensor>& in) { return masked_fill(in[0], in[1], -7.5); };
  expect_tensor(filled({x, mask}), {S(0)}, on_one_device(filled, {x, mask}));
}

TEST_F(PlacementCase, X14) {
  const Tensor x = iota_on({4, 8}, {2}, {S(0)});
  const auto positive = [](const std::vector<Tensor>& in) { return where(in[0] > 0, in[0], 0.0); };
  expect_tensor(positive({x}), {S(0)}, on_one_device(positive, {x}));
}

TEST_F(PlacementCase, X15) {
  const Tensor x = distribute(normal({5, 8}, kFloat32, 15), cpu_mesh({2}), {S(0)});
  const auto [values, indices] = max(x, 1);
  EXPECT_EQ(indices.dtype(), kInt64);
  expect_tensor(values, {S(0)}, on_one_device([](const auto& in) { return max(in[0], 1).first; }, {x}));
  expect_tensor(indices, {S(0)}, on_one_device([](const auto& in) { return max(in[0], 1).second; }, {x}));
  const auto [column_values, column_indices] = max(x, 0);
  expect_tensor(column_values, {R()}, on_one_device([](const auto& in) { return max(in[0], 0).first; }, {x}));
  expect_tensor(column_indices, {R()}, on_one_device([](const auto& in) { return max(in[0], 0).second; }, {x}));
}

TEST_F(PlacementCase, X19) {
  const Tensor a = from_host(iota({4}), {.mesh = DeviceMesh("cpu", {2}, {0, 1})});
  const Tensor b = from_host(iota({4}), {.mesh = DeviceMesh("cpu", {2}, {2, 3})});
  const std::string meshes = message_of<MeshError>([&] { a + b; });
  EXPECT_TRUE(contains(meshes, "[0, 1]") && contains(meshes, "[2, 3]")) << meshes;
  const Graph other = client().new_graph();
  const GraphScope scope(other);
  const Tensor c = from_host(iota({4}), {.mesh = DeviceMesh("cpu", {2}, {0, 1})});
  const std::string graphs = message_of<GraphError>([&] { a + c; });
  for (GraphId id : {client().graph().id(), other.id()})
    EXPECT_TRUE(contains(graphs, "graph " + std::to_string(id))) << id << " isn't in " << graphs;
  EXPECT_FALSE(contains(meshes, "graph")) << meshes;
  EXPECT_NE(meshes, graphs);
}

TEST_F(PlacementCase, X20) {
  const Tensor x = iota_on({2, 8}, {2}, {R()});
  const Tensor half = distribute(iota({4, 8}, kFloat16), cpu_mesh({2}), {R()}), wide = iota_on({4, 9}, {2}, {R()});
  EXPECT_TRUE(contains(message_of<DTypeError>([&] { linear(x, half); }), "float16"));
  EXPECT_TRUE(contains(message_of<ShapeError>([&] { linear(x, wide); }), "[4, 9]"));
  expect_tensor(x, {R()}, iota({2, 8}));
}

TEST_F(PlacementCase, X23) {
  struct TwoLinears : nn::Module {
    explicit TwoLinears(const DeviceMesh& mesh)
        : column(register_module("column", nn::ColumnParallelLinear(8, 5, {.mesh = mesh}))),
          row(register_module("row", nn::RowParallelLinear(5, 8, {.mesh = mesh}))) {}
    Tensor operator()(const Tensor& x) const { return row(column(x)); }
    nn::ColumnParallelLinear column;
    nn::RowParallelLinear row;
  };
  const std::map<std::string, HostTensor> weights = {{"column.weight", normal({5, 8}, kFloat32, 1)},
                                                     {"column.bias", normal({5}, kFloat32, 2)},
                                                     {"row.weight", normal({8, 5}, kFloat32, 3)},
                                                     {"row.bias", normal({8}, kFloat32, 4)}};
  TwoLinears two(cpu_mesh({2}, {"tp"})), one(cpu_mesh({1}, {"tp"}));
  two.load_state_dict(weights);
  one.load_state_dict(weights);
  expect_local_shapes(two.column.weight, {{3, 8}, {2, 8}});
  expect_local_shapes(two.row.weight, {{8, 3}, {8, 2}});
  const HostTensor x = iota({4, 8});
  EXPECT_EQ(check_tensor(two(from_host(x, {.mesh = cpu_mesh({2}, {"tp"})})),
                         one(from_host(x, {.mesh = cpu_mesh({1}, {"tp"})})).to_host(), kFloat32Tolerance),
            "");
  std::map<std::string, HostTensor> wrong = weights;
  wrong["column.weight"] = normal({6, 8}, kFloat32, 1);
  const std::string what = message_of<KeyError>([&] { two.load_state_dict(wrong); });
  EXPECT_TRUE(contains(what, "column.weight") && contains(what, "placement_operator_test.cc")) << what;
  // Of any source; errors and operators have the caller's line.
  nn::Module::Source source;
  for (const auto& [name, value] : weights) source.names.push_back(name);
  source.shape_of = [&](const std::string& name) { return weights.at(name).shape(); };
  Where line = Where::current();
  source.load = [&](const std::string& name, const nn::Parameter& parameter) {
    const Tensor value = distribute(weights.at(name), parameter.layout());
    EXPECT_EQ(value.value()->origin().where.line, line.line() + 6);
    return value;
  };
  two.load_state_dict(source);
  source.names.emplace_back("column.more");
  EXPECT_TRUE(contains(message_of<KeyError>([&] { two.load_state_dict(source); }), "placement_operator_test.cc"));
  EXPECT_EQ(check_tensor(two.column.weight, weights.at("column.weight"), 0), "") << "half loaded";
}

TEST_F(PlacementCase, X24) {
  const std::vector<DeviceMesh> stages = cpu_mesh({2, 2}, {"tp", "pp"}).unbind("pp");
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].devices(), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(stages[1].devices(), (std::vector<int64_t>{1, 3}));
  for (int64_t num_layers : {4, 5}) {
    const HostTensor input = normal({3, 8}, kFloat64, 24);
    Tensor x = from_host(input, {.mesh = stages[0]}), reference = from_host(input);
    std::vector<int64_t> stage_of_layer;
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      // The first (layers mod stages) stages have one layer more.
      const int64_t stage = layer < split_part(num_layers, 2, 0).size ? 0 : 1;
      stage_of_layer.push_back(stage);
      const DeviceMesh& mesh = stages[static_cast<size_t>(stage)];
      const HostTensor w = normal({8, 8}, kFloat64, static_cast<uint64_t>(100 + layer));
      if (x.mesh() != mesh) x = x.redistribute(mesh, {R()});
      x = tanh(linear(x, distribute(w, mesh, {S(1)})).redistribute({R()}));
      reference = tanh(linear(reference, from_host(w)));
    }
    EXPECT_EQ(stage_of_layer,
              num_layers == 4 ? (std::vector<int64_t>{0, 0, 1, 1}) : (std::vector<int64_t>{0, 0, 0, 1, 1}));
    // A model puts its layers there by itself.
    const nn::Llama model({.dim = 8, .layers = num_layers, .heads = 2, .kv_heads = 2, .vocab = 16},
                          {.mesh = cpu_mesh({2, 2}, {"tp", "pp"}), .tp = "tp", .pp = "pp"});
    for (const auto& [name, parameter] : model.named_parameters()) {
      if (!name.starts_with("layers.")) continue;
      const auto layer = static_cast<size_t>(name[7] - '0');
      EXPECT_EQ(parameter.value().mesh().devices(), stages[static_cast<size_t>(stage_of_layer[layer])].devices())
          << name;
    }
    expect_tensor(x, {R()}, reference.to_host(), 1e-12);
  }
}

}  // namespace
}  // namespace dtorch::test
