#include "tests/errors/wrong_call.h"

namespace dtorch::test {

void WrongCallTest::TearDown() {
  const HostTensor value = iota({8, 7, 4, 6});
  const Tensor x = from_host(value, {.mesh = cpu_mesh({4}), .placements = {Shard(0)}});
  EXPECT_EQ(check_tensor(x, value, 0), "") << "C01 doesn't pass any more";
  EXPECT_EQ(local_shapes(x), std::vector<Shape>(4, Shape{2, 7, 4, 6}));
  ClusterTest::TearDown();
}

void check_refused(const RefusedCall& refused) {
  const ::testing::ScopedTrace trace(refused.file, static_cast<int>(refused.line), "[" + refused.op + "]");
  std::optional<PlacementError> error;
  try {
    refused.call(refused.inputs);
    ADD_FAILURE() << "the call was accepted";
    return;
  } catch (const PlacementError& caught) {
    error = caught;
  } catch (const std::exception& other) {
    ADD_FAILURE() << "another error: " << other.what();
    return;
  }
  const std::string what = error->what();
  const auto expect_says = [&](const std::string& part) {
    EXPECT_FALSE(part.empty());
    EXPECT_NE(what.find(part), std::string::npos) << "'" << part << "' isn't in: " << what;
  };
  EXPECT_EQ(error->op(), refused.op);
  expect_says("[" + refused.op + "]");
  ASSERT_EQ(error->inputs().size(), refused.inputs.size()) << what;
  for (size_t i = 0; i < refused.inputs.size(); ++i) {
    const PlacementError::Input& said = error->inputs()[i];
    const Tensor& given = refused.inputs[i];
    EXPECT_EQ(said.shape, given.shape());
    EXPECT_EQ(said.dtype, given.dtype());
    EXPECT_EQ(said.mesh, given.mesh());
    EXPECT_EQ(said.layout, given.layout());
    expect_says(std::string(name_of(given.dtype())) + " " + given.shape().str() + " " + given.layout().str() + " on " +
                given.mesh().sizes_str());
  }
  EXPECT_EQ(error->axis(), refused.axis) << what;
  if (!refused.axis.empty()) expect_says(refused.axis);
  expect_says(error->reason());
  for (const std::string& row : error->legal_rows()) expect_says(row);
  expect_says(error->suggestion());
  EXPECT_NE(error->suggestion().find("redistribute("), std::string::npos) << what;
  EXPECT_STREQ(error->where().file, refused.file);
  EXPECT_EQ(error->where().line, refused.line);
  expect_says(SourceLine{refused.file, refused.line}.str());

  ASSERT_FALSE(error->fix().empty()) << what;
  std::vector<Tensor> fixed = refused.inputs;
  for (const Conversion& conversion : error->fix()) {
    Tensor& input = fixed.at(static_cast<size_t>(conversion.input));
    input = input.redistribute(conversion.layout);
  }
  try {
    const std::vector<Tensor> outputs = refused.call(fixed);
    if (!have_kernels()) return;
    std::vector<Tensor> alone;
    for (const Tensor& input : refused.inputs) alone.push_back(from_host(input.reduced().to_host()));
    const std::vector<Tensor> expected = refused.call(alone);
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(check_tensor(outputs[i], expected[i].to_host()), "") << what;
  } catch (const std::exception& again) {
    ADD_FAILURE() << "after the fix: " << again.what() << "\nthe fix was from: " << what;
  }
}

DeviceMesh dp_tp() { return cpu_mesh({2, 2}, {"dp", "tp"}); }

Tensor on_dp_tp(const Shape& shape, const Placement& dp, const Placement& tp, DType dtype) {
  return distribute(iota(shape, dtype), dp_tp(), {dp, tp});
}

Tensor on_two(const Shape& shape, const Placement& placement, DType dtype) {
  return distribute(iota(shape, dtype), cpu_mesh({2}), {placement});
}

}  // namespace dtorch::test
