// Indices name global positions, whatever device owns them: contract rows, duplicates, errors, and when devices may
// combine.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "dtorch/dtorch.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using IndexingTest = KernelTest;

Tensor integers(const std::vector<int64_t>& values, const DeviceMesh& mesh, const Placements& placements = {}) {
  return from_host(HostTensor::of<int64_t>({static_cast<int64_t>(values.size())}, values),
                   {.mesh = mesh, .placements = placements});
}
Tensor floats(const std::vector<float>& values, const DeviceMesh& mesh, const Placements& placements = {}) {
  return from_host(HostTensor::of<float>({static_cast<int64_t>(values.size())}, values),
                   {.mesh = mesh, .placements = placements});
}

TEST_F(IndexingTest, AWriteReachesTheOwnerOfThePosition) {
  const DeviceMesh four = cpu_mesh({4}), two = cpu_mesh({2});
  const Tensor square = zeros({4, 4}, {.mesh = four, .placements = {Shard(0)}});
  const Tensor diagonal = index_put(square, {integers({0, 1, 2, 3}, four), integers({0, 1, 2, 3}, four)},
                                    floats({1, 2, 3, 4}, four, {Shard(0)}));
  EXPECT_EQ(diagonal.placements(), Placements{Shard(0)});
  EXPECT_EQ(check_tensor(diagonal, HostTensor::of<float>({4, 4}, {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4}), 0),
            "");
  const Tensor line = zeros({16}, {.mesh = two, .placements = {Shard(0)}});
  const Tensor even = put(line, integers({0, 2, 4, 6, 8, 10, 12, 14}, two), floats({1, 2, 3, 4, 5, 6, 7, 8}, two));
  EXPECT_EQ(check_tensor(even, HostTensor::of<float>({16}, {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0}), 0), "");
  const Tensor eight = zeros({8}, {.mesh = four, .placements = {Shard(0)}});
  EXPECT_EQ(check_tensor(slice_scatter(eight, ones({3}, {.mesh = four}), 0, 0, 3),
                         HostTensor::of<float>({8}, {1, 1, 1, 0, 0, 0, 0, 0}), 0),
            "");
}

TEST_F(IndexingTest, TheLastOfSeveralWritesToOnePlaceStays) {
  for (const Placement& placement : {Replicate(), Shard(0)}) {
    const DeviceMesh mesh = cpu_mesh({3});
    const Tensor x = floats({0, 0, 0, 0, 0}, mesh, {placement});
    const Tensor index = integers({4, 1, 4, 1, 4}, mesh, {placement}), values = floats({1, 2, 3, 4, 5}, mesh);
    const HostTensor want = HostTensor::of<float>({5}, {0, 4, 0, 0, 5});
    EXPECT_EQ(check_tensor(index_put(x, {index}, values), want, 0), "");
    EXPECT_EQ(check_tensor(scatter(x, 0, index, values), want, 0), "");
    EXPECT_EQ(check_tensor(index_copy(x, 0, index, values), want, 0), "");
    EXPECT_EQ(check_tensor(put(x, index, values), want, 0), "");
    EXPECT_EQ(check_tensor(index_put(x, {index}, values, true), HostTensor::of<float>({5}, {0, 6, 0, 0, 9}), 0), "");
  }
}

TEST_F(IndexingTest, WhatIsPickedFromASplitDimIsTheElementBitForBit) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const HostTensor host = HostTensor::of<float>({5}, {-0.0f, 0.0f, nan, -inf, 1e-42f});
  const HostTensor flags = HostTensor::of<bool>({5}, {true, false, true, true, false});
  const DeviceMesh mesh = cpu_mesh({2});
  const Tensor index = integers({4, 0, 1, 2, 3, 0}, mesh);
  const Tensor x = from_host(host, {.mesh = mesh, .placements = {Shard(0)}});
  const Tensor bits = from_host(flags, {.mesh = mesh, .placements = {Shard(0)}});
  const HostTensor want = HostTensor::of<float>({6}, {1e-42f, -0.0f, 0.0f, nan, -inf, -0.0f});
  for (const Tensor& picked :
       {gather(x, 0, index), index_select(x, 0, index), dtorch::index(x, {index}), take(x, index)})
    EXPECT_EQ(check_tensor(picked, want, 0), "");
  EXPECT_EQ(check_tensor(gather(bits, 0, index), HostTensor::of<bool>({6}, {false, true, false, true, true, true}), 0),
            "");
}

TEST_F(IndexingTest, APositionOutsideIsAnErrorThatNamesItOnEveryLayout) {
  const DeviceMesh mesh = cpu_mesh({2});
  const auto fails = [](const char* said, const std::function<Tensor()>& call) {
    try {
      call().to_host();
      ADD_FAILURE() << "no error for " << said;
    } catch (const RuntimeFault& error) {
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  };
  for (const Placement& placement : {Replicate(), Shard(0)}) {
    const Tensor x = floats({1, 2, 3}, mesh, {placement});
    fails("index 3 is outside [0, 3)", [&] { return gather(x, 0, integers({0, 3}, mesh)); });
    fails("index -1 is outside [0, 3)", [&] { return index_select(x, 0, integers({-1}, mesh)); });
    fails("index -4 is outside [-3, 3)", [&] { return dtorch::index(x, {integers({-4}, mesh)}); });
    fails("index 5 is outside [0, 3)", [&] { return scatter(x, 0, integers({5}, mesh), 1.0); });
    fails("index 3 is outside [-3, 3)", [&] { return put(x, integers({3}, mesh), floats({1}, mesh)); });
  }
  fails("index 4 is outside [0, 4)", [&] { return one_hot(integers({4}, mesh), 4); });
}

TEST_F(IndexingTest, ShapesAndDtypesThatDontFitAreRefusedAtTheCall) {
  const DeviceMesh mesh = cpu_mesh({2});
  const Tensor x = distribute(iota({5, 3}), mesh, {Shard(0)}), ids = integers({0, 1}, mesh);
  EXPECT_THROW(gather(x, 0, ids), ShapeError);
  EXPECT_THROW(gather(x, 2, ids), ShapeError);
  EXPECT_THROW(gather(x, 0, x), DTypeError);
  EXPECT_THROW(index_select(x, 0, unsqueeze(ids, 0)), ShapeError);
  EXPECT_THROW(dtorch::index(x, {ids, ids, ids}), ShapeError);
  EXPECT_THROW(index_put(x, {ids}, ids), DTypeError);
  EXPECT_THROW(index_add(x, 0, ids, x), ShapeError);
  EXPECT_THROW(slice_scatter(x, x, 0, 1), ShapeError);
  EXPECT_THROW(select_scatter(x, x, 0, 1), ShapeError);
  EXPECT_THROW(scatter_reduce(x, 0, unsqueeze(ids, 1), x, "max"), UserError);
  EXPECT_THROW(masked_select(x, ids), DTypeError);
}

TEST_F(IndexingTest, WithoutImplicitRedistributionASplitDimIsRefusedAndSaysWhatToDo) {
  const DeviceMesh mesh = cpu_mesh({2});
  const Tensor rows = distribute(iota({5, 3}), mesh, {Shard(0)});
  const Tensor index = integers({4, 0}, mesh), grid = expand(unsqueeze(index, 1), {2, 3});
  client().set_implicit_redistribution(false);
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> calls = {
      {"gather", [&](const Tensor& x) { return gather(x, 0, grid); }},
      {"index_select", [&](const Tensor& x) { return index_select(x, 0, index); }},
      {"index", [&](const Tensor& x) { return dtorch::index(x, {index}); }},
      {"take", [&](const Tensor& x) { return take(x, index); }},
  };
  for (const auto& [name, call] : calls) {
    try {
      call(rows);
      ADD_FAILURE() << name << " wasn't refused";
    } catch (const PlacementError& error) {
      EXPECT_EQ(error.op(), name);
      ASSERT_EQ(error.fix().size(), 1u) << name;
      call(rows.redistribute(error.fix()[0].layout)).to_host();
    }
  }
  // Nothing has to move for a write into the part that each device holds.
  EXPECT_EQ(scatter(rows, 0, grid, distribute(iota({2, 3}), mesh, {Replicate()})).placements(), Placements{Shard(0)});
  EXPECT_EQ(index_select(rows, 1, index_select(index, 0, integers({1}, mesh))).placements(), Placements{Shard(0)});
}

}  // namespace
}  // namespace dtorch::test
