// Tensor's redistribute family: the layouts that it asks for.
#include <gtest/gtest.h>

#include "tests/client/test_operators.h"

namespace dtorch::testing {
namespace {

class RedistributeTest : public ClientTest {
 protected:
  Tensor x_ = make({8, 6}, {.mesh = mesh_, .placements = {Shard(0), Replicate()}});
};

TEST_F(RedistributeTest, ChangesPlacementsOnTheSameMesh) {
  Tensor y = x_.redistribute({Replicate(), Shard(-1)});
  EXPECT_EQ(y.placements(), (Placements{Replicate(), Shard(1)}));
  EXPECT_EQ(y.shape(), x_.shape());
  EXPECT_EQ(y.dtype(), x_.dtype());
  EXPECT_EQ(x_.full_tensor().layout(), Layout::replicated(mesh_));
}

TEST_F(RedistributeTest, RecordsNothingWhenTheLayoutStays) {
  x_.redistribute({Shard(0), Replicate()});
  x_.redistribute_like(x_);
  wait();
  EXPECT_EQ(runtime_->operators(), std::vector<std::string>{"make"});
}

TEST_F(RedistributeTest, MakesAnAddedShardTheInnermost) {
  Tensor on_tp = make({8, 6}, {.mesh = mesh_, .placements = {Replicate(), Shard(0)}});
  Tensor y = on_tp.redistribute({Shard(0), Shard(0)});
  EXPECT_EQ(y.layout().order_str(), "{tp, dp}");
  EXPECT_EQ(on_tp.redistribute({Shard(0), Shard(0)}, {.order = {"dp", "tp"}}).layout().order_str(), "{dp, tp}");
  EXPECT_EQ(x_.redistribute_like(y).layout(), y.layout());
}

TEST_F(RedistributeTest, MovesToAnotherMesh) {
  const DeviceMesh other = init_device_mesh("cpu", {3}, {"pp"});
  Tensor y = x_.redistribute(other, {Shard(1)});
  EXPECT_EQ(y.mesh(), other);
  EXPECT_EQ(y.placements(), Placements{Shard(1)});
  EXPECT_THROW(x_.redistribute(DeviceMesh(), {Shard(1)}), MeshError);
  EXPECT_THROW(x_.redistribute(other, {Shard(1), Shard(0)}), MeshError);
  EXPECT_THROW(x_.redistribute(other, {Shard(2)}), ShapeError);
}

TEST_F(RedistributeTest, TakesPlacementsByAxisName) {
  EXPECT_EQ(x_.redistribute_by_dict({{"dp", Replicate()}, {"tp", Shard(0)}}).placements(),
            (Placements{Replicate(), Shard(0)}));
  EXPECT_EQ(x_.redistribute_by_dict({{"tp", Shard(1)}}, ByDictMode::kKeep).placements(),
            (Placements{Shard(0), Shard(1)}));
  EXPECT_EQ(x_.redistribute_by_dict({{"tp", Shard(1)}}, ByDictMode::kReplicate).placements(),
            (Placements{Replicate(), Shard(1)}));
  EXPECT_THROW(x_.redistribute_by_dict({{"pp", Shard(1)}}), KeyError);
  try {
    x_.redistribute_by_dict({{"dp", Shard(1)}});
    FAIL() << "no error";
  } catch (const KeyError& e) {
    EXPECT_NE(std::string(e.what()).find("'tp'"), std::string::npos) << e.what();
  }
}

// What a redistribute with a dtype records, in order.
class CastingRedistributeTest : public RedistributeTest {
 protected:
  std::vector<std::string> recorded(DType from, DType to, const Placements& before, const Placements& after) {
    Tensor x = make({8, 6}, {.mesh = mesh_, .placements = before, .dtype = from});
    Tensor y = x.redistribute(after, {.dtype = to});
    EXPECT_EQ(y.dtype(), to);
    EXPECT_EQ(y.placements(), after);
    EXPECT_EQ(x.dtype(), from);
    wait();
    std::vector<std::string> names = runtime_->operators();
    names.erase(names.begin(), names.begin() + static_cast<int64_t>(known_));
    known_ += names.size();
    EXPECT_EQ(names.front(), "make");
    names.erase(names.begin());
    return names;
  }
  size_t known_ = 1;  // x_
  const std::vector<std::string> cast_first_ = {"to", "redistribute"}, cast_last_ = {"redistribute", "to"};
};

TEST_F(CastingRedistributeTest, CastsBeforeItMovesWhenThatMovesFewerBytes) {
  EXPECT_EQ(recorded(kFloat32, kBFloat16, {Shard(0), Replicate()}, {Replicate(), Replicate()}), cast_first_);
  EXPECT_EQ(recorded(kBFloat16, kFloat32, {Shard(0), Replicate()}, {Replicate(), Replicate()}), cast_last_);
  EXPECT_EQ(recorded(kInt64, kFloat32, {Shard(0), Replicate()}, {Shard(1), Replicate()}), cast_first_);
  // A slice moves nothing, and the cast has less to do after it.
  EXPECT_EQ(recorded(kFloat32, kBFloat16, {Replicate(), Replicate()}, {Shard(0), Replicate()}), cast_last_);
}

TEST_F(CastingRedistributeTest, ReducesWhatIsPendingInTheWiderType) {
  EXPECT_EQ(recorded(kBFloat16, kFloat32, {Partial(), Replicate()}, {Replicate(), Replicate()}), cast_first_);
  EXPECT_EQ(recorded(kFloat32, kBFloat16, {Partial(), Replicate()}, {Replicate(), Replicate()}), cast_last_);
  EXPECT_EQ(recorded(kFloat64, kFloat16, {Partial(), Shard(0)}, {Shard(1), Shard(0)}), cast_last_);
  // Integers are reduced as integers: their parts can't be cast.
  EXPECT_EQ(recorded(kInt32, kFloat64, {Partial(), Replicate()}, {Replicate(), Replicate()}), cast_last_);
  EXPECT_EQ(recorded(kInt32, kFloat64, {Replicate(), Replicate()}, {Partial(), Replicate()}), cast_first_);
  // What stays pending may be cast.
  EXPECT_EQ(recorded(kFloat32, kBFloat16, {Partial(), Shard(0)}, {Partial(), Replicate()}), cast_first_);
}

TEST_F(CastingRedistributeTest, OnlyCastsOrOnlyMovesWhenTheOtherIsNotNeeded) {
  EXPECT_EQ(recorded(kFloat32, kBFloat16, {Shard(0), Shard(1)}, {Shard(0), Shard(1)}), std::vector<std::string>{"to"});
  EXPECT_EQ(recorded(kFloat32, kFloat32, {Shard(0), Shard(1)}, {Shard(0), Replicate()}),
            std::vector<std::string>{"redistribute"});
}

TEST_F(RedistributeTest, OptionsOfNewTensorsDefaultToOneDeviceAndReplicate) {
  EXPECT_EQ(TensorOptions{}.layout(2).mesh().devices(), std::vector<int64_t>{0});
  EXPECT_TRUE((TensorOptions{.mesh = mesh_}.layout(2).is_replicated()));
  EXPECT_EQ(
      (TensorOptions{.mesh = mesh_, .placements = {Shard(0), Shard(0)}, .order = {"tp", "dp"}}.layout(1).order_str()),
      "{tp, dp}");
}

}  // namespace
}  // namespace dtorch::testing
