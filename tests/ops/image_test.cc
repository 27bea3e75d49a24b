// Convolutional networks over sharded images: what is local, what travels, and results that don't depend on it.
#include <gtest/gtest.h>

#include "dtorch/dtorch.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using ImageTest = KernelTest;

class NoImplicitRedistribution {
 public:
  NoImplicitRedistribution() { client().set_implicit_redistribution(false); }
  ~NoImplicitRedistribution() { client().set_implicit_redistribution(true); }
};

TEST_F(ImageTest, WindowsThatStayInsideTheirPartAreLocal) {
  const DeviceMesh mesh = cpu_mesh({2});
  const HostTensor image = normal({1, 4, 16, 16}, kFloat32, 1), kernel = normal({8, 4, 2, 2}, kFloat32, 2);
  const HostTensor shift = normal({8}, kFloat32, 3);
  const Tensor one = conv2d(from_host(image), from_host(kernel), from_host(shift), {.stride = 2});
  const Tensor x = from_host(image, {.mesh = mesh, .placements = {Shard(3)}});
  const Tensor w = from_host(kernel, {.mesh = mesh}), b = from_host(shift, {.mesh = mesh});
  const NoImplicitRedistribution off;
  const Tensor y = conv2d(x, w, b, {.stride = 2});
  EXPECT_EQ(y.placements(), (Placements{Shard(3)}));
  EXPECT_EQ(y.to_host_local(0).shape(), (Shape{1, 8, 8, 4}));
  EXPECT_EQ(check_tensor(y, one.to_host(), 1e-5), "");
  EXPECT_EQ(max_pool2d(x, 2).placements(), (Placements{Shard(3)}));
  EXPECT_EQ(avg_pool2d(x, 4).placements(), (Placements{Shard(3)}));
  EXPECT_EQ(interpolate(x, {.scale_factor = {2}}).placements(), (Placements{Shard(3)}));
}

TEST_F(ImageTest, RowsOfOtherPartsTravelUnlessThatIsOff) {
  const DeviceMesh mesh = cpu_mesh({2});
  const HostTensor image = normal({1, 4, 16, 16}, kFloat32, 1), kernel = normal({8, 4, 3, 3}, kFloat32, 2);
  const Tensor one = conv2d(from_host(image), from_host(kernel), {}, {.padding = 1});
  const Tensor x = from_host(image, {.mesh = mesh, .placements = {Shard(3)}}), w = from_host(kernel, {.mesh = mesh});
  const Tensor y = conv2d(x, w, {}, {.padding = 1});
  EXPECT_EQ(y.placements(), (Placements{Shard(3)}));
  EXPECT_EQ(check_tensor(y, one.to_host(), 1e-5), "");
  const NoImplicitRedistribution off;
  EXPECT_THROW(conv2d(x, w, {}, {.padding = 1}), PlacementError);
  EXPECT_THROW(max_pool2d(x, 3, {.stride = 1}), PlacementError);
  EXPECT_THROW(batch_norm(x, {}, {}, {}, {}, {.training = true}), PlacementError);
  EXPECT_THROW(group_norm(x, 2), PlacementError);
}

TEST_F(ImageTest, AWindowMayReachOverSeveralPartsAndEmptyOnes) {
  // 5 rows over 2 x 2 devices in both orders, parts of 2, 1, 1 and 1; windows of 7 rows.
  const HostTensor rows = normal({1, 2, 5}, kFloat64, 1), kernel = normal({3, 2, 4}, kFloat64, 2);
  const ConvOptions options{.padding = 3, .dilation = 2};
  const Tensor one_x = from_host(rows).requires_grad_(), one_w = from_host(kernel).requires_grad_();
  const Tensor one = conv1d(one_x, one_w, {}, options);
  sum(square(one)).backward();
  for (const std::vector<std::string>& order : {std::vector<std::string>{"a", "b"}, {"b", "a"}}) {
    const DeviceMesh named = init_device_mesh("cpu", {2, 2}, {"a", "b"});
    const Tensor x =
        from_host(rows, {.mesh = named, .placements = {Shard(2), Shard(2)}, .order = order}).requires_grad_();
    const Tensor w = from_host(kernel, {.mesh = named}).requires_grad_();
    const Tensor y = conv1d(x, w, {}, options);
    EXPECT_EQ(y.layout(), x.layout());
    EXPECT_EQ(check_tensor(y, one.to_host(), 1e-12), "");
    sum(square(y)).backward();
    EXPECT_EQ(check_tensor(x.grad(), one_x.grad().to_host(), 1e-11), "");
    EXPECT_EQ(check_tensor(w.grad(), one_w.grad().to_host(), 1e-11), "");
  }
}

TEST_F(ImageTest, BatchStatisticsAreOfTheWholeBatchHoweverUnevenly) {
  // Parts of 3 and 2 batch elements; a mean of means would weigh them alike. The offset shows that squares are taken
  // from the global mean.
  const HostTensor host = normal({5, 2, 3}, kFloat64, 4);
  const DeviceMesh mesh = cpu_mesh({2});
  const Tensor shifted = from_host(host) + 1e6;
  const BatchNormResult one =
      batch_norm(shifted, zeros({2}, {.dtype = kFloat64}), ones({2}, {.dtype = kFloat64}), {}, {}, {.training = true});
  const Tensor x = from_host(host, {.mesh = mesh, .placements = {Shard(0)}}) + 1e6;
  const TensorOptions replicated{.mesh = mesh, .dtype = kFloat64};
  const BatchNormResult two = batch_norm(x, zeros({2}, replicated), ones({2}, replicated), {}, {}, {.training = true});
  EXPECT_EQ(two.y.placements(), (Placements{Shard(0)}));
  EXPECT_EQ(check_tensor(two.y, one.y.to_host(), 1e-9), "");
  EXPECT_EQ(check_tensor(two.running_mean, one.running_mean.to_host(), 1e-12), "");
  EXPECT_EQ(check_tensor(two.running_var, one.running_var.to_host(), 1e-12), "");
}

}  // namespace
}  // namespace dtorch::test
