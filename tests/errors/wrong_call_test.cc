// Wrong calls that have nothing to do with placements: shapes, dtypes, dims, meshes, Graphs, numbers, autograd. Each is
// thrown at the call, names the operator and the line, and leaves the program usable.
#include <cstdlib>
#include <thread>

#include "tests/errors/wrong_call.h"

namespace dtorch::test {
namespace {

using WrongShape = WrongCallTest;
using WrongDType = WrongCallTest;
using WrongDim = WrongCallTest;
using WrongMesh = WrongCallTest;
using WrongCreation = WrongCallTest;
using WrongUse = WrongCallTest;

Tensor whole_on_two(const Shape& shape, DType dtype = kFloat32) { return on_two(shape, Replicate(), dtype); }

// --- shapes
TEST_F(WrongShape, AddOfShapesThatDontBroadcast) {
  const Tensor a = whole_on_two({2, 3}), b = whole_on_two({4, 3});
  expect_error<ShapeError>([&] { a + b; }, {"[add]", "[2, 3]", "[4, 3]", HERE});
}
TEST_F(WrongShape, MatmulOfSizesThatDiffer) {
  const Tensor a = whole_on_two({4, 5}), b = whole_on_two({6, 8});
  expect_error<ShapeError>([&] { matmul(a, b); }, {"[matmul]", "[4, 5]", "[6, 8]", HERE});
}
TEST_F(WrongShape, LinearOfAnotherNumberOfFeatures) {
  const Tensor x = whole_on_two({2, 8}), w = whole_on_two({4, 9});
  expect_error<ShapeError>([&] { linear(x, w); }, {"[linear]", "[2, 8]", "[4, 9]", HERE});
}
TEST_F(WrongShape, EinsumOfSizesThatDiffer) {
  const Tensor a = whole_on_two({2, 3}), b = whole_on_two({4, 5});
  expect_error<ShapeError>([&] { einsum("ij,jk->ik", a, b); }, {"[einsum]", "[2, 3]", "[4, 5]", HERE});
}
TEST_F(WrongShape, ConcatenationOfShapesThatDiffer) {
  const Tensor a = whole_on_two({2, 3}), b = whole_on_two({2, 4});
  expect_error<ShapeError>([&] { cat({a, b}, 0); }, {"[cat]", "[2, 3]", "[2, 4]", HERE});
}
TEST_F(WrongShape, ReshapeToAnotherNumberOfElements) {
  const Tensor x = whole_on_two({4, 6});
  expect_error<ShapeError>([&] { reshape(x, {5, 5}); }, {"[reshape]", "[4, 6]", "[5, 5]", HERE});
}
TEST_F(WrongShape, ExpandOfADimThatIsNotOne) {
  const Tensor x = whole_on_two({4, 6});
  expect_error<ShapeError>([&] { expand(x, {4, 12}); }, {"[expand]", "[4, 6]", "[4, 12]", HERE});
}
TEST_F(WrongShape, NormOverAnotherShape) {
  const Tensor x = whole_on_two({4, 6}), w = whole_on_two({5});
  expect_error<ShapeError>([&] { rms_norm(x, w); }, {"[rms_norm]", "[4, 6]", "[5]", HERE});
}
TEST_F(WrongShape, CrossEntropyWithAnotherNumberOfTargets) {
  const Tensor x = whole_on_two({4, 6});
  const Tensor targets = from_host(seq({5}), {.mesh = cpu_mesh({2})});
  expect_error<ShapeError>([&] { cross_entropy(x, targets); }, {"[cross_entropy", "[4, 6]", "[5]", HERE});
}
TEST_F(WrongShape, ItemOfMoreThanOneElement) {
  const Tensor x = whole_on_two({4, 6});
  expect_error<ShapeError>([&] { x.item<float>(); }, {"[item]", "24", "[4, 6]", HERE});
}

// --- dtypes
TEST_F(WrongDType, LinearOfTwoDTypes) {
  const Tensor x = whole_on_two({2, 8}), w = whole_on_two({4, 8}, kFloat16);
  expect_error<DTypeError>([&] { linear(x, w); }, {"[linear]", "float32", "float16", HERE});
}
TEST_F(WrongDType, MatmulOfTwoDTypes) {
  const Tensor x = whole_on_two({2, 8}), w = whole_on_two({8, 4}, kFloat64);
  expect_error<DTypeError>([&] { matmul(x, w); }, {"[matmul]", "float32", "float64", HERE});
}
TEST_F(WrongDType, SoftmaxOfIntegers) {
  const Tensor x = whole_on_two({2, 8}, kInt64);
  expect_error<DTypeError>([&] { softmax(x, -1); }, {"[softmax]", "int64", HERE});
}
TEST_F(WrongDType, MeanOfIntegers) {
  const Tensor x = whole_on_two({2, 8}, kInt32);
  expect_error<DTypeError>([&] { mean(x); }, {"[mean]", "int32", HERE});
}
TEST_F(WrongDType, EmbeddingOfFloatingIds) {
  const Tensor ids = whole_on_two({3}), w = whole_on_two({6, 4});
  expect_error<DTypeError>([&] { embedding(ids, w); }, {"[embedding]", "float32", HERE});
}
TEST_F(WrongDType, WhereWithAConditionThatIsNotBool) {
  const Tensor x = whole_on_two({3});
  expect_error<DTypeError>([&] { where(x, x, x); }, {"[where]", "float32", HERE});
}
TEST_F(WrongDType, ElementsOfAnotherTypeThanAsked) {
  const HostTensor host = iota({3});
  expect_error<DTypeError>([&] { host.data<int64_t>(); }, {"float32", "int64"});
}

// --- dims
TEST_F(WrongDim, SoftmaxOverADimThatIsNotThere) {
  const Tensor x = whole_on_two({2, 3, 4});
  expect_error<ShapeError>([&] { softmax(x, 7); }, {"[softmax]", "dim 7 is outside [-3, 3)", HERE});
}
TEST_F(WrongDim, SumOverADimThatIsNotThere) {
  const Tensor x = whole_on_two({2, 3});
  expect_error<ShapeError>([&] { sum(x, {-3}); }, {"[sum]", "dim -3 is outside [-2, 2)", HERE});
}
TEST_F(WrongDim, SumOverADimTwice) {
  const Tensor x = whole_on_two({2, 3});
  expect_error<ShapeError>([&] { sum(x, {1, -1}); }, {"[sum]", "twice", HERE});
}
TEST_F(WrongDim, TransposeOfADimThatIsNotThere) {
  const Tensor x = whole_on_two({2, 3});
  expect_error<ShapeError>([&] { transpose(x, 0, 2); }, {"[transpose]", "dim 2 is outside [-2, 2)", HERE});
}
TEST_F(WrongDim, ArgmaxOverADimThatIsNotThere) {
  const Tensor x = whole_on_two({2, 3});
  expect_error<ShapeError>([&] { argmax(x, 4); }, {"[argmax]", "dim 4 is outside [-2, 2)", HERE});
}
TEST_F(WrongDim, SelectOfAnIndexThatIsNotThere) {
  const Tensor x = whole_on_two({2, 3});
  expect_error<ShapeError>([&] { select(x, 0, 5); }, {"[select]", "5", HERE});
}
TEST_F(WrongDim, AShardOfADimThatIsNotThere) {
  const Tensor x = whole_on_two({2, 3});
  expect_error<ShapeError>([&] { x.redistribute({Shard(2)}); }, {"2", HERE});
}

// --- meshes, placements, axes
TEST_F(WrongMesh, ADeviceTwice) {
  expect_error<MeshError>([] { DeviceMesh("cpu", {2}, {0, 0}); }, {"0", HERE});
}
TEST_F(WrongMesh, ADeviceThatTheClusterDoesNotHave) {
  const DeviceMesh mesh("cpu", {2}, {0, 99});
  expect_error<MeshError>([&] { zeros({4}, {.mesh = mesh}).to_host(); }, {"99", "4", HERE});
}
// Before there is a job, which could refuse it.
const DeviceMesh kMadeBefore = init_device_mesh("cuda", {2});

bool job_has_cpus() {
  const char* device = std::getenv("DTORCH_DEVICE");
  return device == nullptr || *device == '\0' || std::string(device) == "cpu";
}
TEST_F(WrongMesh, OfKindCudaInAJobOfCpus) {
  if (!job_has_cpus()) GTEST_SKIP() << "the job's devices are others";
  const std::vector<std::string> said = {"kind \"cuda\"", "(--device cpu; ", "start it with --device cuda"};
  expect_error<MeshError>([] { init_device_mesh("cuda", {2}); }, {said[0], said[1], said[2], HERE});
  expect_error<MeshError>([] { DeviceMesh("cuda", {2}, {1, 0}); }, {said[0], said[1], said[2], HERE});
  expect_error<MeshError>([] { zeros({4}, {.mesh = kMadeBefore}); }, {said[0], said[1], said[2], HERE});
}
TEST_F(WrongMesh, OnePlacementForTwoAxes) {
  expect_error<MeshError>([] { zeros({4, 4}, {.mesh = dp_tp(), .placements = {Shard(0)}}); }, {"1", "2", HERE});
  const Tensor x = on_dp_tp({4, 4}, Replicate(), Replicate());
  expect_error<MeshError>([&] { x.redistribute({Shard(0)}); }, {"1", "2", HERE});
}
TEST_F(WrongMesh, AnAxisWithoutThatName) {
  expect_error<KeyError>([] { dp_tp().slice("pp", 0); }, {"pp", "dp", "tp", HERE});
  expect_error<KeyError>(
      [] {
        zeros({4, 4}, {.mesh = dp_tp(), .placements = {Shard(0), Shard(0)}, .order = {"cp"}});
      },
      {"cp"});
  const Tensor x = on_dp_tp({4, 4}, Replicate(), Replicate());
  const std::map<std::string, Placement> wrong{{"pp", Shard(0)}};
  expect_error<KeyError>([&] { x.redistribute_by_dict(wrong, ByDictMode::kKeep); }, {"pp", "dp", "tp", HERE});
}
TEST_F(WrongMesh, AnAxisThatTheDictionaryLeavesOut) {
  const Tensor x = on_dp_tp({4, 4}, Replicate(), Replicate());
  expect_error<KeyError>([&] { x.redistribute_by_dict({{"dp", Shard(0)}}); }, {"tp", HERE});
}
TEST_F(WrongMesh, AnAxisOfAMeshWithOthers) {
  expect_error<MeshError>([] { dp_tp()["dp"]; }, {"dp", "slice", "unbind", HERE});
}
TEST_F(WrongMesh, OperandsOnTwoMeshes) {
  const Tensor a = from_host(iota({4}), {.mesh = DeviceMesh("cpu", {2}, {0, 1})});
  const Tensor b = from_host(iota({4}), {.mesh = DeviceMesh("cpu", {2}, {2, 3})});
  expect_error<MeshError>([&] { a + b; }, {"[add]", a.mesh().str(), b.mesh().str(), HERE});
  expect_error<MeshError>([&] { matmul(a, b); }, {"[matmul]", a.mesh().str(), b.mesh().str(), HERE});
}
TEST_F(WrongMesh, ReadingAPartOfADeviceOutsideTheMesh) {
  const Tensor x = whole_on_two({4});
  expect_error<MeshError>([&] { x.to_host_local(3); }, {"[to_host_local]", "3", HERE});
}

// --- creation
TEST_F(WrongCreation, ANegativeSize) {
  expect_error<ShapeError>([] { zeros({4, -1}); }, {"-1", HERE});
}
TEST_F(WrongCreation, APartOfAnotherShape) {
  expect_error<ShapeError>(
      [] { from_local(cpu_mesh({2}), {Shard(0)}, [](int64_t, const Shape&) { return iota({7}); }, {4}); },
      {"[from_local]", "[7]", "[2]"});
}
TEST_F(WrongCreation, AnUndefinedHostTensor) {
  expect_error<UserError>([] { from_host(HostTensor()); }, {"[from_host]", HERE});
}
TEST_F(WrongCreation, ARangeOfIntegersThatIsEmpty) {
  expect_error<UserError>([] { randint(5, 5, {3}); }, {"[randint]", "5", HERE});
}
TEST_F(WrongCreation, AProbabilityAboveOne) {
  const Tensor x = whole_on_two({4});
  expect_error<UserError>([&] { dropout(x, 1.5); }, {"[dropout]", "1.5", HERE});
}
TEST_F(WrongCreation, AClampWithoutBounds) {
  const Tensor x = whole_on_two({4});
  expect_error<UserError>([&] { clamp(x, std::nullopt, std::nullopt); }, {"[clamp]", HERE});
}

// --- handles, Graphs, autograd
TEST_F(WrongUse, AnUndefinedTensor) {
  const Tensor nothing, x = whole_on_two({4});
  expect_error<UserError>([&] { nothing.to_host(); }, {"undefined"});
  expect_error<UserError>([&] { x + nothing; }, {"undefined"});
  expect_error<UserError>([&] { softmax(nothing, 0); }, {"undefined"});
}
TEST_F(WrongUse, OperandsOfTwoGraphs) {
  const Graph other = client().new_graph();
  const Tensor a = whole_on_two({4});
  Tensor b;
  {
    const GraphScope scope(other);
    b = whole_on_two({4});
  }
  expect_error<GraphError>([&] { a + b; },
                           {"[add]", std::to_string(client().graph().id()), std::to_string(other.id())});
}
TEST_F(WrongUse, AGraphFromAnotherThread) {
  const Tensor a = whole_on_two({4});
  std::thread([&] {
    const GraphScope scope(client().graph());
    expect_error<GraphError>([&] { a + 1.0; }, {"thread"});
  }).join();
}
TEST_F(WrongUse, BackwardTwice) {
  const Tensor x = whole_on_two({4}).requires_grad_();
  const Tensor loss = sum(x * x);
  loss.backward();
  expect_error<UserError>([&] { loss.backward(); }, {"retain_graph", HERE});
}
TEST_F(WrongUse, BackwardOfMoreThanOneElement) {
  const Tensor x = whole_on_two({4}).requires_grad_();
  expect_error<UserError>([&] { (x * 2.0).backward(); }, {"[4]", HERE});
}
TEST_F(WrongUse, BackwardWithoutAnythingThatNeedsAGradient) {
  const Tensor x = whole_on_two({4});
  expect_error<UserError>([&] { sum(x).backward(); }, {"gradient", HERE});
}
TEST_F(WrongUse, AGradientOfAnotherShape) {
  const Tensor x = whole_on_two({4}).requires_grad_(), g = whole_on_two({5});
  expect_error<ShapeError>([&] { (x * 2.0).backward(g); }, {"[4]", "[5]", HERE});
}
TEST_F(WrongUse, AGradientOfIntegers) {
  Tensor x = whole_on_two({4}, kInt64);
  expect_error<DTypeError>([&] { x.requires_grad_(); }, {"int64"});
}

}  // namespace
}  // namespace dtorch::test
