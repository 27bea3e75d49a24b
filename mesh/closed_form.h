// Sums over all devices of a mesh without looking at each: what a redistribution between two layouts on one mesh costs
// is a product over dims in the usual cases. Private to redistribute_plan.cc and tests.
#pragma once
#include <cstdint>
#include <optional>

#include "mesh/layout.h"

namespace dtorch {

// Axes of which only position 0 counts, by axis.
using FirstOnly = InlineVector<bool, kMaxAxes>;

// The sum over the devices that count of the elements of their parts.
int64_t elements_held(const Layout& layout, const Shape& shape, const FirstOnly& first_only);
// The sum over the devices that count of the elements that a device's part in `from` and its part in `to`, a layout on
// the same mesh, have in common. None when there is no closed form here: a dim that both split otherwise than one finer
// than the other, or axes that move between dims other than one by one.
std::optional<int64_t> elements_in_common(const Layout& from, const Layout& to, const Shape& shape,
                                          const FirstOnly& first_only);
// True when every device's part in `to`, a layout on the same mesh, lies in its part in `from` because each dim is
// split at least as `from` splits it. (Small sizes may make it so otherwise.)
bool splits_further(const Layout& from, const Layout& to, int64_t ndim);

}  // namespace dtorch
