// exchange_rows(rows, counts) -> (rows, counts): ragged rows change owners along one mesh axis
// (ops/def/row_exchange.h). It has no kernel: the data plane moves them. The other direction is its own gradient, which
// composites that use it record themselves.
#include "ops/move/exchange_rows.h"

#include "ops/move/operators.h"

namespace dtorch {
namespace {

std::vector<OutputMeta> infer(const InferContext& context) {
  return {{context.shape(0), context.dtype(0)}, {context.shape(1), context.dtype(1)}};
}

}  // namespace

constinit OperatorDef exchange_rows_op = {.name = "exchange_rows",
                                          .signature = "exchange_rows(rows, counts) -> (rows, counts)",
                                          .infer = infer,
                                          .lowering = Lowering::kExchange,
                                          .placement_class = PlacementClass::kAnyLayout,
                                          .ragged_inputs = 1,
                                          .ragged_outputs = 1};

RaggedRows exchange_rows(const RaggedRows& sent, int64_t axis, int64_t dim, const Where& where) {
  Placements placements = sent.rows.placements();
  placements[axis] = Shard(dim);
  const Layout& from = sent.rows.layout();
  const Layout layouts[] = {Layout(from.mesh(), placements, sent.rows.ndim(), from.shard_order()),
                            sent.counts.layout()};
  auto [rows, counts] =
      record_many<2>(exchange_rows_op, NoAttrs{}, {&sent.rows, &sent.counts}, where, {.output_layouts = layouts});
  return {rows, counts};
}

}  // namespace dtorch
