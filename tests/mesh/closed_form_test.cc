// Sums over devices in closed form against adding up device by device, on random layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "mesh/closed_form.h"

namespace dtorch {
namespace {

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  Shape shape(int64_t ndim, int64_t most) {
    Shape shape;
    for (int64_t i = 0; i < ndim; ++i) shape.push_back(1 + below(most));
    return shape;
  }
  Layout layout(const DeviceMesh& mesh, int64_t ndim) {
    Placements placements;
    AxisList order;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
      const int64_t choice = below(ndim + 2);
      placements.push_back(choice < ndim ? Shard(choice) : choice == ndim ? Replicate() : Partial());
      order.push_back(static_cast<int8_t>(axis));
    }
    if (below(3) == 0) std::reverse(order.begin(), order.end());
    return Layout(mesh, placements, ndim, order);
  }

 private:
  std::mt19937 random_;
};

TEST(ClosedForm, IsWhatDevicesAddUpTo) {
  Random random(20261130);
  int num_closed = 0, num_further = 0;
  constexpr int kSamples = 4000;
  for (int sample = 0; sample < kSamples; ++sample) {
    const int64_t ndim = 1 + random.below(3);
    const DeviceMesh mesh = init_device_mesh("cpu", random.shape(1 + random.below(3), 4));
    Shape shape = random.shape(ndim, 9);
    if (random.below(10) == 0) shape[random.below(ndim)] = 0;
    const Layout from = random.layout(mesh, ndim), to = random.layout(mesh, ndim);
    FirstOnly first_only;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis)
      first_only.push_back(to.placement(axis).is_partial() && random.below(2) == 0);
    int64_t held = 0, common = 0;
    bool contained = true;
    for (int64_t index = 0; index < mesh.num_devices(); ++index) {
      const Shape position = mesh.coordinate_of_index(index);
      const Box before = from.box_at(shape, index), after = to.box_at(shape, index);
      contained = contained && before.contains(after);
      bool counts = true;
      for (int64_t axis = 0; axis < mesh.num_axes(); ++axis)
        counts = counts && (!first_only[axis] || position[axis] == 0);
      if (!counts) continue;
      held += after.num_elements();
      common += intersect(before, after).num_elements();
    }
    const std::string text = from.str() + " to " + to.str() + " of " + shape.str() + " on " + mesh.str();
    EXPECT_EQ(elements_held(to, shape, first_only), held) << text;
    if (const auto closed = elements_in_common(from, to, shape, first_only)) {
      ++num_closed;
      EXPECT_EQ(*closed, common) << text;
    }
    if (splits_further(from, to, ndim)) {
      ++num_further;
      EXPECT_TRUE(contained) << text;
    }
  }
  EXPECT_GT(num_closed, kSamples / 2) << "the usual cases";
  EXPECT_GT(num_further, kSamples / 20);
}

}  // namespace
}  // namespace dtorch
