// A template on the controller's side: which records an instance consists of, the calls that the passes have made of
// them, and what is needed to say which calls may be sent when only the first records have come. Belongs to one
// executor; the ledger reads what doesn't change.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/controller/passes/pass.h"
#include "runtime/controller/record_log.h"
#include "runtime/graph/templates.h"

namespace dtorch {

struct Template {
  // --- doesn't change
  NamedStretch records;
  // By record: the cell that it comes in, with names for operands and records.name_limit() where there is none; empty
  // (num_cells is 0) when it doesn't come in one cell.
  std::vector<RecordCell> cells;
  std::shared_ptr<const TemplateBody> body;
  std::vector<SourceLine> source_lines;  // by call
  std::vector<uint32_t> record_names;    // by the body's name: the records' name
  std::vector<uint32_t> deaths;          // by the records' name: the record that releases it, or TemplateBody::kNever
  std::vector<uint32_t> record_scalars;  // by the body's scalar: its number among the records' scalars
  // By call: how many records must have come before the calls up to and with it may be sent: those that it stands for,
  // and those that what it does relies on (a release that made an input's use the last one).
  std::vector<uint32_t> records_needed;
  std::vector<uint32_t> record_of_call;
  // By number of calls sent: how many records are done with them though no call of theirs may have been left.
  std::vector<uint32_t> records_covered;
  // Sums over the calls before each, and over all: operators that need credit and their bytes, operators of any kind,
  // transfers.
  struct Sums {
    int64_t credit_operators = 0, bytes = 0, operators = 0;
    uint32_t transfers = 0;
  };
  std::vector<Sums> before;

  // --- the executor's
  TemplateId id = 0;
  VaryingScalars varying;
  // The longest start that it shares with another template: up to there it isn't known which one is under way.
  size_t shared_start = 0;
  std::weak_ptr<Template> successor;  // what came after it last time
  uint64_t used_at = 0;
  bool removed = false;  // its number may be another's by now
  bool early = false;    // kept at its first appearance, not replayed yet

  size_t size() const { return records.named.size(); }
};
using TemplatePtr = std::shared_ptr<Template>;

// Records after which a release no longer makes an operator's use of a value the last one, so that the operator needn't
// be held back until then.
inline constexpr uint32_t kTemplateLookahead = 64;

// Makes a template of a stretch; the passes run on it as one graph, by names. Null when it has no operator, or a pass
// has dropped a value that outlives it.
TemplatePtr make_template(NamedStretch stretch, const SpecTable& specs, const PassList& passes);

// A Replay before it has its numbers, and what the ledger keeps of it.
struct ReplayDraft {
  std::shared_ptr<const Template> of;
  TemplateId id = 0;
  uint32_t first_call = 0, end_call = 0;
  bool ends = false;
  std::vector<uint32_t> new_varying;
  std::vector<OperandId> operands;
  std::vector<Scalar> scalars;      // the varying ones
  std::vector<Scalar> all_scalars;  // of the calls
  std::vector<OperandId> slots;     // by the body's name

  Template::Sums sums() const;
};
// Its calls as a piece would have them: with slots and source lines.
LogicalGraph calls_of(const ReplayDraft& replay);

}  // namespace dtorch
