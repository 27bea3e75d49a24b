// A Client over a fake executor with the real operators: what backward records, not what it computes.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "mesh/redistribute_plan.h"
#include "ops/ops.h"
#include "runtime/autograd/backward.h"
#include "runtime/client/client.h"
#include "runtime/client/gradient.h"
#include "tests/client/fake_runtime.h"

namespace dtorch::testing {

class AutogradTest : public ::testing::Test {
 protected:
  AutogradTest() { register_builtin_operators(); }
  ~AutogradTest() override {
    client_.close();
    EXPECT_EQ(runtime_->violations(), std::vector<std::string>());
  }
  Tensor leaf(const Shape& shape, const Placements& placements, DType dtype = kFloat32) {
    return ones(shape, {.mesh = mesh_, .placements = placements, .dtype = dtype, .requires_grad = true});
  }
  Tensor constant(const Shape& shape, const Placements& placements) {
    return ones(shape, {.mesh = mesh_, .placements = placements});
  }
  // How often an operator was recorded so far.
  int64_t count(const std::string& op) {
    client_.synchronize();
    const std::vector<std::string> names = runtime_->operators();
    return std::ranges::count(names, op);
  }
  // Redistributes so far that move data between devices (slices and the like are local).
  std::vector<const OperatorSpec*> transfers() {
    client_.synchronize();
    std::vector<const OperatorSpec*> found;
    for (const LoggedRecord& record : runtime_->log()) {
      if (record.op != "redistribute") continue;
      const RedistributePlan plan = make_redistribute_plan(record.spec->inputs[0], record.spec->outputs[0]);
      if (plan.kind == PlanKind::kTransfer) found.push_back(record.spec);
    }
    return found;
  }

  std::shared_ptr<FakeRuntime> runtime_ = std::make_shared<FakeRuntime>();
  Client client_{runtime_};
  const DeviceMesh mesh_ = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
};

}  // namespace dtorch::testing
