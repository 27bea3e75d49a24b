// scenario_cases.md: the parts of C06, C08 and C10 about saving, positions, running values and writes by index, C19 (a)
// and (d), and C21 on more layouts.
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "io/checkpoint.h"
#include "nn/module.h"
#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

HostTensor floats(const Shape& shape, const std::vector<float>& values) { return HostTensor::of<float>(shape, values); }
HostTensor whole_numbers(const std::vector<int64_t>& values) {
  return HostTensor::of<int64_t>({static_cast<int64_t>(values.size())}, values);
}

TEST_F(ScenarioCase, C06APendingSumIsSavedAsItsValue) {
  struct Holder : nn::Module {
    explicit Holder(const Tensor& value) : p(register_parameter("p", value)) {}
    nn::Parameter p;
  };
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("dtorch_c06_" + std::to_string(::getpid()));
  const HostTensor value = iota({3, 2});
  Holder pending(distribute(value, cpu_mesh({4}), {P()})), other(zeros({3, 2}, {.mesh = cpu_mesh({2})}));
  checkpoint::save(folder, {.model = pending, .step = 1});
  checkpoint::Contents contents{.model = other};
  checkpoint::load(folder, contents);
  expect_tensor(other.p.value(), {R()}, value, 1e-5);
  std::filesystem::remove_all(folder);
}

TEST_F(ScenarioCase, C08TopValuesWithPositions) {
  const HostTensor value = normal({2, 8192}, kFloat32, 88);
  const Tensor x = distribute(value, cpu_mesh({8}), {S(1)}), one = from_host(value);
  for (int64_t k : {1, 4}) {
    const auto [top, at] = topk(x, k, 1);
    const auto [one_top, one_at] = topk(one, k, 1);
    EXPECT_EQ(at.dtype(), kInt64);
    EXPECT_EQ(check_tensor(top, one_top.to_host(), 0), "") << k;
    EXPECT_EQ(check_tensor(at, one_at.to_host(), 0), "") << k;
  }
  const HostTensor first = topk(x, 1, 1).first.to_host(), four = topk(x, 4, 1).first.to_host();
  for (int64_t row : {0, 1}) EXPECT_EQ(first.element<float>(row), four.element<float>(4 * row));
}

TEST_F(ScenarioCase, C08RunningSumOverSplitRows) {
  const HostTensor ones_host = HostTensor::full<int32_t>({8, 1024}, 1);
  const Tensor x = distribute(ones_host, cpu_mesh({4, 2}), {S(0), S(1)});
  const Tensor y = cumsum(x, 1);
  std::vector<int64_t> counted;
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t column = 1; column <= 1024; ++column) counted.push_back(column);
  }
  EXPECT_EQ(y.dtype(), kInt64);
  EXPECT_EQ(check_tensor(y, HostTensor::of<int64_t>({8, 1024}, counted), 0), "");
}

TEST_F(ScenarioCase, C10WriteByIndexIntoASplitTensor) {
  const DeviceMesh four = cpu_mesh({4}), two = cpu_mesh({2});
  const Tensor at = from_host(whole_numbers({0, 1, 2, 3}), {.mesh = four});
  const Tensor diagonal = index_put(zeros({4, 4}, {.mesh = four, .placements = {S(0)}}), {at, at},
                                    distribute(floats({4}, {1, 2, 3, 4}), four, {S(0)}));
  EXPECT_EQ(check_tensor(diagonal, floats({4, 4}, {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4}), 0), "");

  const Tensor even = from_host(whole_numbers({0, 2, 4, 6, 8, 10, 12, 14}), {.mesh = two});
  const HostTensor numbers = floats({8}, {1, 2, 3, 4, 5, 6, 7, 8});
  const HostTensor spread = floats({16}, {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0});
  for (const Placement& placement : {R(), S(0)}) {
    const Tensor z = zeros({16}, {.mesh = two, .placements = {S(0)}});
    EXPECT_EQ(check_tensor(put(z, even, distribute(numbers, two, {placement})), spread, 0), "");
    EXPECT_EQ(check_tensor(index_put(z, {even}, distribute(numbers, two, {placement})), spread, 0), "");
    EXPECT_EQ(check_tensor(z, HostTensor({16}, kFloat32), 0), "") << "the source has changed";
  }

  const Tensor eight = zeros({8}, {.mesh = four, .placements = {S(0)}});
  const Tensor three = slice_scatter(eight, ones({3}, {.mesh = four}), 0, 0, 3);
  EXPECT_EQ(check_tensor(three, floats({8}, {1, 1, 1, 0, 0, 0, 0, 0}), 0), "");
}

// Attention over a sequence that is split over ulysses_cp; heads change places inside.
std::vector<Tensor> attend(const Layout& layout, int64_t query, int64_t key_value, DType dtype) {
  std::vector<Tensor> in;
  for (uint64_t seed : {1, 2, 3}) {
    const Shape shape = {2, seed == 1 ? query : key_value, 8, 4};
    in.push_back(distribute(normal(shape, dtype, seed), layout).requires_grad_());
  }
  const Tensor out = scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true});
  sum(square(out)).backward();
  return {out, in[0].grad(), in[1].grad(), in[2].grad()};
}

TEST_F(ScenarioCase, C19HeadExchangeWithAwkwardHeadCounts) {
  struct Heads {
    int64_t query, key_value, devices;
  };
  // First an unrelated model with 3 KV heads, then (a) 12 on 4, (b) 28 / 7 on 2, (c) 8 / 2 on 4, (d) 10 on 4.
  for (const Heads& heads :
       {Heads{6, 3, 4}, Heads{12, 12, 4}, Heads{28, 7, 2}, Heads{8, 2, 4}, Heads{10, 10, 4}, Heads{12, 12, 4}}) {
    SCOPED_TRACE(std::to_string(heads.query) + "/" + std::to_string(heads.key_value) + " on " +
                 std::to_string(heads.devices));
    const Layout split(cpu_mesh({heads.devices}, {"ulysses_cp"}), {S(2)}, 4);
    const std::vector<Tensor> one = attend(Layout::replicated(cpu_mesh({1})), heads.query, heads.key_value, kFloat64);
    const std::vector<Tensor> several = attend(split, heads.query, heads.key_value, kFloat64);
    EXPECT_EQ(several[0].layout(), split);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(check_tensor(several[i], one[i].to_host(), 1e-11), "") << i;
  }
  // (a) as heads held by devices: three each, in order.
  const Layout held(cpu_mesh({4}), {S(1)}, 4);
  for (int64_t device = 0; device < 4; ++device) {
    EXPECT_EQ(held.box_at({2, 12, 8, 4}, device), (Box{{0, 3 * device, 0, 0}, {2, 3, 8, 4}}));
  }
}

TEST_F(ScenarioCase, C21RandomNumbersOnMoreLayouts) {
  const std::vector<std::function<Tensor(const TensorOptions&)>> draws = {
      [](const TensorOptions& o) {
        return randn({6, 10}, o);
      },
      [](const TensorOptions& o) {
        return rand({5, 3}, o);
      },
      [](const TensorOptions& o) {
        return dropout(ones({6, 10}, o), 0.5);
      },
  };
  const std::vector<std::pair<Shape, Placements>> layouts = {{{2, 2}, {S(0), S(0)}}, {{2, 2}, {S(1), S(0)}},
                                                             {{2, 2}, {R(), S(1)}},  {{2, 3}, {S(0), S(1)}},
                                                             {{2, 3}, {S(1), S(1)}}, {{2, 2, 2}, {S(0), R(), S(0)}}};
  for (const auto& draw : draws) {
    manual_seed(7);
    const HostTensor first = draw({}).to_host(), second = draw({}).to_host();
    for (const auto& [mesh, placements] : layouts) {
      manual_seed(7);
      const TensorOptions options{.mesh = cpu_mesh(mesh), .placements = placements};
      expect_tensor(draw(options), placements, first);
      expect_tensor(draw(options), placements, second);
    }
  }
  // Shards of one dim in the other order of the axes, and devices in another order.
  const DeviceMesh mixed("cpu", {2, 2}, {6, 1, 3, 0}, {"dp", "tp"});
  manual_seed(7);
  const HostTensor first = randn({6, 10}).to_host();
  manual_seed(7);
  expect_tensor(randn({6, 10}, {.mesh = mixed, .placements = {S(0), S(0)}}), {S(0), S(0)}, first);
}

}  // namespace
}  // namespace dtorch::test
