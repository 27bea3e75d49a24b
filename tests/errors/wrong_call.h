// What a test of a wrong call shares: a refusal must say everything, its suggestion must work, and whatever was wrong,
// the next correct program must run (case C01).
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dtorch/dtorch.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {

// After every test C01 passes: iota [8, 7, 4, 6] over four devices, Shard(0).
class WrongCallTest : public ClusterTest {
 protected:
  void TearDown() override;
};

// A call that no row of its operator allows.
struct RefusedCall {
  std::string op;
  std::string axis;            // "" when no single axis fails
  std::vector<Tensor> inputs;  // the operator's own, in its order
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> call;
  const char* file;
  uint32_t line;
};
// Every field of the PlacementError; then executes its fix, after which the call gives the value of one device.
void check_refused(const RefusedCall& refused);

inline std::vector<Tensor> list_of(Tensor tensor) { return {std::move(tensor)}; }
inline std::vector<Tensor> list_of(std::vector<Tensor> tensors) { return tensors; }
inline std::vector<Tensor> list_of(std::pair<Tensor, Tensor> tensors) { return {tensors.first, tensors.second}; }

// The expression uses in[0], in[1], ...; it must stand on the line of the macro's name.
#define EXPECT_REFUSED(op, axis, inputs, ...)                                                                          \
  ::dtorch::test::check_refused(                                                                                       \
      {op, axis, inputs, [](const std::vector<::dtorch::Tensor>& in) { return ::dtorch::test::list_of(__VA_ARGS__); }, \
       __FILE__, __LINE__})

// The message of the error that `call` must throw: exactly of type E, with every one of `parts` in it.
template <class E, class F>
void expect_error(F&& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown, expected an error with '" << (parts.empty() ? "" : parts.front()) << "'";
  } catch (const E& error) {
    EXPECT_EQ(typeid(error), typeid(E)) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "'" << part << "' isn't in: " << error.what();
    }
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what();
  }
}

// "file:line" of the call that follows in the same line.
#define HERE ::dtorch::SourceLine{__FILE__, __LINE__}.str()

// Tensors of 0.5 e - 3 on dp x tp, on which most of the wrong calls happen.
DeviceMesh dp_tp();
Tensor on_dp_tp(const Shape& shape, const Placement& dp, const Placement& tp, DType dtype = kFloat32);
// On two devices without names.
Tensor on_two(const Shape& shape, const Placement& placement, DType dtype = kFloat32);

}  // namespace dtorch::test
