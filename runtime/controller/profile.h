// What devices tell of their operators' cost, added up by operator, and what moved between devices by kind and axes.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime/client/sight.h"
#include "runtime/graph/inspection.h"

namespace dtorch {

// spec_of: null for a Graph that has ended.
Profile summarize_profile(const std::vector<Answer>& answers, int64_t num_devices,
                          const std::function<const OperatorSpec*(GraphId, uint32_t spec)>& spec_of);

// What a redistribution is called: "all-reduce" over "dp"; several where it does several at once. Without kind when no
// axis changes.
CommunicationEntry communication_of(const Layout& from, const Layout& to);

}  // namespace dtorch
