// The generic checker of operators. For every sample of an operator and every tuple of placements of its inputs it runs
// the call on a mesh and demands one of two outcomes: a PlacementError, whose suggestion makes the call legal, or the
// value of the same call on one device, held by every device as the result's placements say. Gradients likewise.
//
// Meshes: [2] and [3] with every tuple; (2, 2) with pairs of tuples that [2] accepted, and a seeded sample of others,
// also with shards split in the other order; and a seeded sample on wide meshes: more devices than a dim has items,
// three axes, devices in any order. Each call is made with the inference cache and without it. Every third time the
// float64 gradients that arrive are pending sums.
//
// An operator must accept every row that needs no communication: row_search.h finds them on one device, and a refused
// one must be excused by CheckOptions::excluded. Calls must not remember others (cache_check.h). Runs on the client's
// thread, in a job of at least 4 devices.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/client/client.h"

namespace dtorch::checker {

// A row that would need no communication and that an operator refuses all the same. The checker finds such rows by
// brute force (row_search.h) and takes each of them for a fault that isn't excused so.
struct ExcludedRow {
  const char* op;
  const char* row;  // as in docs/operators.md: "R,P->P"
  const char* reason;
};

struct CheckOptions {
  uint64_t seed = 1;
  bool every_reduction = false;  // inputs also Partial(avg), (max) and (min)
  // At most so many tuples of one sample on one mesh; where there are more, a seeded sample of them and all whose
  // inputs agree.
  int64_t max_tuples = 64;
  int64_t max_pairs = 24;       // on (2, 2): of accepted tuples; a seeded sample of them where there are more
  int64_t max_others = 10;      // on (2, 2)
  bool of_operator = false;     // max_pairs and max_others are for all samples of an operator together
  int64_t max_wide = 4;         // on wide meshes, as far as the job has devices for them
  int64_t max_searched = 1500;  // tuples of a group of samples that the search for rows tries
  size_t max_repeats = 30;      // pairs of samples that run back to back
  std::span<const ExcludedRow> excluded = {};
  static CheckOptions full() {
    return {.every_reduction = true,
            .max_tuples = 20000,
            .max_pairs = 6000,
            .max_others = 300,
            .of_operator = true,
            .max_wide = 100,
            .max_searched = 20000,
            .max_repeats = 1000};
  }
};

struct CheckCounts {
  int64_t operators = 0, samples = 0, tuples_tried = 0, accepted = 0, refused = 0, fixes_executed = 0,
          gradients_checked = 0, rows_found = 0, rows_accepted = 0, rows_excluded = 0, repeats_compared = 0;
  CheckCounts& operator+=(const CheckCounts& other);
};

struct OperatorReport {
  CheckCounts counts;
  std::vector<std::string> problems;          // what is wrong, with sample, mesh and placements; empty when nothing is
  std::set<std::string> operators_run;        // names of all operators that were recorded on the way
  std::set<std::string> excluded;             // rows that are refused and excused
  std::map<std::string, int64_t> refused_by;  // operators that threw the PlacementErrors, as users know them
};

// Checks one operator by its samples, in Graphs of its own.
OperatorReport check_operator(Client& client, const OperatorDef& op, const CheckOptions& options);

// Checks one call that may record any operators, on the layouts that the checker tries for an operator's samples.
OperatorReport check_sample(Client& client, const Sample& sample, const CheckOptions& options);

// At least two samples, one with a dim that 2 doesn't divide, and one with a dim of size 0 or 1. Returns what is
// missing.
std::vector<std::string> check_samples(const OperatorDef& op, const std::vector<Sample>& samples);

// Attributes of every spec that was recorded in `graph`: encoding, decoding and encoding again gives the same bytes,
// and bytes that are cut off or too long are refused. Returns what is wrong.
std::vector<std::string> check_codecs(const Graph& graph);

}  // namespace dtorch::checker
