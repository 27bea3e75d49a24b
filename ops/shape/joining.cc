// hstack, vstack, dstack, column_stack, block_diag, meshgrid and cartesian_prod: cat, stack, expand and pad of several
// tensors. Also the definition of stack (cat.cc). Layouts and gradients are those of the operators that they record.
#include <algorithm>

#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"

namespace dtorch {
namespace {

using namespace shaping;

std::vector<Sample> stack_samples() {
  return {
      {.name = "uneven", .inputs = {{{5, 1}}, {{5, 1}}}, .call = single([](const auto& in) { return stack(in, 1); })},
      {.name = "size 1, no dims", .inputs = {{{}, kFloat64}, {{}, kFloat64}}, .call = single([](const auto& in) {
                                                                                return stack(in);
                                                                              })}};
}
std::vector<Sample> hstack_samples() {
  const auto call = single([](const auto& in) { return hstack(in); });
  return {{.name = "matrices", .inputs = {{{5, 2}}, {{5, 3}}}, .call = call},
          {.name = "vectors", .inputs = {{{5}, kFloat64}, {{1}, kFloat64}}, .call = call}};
}
std::vector<Sample> vstack_samples() {
  const auto call = single([](const auto& in) { return vstack(in); });
  return {{.name = "matrices", .inputs = {{{2, 5}}, {{3, 5}}}, .call = call},
          {.name = "a vector, size 1", .inputs = {{{5}, kFloat64}, {{1, 5}, kFloat64}}, .call = call}};
}
std::vector<Sample> dstack_samples() {
  const auto call = single([](const auto& in) { return dstack(in); });
  return {{.name = "matrices", .inputs = {{{5, 2}}, {{5, 2}}}, .call = call},
          {.name = "one row", .inputs = {{{1, 3}}, {{1, 3}}}, .call = call},
          {.name = "vectors", .inputs = {{{5}, kFloat64}, {{5}, kFloat64}}, .call = call}};
}
std::vector<Sample> column_stack_samples() {
  const auto call = single([](const auto& in) { return column_stack(in); });
  return {{.name = "vectors", .inputs = {{{5}}, {{5}}}, .call = call},
          {.name = "a matrix, size 1", .inputs = {{{5, 1}, kFloat64}, {{5}, kFloat64}}, .call = call}};
}
std::vector<Sample> block_diag_samples() {
  const auto call = single([](const auto& in) { return block_diag(in); });
  return {{.name = "two matrices", .inputs = {{{2, 3}}, {{5, 1}}}, .call = call},
          {.name = "a vector", .inputs = {{{5}, kFloat64}, {{0, 2}, kFloat64}}, .call = call}};
}
std::vector<Sample> meshgrid_samples() {
  return {{.name = "ij", .inputs = {{{5}}, {{3}}}, .call = [](const std::vector<Tensor>& in) { return meshgrid(in); }},
          {.name = "xy, size 1",
           .inputs = {{{5}, kFloat64}, {{1}, kFloat64}},
           .call = [](const std::vector<Tensor>& in) { return meshgrid(in, "xy"); }}};
}
std::vector<Sample> cartesian_prod_samples() {
  const auto call = single([](const auto& in) { return cartesian_prod(in); });
  return {{.name = "two vectors", .inputs = {{{4}}, {{3}}}, .call = call},
          {.name = "size 1", .inputs = {{{5}, kFloat64}, {{1}, kFloat64}}, .call = call}};
}

void need_tensors(const char* op, const std::vector<Tensor>& tensors, const Where& where) {
  if (tensors.empty()) throw at_line(UserError("[" + std::string(op) + "] got no tensors"), where);
}
void need_vectors(const char* op, const std::vector<Tensor>& tensors, const Where& where) {
  need_tensors(op, tensors, where);
  for (const Tensor& tensor : tensors) {
    if (tensor.ndim() <= 1 && tensor.dtype() == tensors[0].dtype()) continue;
    throw at_line(ShapeError("[" + std::string(op) + "] needs vectors of one dtype, got " + name_of(tensor.dtype()) +
                             " " + tensor.shape().str()),
                  where);
  }
}
template <class F>
std::vector<Tensor> each(const std::vector<Tensor>& tensors, F f) {
  std::vector<Tensor> results;
  for (const Tensor& tensor : tensors) results.push_back(f(tensor));
  return results;
}

}  // namespace

constinit OperatorDef stack_op = composition("stack", "stack(tensors, dim) -> Tensor", stack_samples, "all");
constinit OperatorDef hstack_op =
    composition("hstack", "hstack(tensors) -> Tensor", hstack_samples, "all", PlacementClass::kCombines);
constinit OperatorDef vstack_op =
    composition("vstack", "vstack(tensors) -> Tensor", vstack_samples, "all", PlacementClass::kCombines);
constinit OperatorDef dstack_op =
    composition("dstack", "dstack(tensors) -> Tensor", dstack_samples, "all", PlacementClass::kCombines);
constinit OperatorDef column_stack_op = composition("column_stack", "column_stack(tensors) -> Tensor",
                                                    column_stack_samples, "all", PlacementClass::kCombines);
constinit OperatorDef block_diag_op =
    composition("block_diag", "block_diag(tensors) -> Tensor", block_diag_samples, "all", PlacementClass::kCombines);
constinit OperatorDef meshgrid_op =
    composition("meshgrid", "meshgrid(tensors, indexing) -> [Tensor]", meshgrid_samples, "each");
constinit OperatorDef cartesian_prod_op =
    composition("cartesian_prod", "cartesian_prod(tensors) -> Tensor", cartesian_prod_samples, "all");

Tensor hstack(const std::vector<Tensor>& tensors, Where where) {
  need_tensors("hstack", tensors, where);
  const std::vector<Tensor> parts = each(tensors, [&](const Tensor& x) { return atleast_1d(x, where); });
  return cat(parts, parts[0].ndim() == 1 ? 0 : 1, where);
}
Tensor vstack(const std::vector<Tensor>& tensors, Where where) {
  need_tensors("vstack", tensors, where);
  return cat(each(tensors, [&](const Tensor& x) { return atleast_2d(x, where); }), 0, where);
}
Tensor dstack(const std::vector<Tensor>& tensors, Where where) {
  need_tensors("dstack", tensors, where);
  return cat(each(tensors, [&](const Tensor& x) { return atleast_3d(x, where); }), 2, where);
}
Tensor column_stack(const std::vector<Tensor>& tensors, Where where) {
  need_tensors("column_stack", tensors, where);
  const auto column = [&](const Tensor& x) { return x.ndim() < 2 ? unsqueeze(atleast_1d(x, where), 1, where) : x; };
  return cat(each(tensors, column), 1, where);
}
Tensor block_diag(const std::vector<Tensor>& tensors, Where where) {
  need_tensors("block_diag", tensors, where);
  int64_t columns = 0, column = 0;
  const std::vector<Tensor> blocks = each(tensors, [&](const Tensor& x) {
    if (x.ndim() > 2) throw at_line(ShapeError("[block_diag] needs at most 2 dims, got " + x.shape().str()), where);
    return atleast_2d(x, where);
  });
  for (const Tensor& block : blocks) columns += block.shape()[1];
  const std::vector<Tensor> rows = each(blocks, [&](const Tensor& block) {
    const int64_t left = column;
    column += block.shape()[1];
    return pad(block, {left, columns - column}, "constant", 0, where);
  });
  return cat(rows, 0, where);
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, const std::string& indexing, Where where) {
  need_vectors("meshgrid", tensors, where);
  if (indexing != "ij" && indexing != "xy") {
    throw at_line(UserError("[meshgrid] indexing is '" + indexing + "', allowed are 'ij' and 'xy'"), where);
  }
  std::vector<int64_t> shape;
  for (const Tensor& tensor : tensors) shape.push_back(tensor.numel());
  std::vector<size_t> dim_of;  // of each tensor in the grid
  for (size_t i = 0; i < tensors.size(); ++i) dim_of.push_back(i);
  if (indexing == "xy" && tensors.size() > 1) {
    std::swap(shape[0], shape[1]);
    std::swap(dim_of[0], dim_of[1]);
  }
  std::vector<Tensor> grids;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<int64_t> own(tensors.size(), 1);
    own[dim_of[i]] = tensors[i].numel();
    grids.push_back(expand(reshape(tensors[i], own, where), shape, where));
  }
  return grids;
}
Tensor cartesian_prod(const std::vector<Tensor>& tensors, Where where) {
  need_vectors("cartesian_prod", tensors, where);
  if (tensors.size() == 1) return tensors[0];
  const std::vector<Tensor> columns =
      each(meshgrid(tensors, "ij", where), [&](const Tensor& grid) { return flatten(grid, 0, -1, where); });
  return stack(columns, 1, where);
}

}  // namespace dtorch
