// Wrong calls: type and text of the error, and that the program stays usable.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/client/graph_core.h"
#include "runtime/client/placement_error.h"
#include "tests/client/test_operators.h"

namespace dtorch::testing {
namespace {

class ErrorsTest : public ClientTest {
 protected:
  Tensor on(const Shape& shape, const Placements& placements) {
    return make(shape, {.mesh = mesh_, .placements = placements});
  }
  template <class E, class F>
  std::string message_of(F call) {
    try {
      call();
    } catch (const E& e) {
      return e.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks " << part;
}

TEST_F(ErrorsTest, APlacementErrorSaysEverythingAboutTheCall) {
  Tensor a = on({4, 6}, {Replicate(), Shard(1)}), b = on({6, 8}, {Shard(0), Shard(1)});
  const uint32_t line = std::source_location::current().line() + 2;
  try {
    matmul(a, b);
    FAIL() << "no error";
  } catch (const PlacementError& e) {
    EXPECT_EQ(e.op(), "matmul");
    ASSERT_EQ(e.inputs().size(), 2u);
    EXPECT_EQ(e.inputs()[0].shape, (Shape{4, 6}));
    EXPECT_EQ(e.inputs()[1].dtype, kFloat32);
    EXPECT_EQ(e.inputs()[1].mesh, mesh_);
    EXPECT_EQ(e.inputs()[1].layout, b.layout());
    EXPECT_EQ(e.axis(), "tp");
    EXPECT_FALSE(e.reason().empty());
    EXPECT_FALSE(e.legal_rows().empty());
    EXPECT_EQ(e.where().line, line);
    const std::string text = e.what();
    expect_contains(text, "[matmul] no legal placement on axis tp");
    expect_contains(text, e.reason());
    expect_contains(text, "input 0: float32 [4, 6] {Replicate(), Shard(1)} on cpu mesh (dp=2, tp=2)");
    expect_contains(text, "input 1: float32 [6, 8] {Shard(0), Shard(1)} on cpu mesh (dp=2, tp=2)");
    for (const std::string& row : e.legal_rows()) expect_contains(text, row);
    expect_contains(text, e.suggestion());
    expect_contains(e.suggestion(), "x.redistribute({");
    expect_contains(text, "errors_test.cc:" + std::to_string(line));
    // What is suggested makes the call legal.
    std::vector<Tensor> inputs = {a, b};
    ASSERT_FALSE(e.fix().empty());
    for (const Conversion& fix : e.fix()) {
      inputs[static_cast<size_t>(fix.input)] = inputs[static_cast<size_t>(fix.input)].redistribute(fix.layout);
    }
    EXPECT_EQ(matmul(inputs[0], inputs[1]).shape(), (Shape{4, 8}));
  }
}

TEST_F(ErrorsTest, TheNonLinearUseOfAPartialIsRefusedWithItsReduction) {
  Tensor p = on({4}, {Partial(), Replicate()});
  try {
    relu(p);
    FAIL() << "no error";
  } catch (const PlacementError& e) {
    EXPECT_EQ(e.axis(), "dp");
    ASSERT_EQ(e.fix().size(), 1u);
    expect_contains(e.suggestion(), "for input 0: x.redistribute(");
    relu(p.redistribute(e.fix()[0].layout));
  }
}

TEST_F(ErrorsTest, AViewThatCutsAShardIsRefusedWithTheCheapestRedistribute) {
  Tensor x = on({3, 4}, {Shard(1), Replicate()});
  try {
    flatten(x);
    FAIL() << "no error";
  } catch (const PlacementError& e) {
    EXPECT_EQ(e.op(), "flatten");
    EXPECT_EQ(e.axis(), "dp");
    EXPECT_FALSE(e.reason().empty());
    ASSERT_EQ(e.fix().size(), 1u);
    EXPECT_EQ(e.suggestion(), "for input 0: x.redistribute({Replicate(), Replicate()})");
    flatten(x.redistribute(e.fix()[0].layout));
  }
}

TEST_F(ErrorsTest, SuggestionsNameTheOrderOfAxesWhenItIsNotTheMeshs) {
  const Layout layout(mesh_, {Shard(0), Shard(0)}, 2, std::vector<std::string>{"tp", "dp"});
  Tensor a = on({8, 6}, {Shard(0), Shard(0)}).redistribute(layout), b = on({8, 6}, {Shard(0), Shard(0)});
  const std::string text = message_of<PlacementError>([&] { add(a, b); });
  expect_contains(text, "order {tp, dp}");
}

TEST_F(ErrorsTest, AShapeErrorNamesTheInputsAndTheLine) {
  Tensor a = on({4, 5}, {Shard(0), Replicate()}), b = on({6, 8}, {Replicate(), Replicate()});
  const std::string text = message_of<ShapeError>([&] { matmul(a, b); });
  expect_contains(text, "[matmul] inner sizes 5 and 6 differ");
  expect_contains(text, "input 0: float32 [4, 5] {Shard(0), Replicate()} on cpu mesh (dp=2, tp=2)");
  expect_contains(text, "called at tests/client/errors_test.cc:");
}

TEST_F(ErrorsTest, InputsOnDifferentMeshesAreRefusedByName) {
  const DeviceMesh other = init_device_mesh("cpu", {2}, {"ep"});
  Tensor a = on({4}, {Replicate(), Replicate()}), b = make({4}, {.mesh = other});
  const std::string text = message_of<MeshError>([&] { add(a, b); });
  expect_contains(text, "[add]");
  expect_contains(text, mesh_.str());
  expect_contains(text, other.str());
  add(a, b.redistribute(mesh_, {Replicate(), Replicate()}));
}

TEST_F(ErrorsTest, InputsOfDifferentGraphsAreRefusedByName) {
  Tensor a = on({4}, {Replicate(), Replicate()});
  Graph second = client_.new_graph();
  GraphScope scope(second);
  Tensor b = on({4}, {Replicate(), Replicate()});
  const std::string text = message_of<GraphError>([&] { add(a, b); });
  expect_contains(text, "graph " + std::to_string(client_.graph().id()));
  expect_contains(text, "graph " + std::to_string(second.id()));
  EXPECT_EQ(&relu(a).value()->graph(), &client_.graph().core());
  EXPECT_EQ(&relu(b).value()->graph(), &second.core());
}

TEST_F(ErrorsTest, UndefinedTensorsAreRefused) {
  Tensor a = on({4}, {Replicate(), Replicate()});
  expect_contains(message_of<UserError>([&] { add(a, Tensor()); }), "[add] input 1 is undefined");
  EXPECT_THROW(Tensor().shape(), UserError);
  EXPECT_THROW(Tensor().to_host(), UserError);
  EXPECT_THROW(Tensor().redistribute({Replicate()}), UserError);
}

TEST_F(ErrorsTest, AGraphIsDrivenByOneThread) {
  Tensor a = on({4}, {Replicate(), Replicate()});
  std::thread([&] {
    EXPECT_THROW(relu(a), GraphError);
    EXPECT_THROW(current_graph(), GraphError);
    EXPECT_THROW(a.to_host_async(), GraphError);
  }).join();
  // Another thread may drive a Graph of its own.
  Graph second = client_.new_graph();
  std::thread([&] {
    GraphScope scope(second);
    Tensor b = on({4}, {Replicate(), Replicate()});
    EXPECT_EQ(relu(b).to_host().num_elements(), 4);
  }).join();
}

TEST_F(ErrorsTest, ARefusedCallRecordsNothing) {
  Tensor a = on({4, 5}, {Shard(0), Replicate()}), b = on({6, 8}, {Replicate(), Replicate()});
  EXPECT_THROW(matmul(a, b), ShapeError);
  EXPECT_THROW(matmul(a, b), ShapeError);
  EXPECT_EQ(relu(a).shape(), a.shape());
  wait();
  EXPECT_EQ(runtime_->operators(), (std::vector<std::string>{"make", "make", "relu"}));
  EXPECT_EQ(runtime_->num_live(), 3u - 1u);
}

TEST_F(ErrorsTest, LocalConversionsAreRefusedWhenSwitchedOffAndMadeInAConversionScope) {
  Tensor a = on({4, 6}, {Shard(0), Replicate()}), b = on({4, 6}, {Replicate(), Replicate()});
  set_implicit_redistribution(false);
  EXPECT_FALSE(implicit_redistribution_allowed());
  EXPECT_THROW(add(a, b), PlacementError);
  {
    ConversionScope scope(ConversionPolicy::kReduce);
    add(a, b);
    EXPECT_EQ(relu(on({4}, {Partial(), Replicate()})).shape(), Shape{4});
  }
  EXPECT_THROW(add(a, b), PlacementError);
  set_implicit_redistribution(true);
  add(a, b);
}

TEST_F(ErrorsTest, OnceTheExecutorHasFailedEveryCallThrowsItsFailure) {
  Tensor a = on({4}, {Replicate(), Replicate()});
  wait();
  runtime_->fail_fatally(std::make_exception_ptr(RuntimeFault("node 1 is lost")));
  TensorFuture future;
  expect_contains(message_of<RuntimeFault>([&] {
                    future = a.to_host_async();
                    future.get();
                  }),
                  "node 1 is lost");
  while (!runtime_->link(0)->failed) std::this_thread::yield();
  EXPECT_THROW(relu(a), RuntimeFault);
  EXPECT_THROW(a.to_host(), RuntimeFault);
  EXPECT_THROW(client_.flush(), RuntimeFault);
}

}  // namespace
}  // namespace dtorch::testing
