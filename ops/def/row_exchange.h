// Ragged values, and the operators that move them.
//
// A ragged tensor [..., W] has rows that are 0 and not stored: which ones, the data decides. On a device it is a packed
// [n, W] of those rows of its part that are stored, n being known there only. Its shape, dtype and layout are static,
// as of any tensor, so that nothing outside waits for a size. Ragged values exist only between operators that declare
// them (OperatorDef::ragged_inputs, ragged_outputs): inside one composite.
//
// An operator with Lowering::kExchange, (rows, counts) -> (rows, counts), is a redistribution of ragged rows along one
// axis of the mesh. rows [P, ..., W], P being the size of the axis, goes from split tokens to split dim 0 or back: its
// layouts differ on that axis only, Shard(d) with d > 0 on one side and Shard(0) on the other. Before, the rows of a
// device are in the order of the positions that get them; afterwards in the order of the positions that they come from.
// counts [devices, P] (int64, Shard(0) on every axis) says how many these are, for each position.
#pragma once
#include "ops/def/operator_def.h"

namespace dtorch {

// The axis along which the rows of an exchange move. Throws DecodeError when the spec isn't one of an exchange.
int64_t exchange_axis(const OperatorSpec& spec);

}  // namespace dtorch
