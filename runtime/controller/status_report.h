// What the nodes are doing, in words: which device is in which operator, and who waits for whom. For the watchdog and
// for whoever asks.
#pragma once
#include <functional>
#include <string>

#include "runtime/controller/inspection.h"

namespace dtorch {

// How the report names things.
struct StatusNames {
  // An operator under way, as "[add] #12.3: ..., called at train.cc:7"; "" when it isn't under way any more.
  std::function<std::string(const Place&)> operator_at;
  // The oldest work that a node, or its branch of the tree, hasn't acknowledged, as "it owes ..."; "" when there is
  // none.
  std::function<std::string(int32_t node)> owed_by;
};

// One line each, indented: devices in an operator, one by one; nodes that don't answer; devices that wait, together for
// each awaited operator; the transfers that these wait for; idle nodes. So the first line is the likeliest cause.
std::string describe_status(const Inspection::Answers& answers, const StatusNames& names);

}  // namespace dtorch
