// Checks that a call means the same whatever was called before it: calls of an operator that differ in an attribute, a
// number, the values or the order of their inputs run back to back on equal metadata, where a cache whose key lacks one
// of these would answer with the other's. Runs on the client's thread.
#pragma once
#include <string>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/client/client.h"
#include "runtime/client/inference.h"

namespace dtorch::checker {

// While it lives every call is inferred anew.
class CacheOff {
 public:
  explicit CacheOff(InferenceCache& cache) : cache_(cache) { cache_.set_enabled(false); }
  ~CacheOff() { cache_.set_enabled(true); }
  CacheOff(const CacheOff&) = delete;
  CacheOff& operator=(const CacheOff&) = delete;

 private:
  InferenceCache& cache_;
};

// Every sample's call on every sample's inputs that it takes (at most max_pairs, by stride), after the other's call;
// and every sample again with other values, and with its inputs reversed. Returns what is wrong. Counts the calls
// compared.
std::vector<std::string> check_repeated_calls(Client& client, const OperatorDef& op, const std::vector<Sample>& samples,
                                              uint64_t seed, size_t max_pairs, int64_t* num_compared);

}  // namespace dtorch::checker
