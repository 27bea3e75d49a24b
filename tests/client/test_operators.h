// Operators without kernels for the client's own tests, under the names that the client looks up ("redistribute",
// "read") and others.
#pragma once
#include <gtest/gtest.h>

#include <memory>

#include "runtime/client/client.h"
#include "runtime/client/record.h"
#include "tests/client/fake_runtime.h"

namespace dtorch::testing {

struct NumberAttrs {
  int64_t number = 0;
  template <class V>
  void fields(V& v) {
    v("number", number);
  }
};

extern OperatorDef make_op, add_op, relu_op, matmul_op, flatten_op, split_op, compare_op, many_op, add_number_op;
// Number of calls of an infer function so far, in all operators.
extern int num_inferences;
void register_test_operators();

Tensor make(const Shape& shape, const TensorOptions& options, Where where = Where::current());
Tensor add(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor relu(const Tensor& x, Where where = Where::current());
Tensor matmul(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor flatten(const Tensor& x, Where where = Where::current());

// A Client over a FakeRuntime, with a mesh dp=2, tp=2.
class ClientTest : public ::testing::Test {
 protected:
  ClientTest();
  ~ClientTest() override;
  // Flushes and waits for the executor.
  void wait();

  std::shared_ptr<FakeRuntime> runtime_ = std::make_shared<FakeRuntime>();
  Client client_{runtime_};
  const DeviceMesh mesh_ = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
};

}  // namespace dtorch::testing
