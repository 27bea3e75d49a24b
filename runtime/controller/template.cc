#include "runtime/controller/template.h"

#include <algorithm>

namespace dtorch {

namespace {

// Names while passes run: live-ins, then what is born.
OperandId dense(uint32_t name, uint32_t num_live_ins) {
  return is_born(name) ? num_live_ins + number_of_name(name) : number_of_name(name);
}

// The stretch as a graph of names. Operators carry their record's number in their flags; a scalar's bits are its
// number, so that both can be found again after the passes.
LogicalGraph graph_of(const NamedStretch& stretch) {
  LogicalGraph graph;
  const RecordStretch& named = stretch.named;
  const auto add = [&](Operator op, std::span<const uint32_t> first, std::span<const uint32_t> second, SourceLine where,
                       size_t record) {
    op.first_operand = static_cast<uint32_t>(graph.operands.size());
    op.first_scalar = static_cast<uint32_t>(graph.scalars.size());
    op.flags = static_cast<uint16_t>(record);
    for (uint32_t name : first) graph.operands.push_back(dense(name, stretch.num_live_ins));
    for (uint32_t name : second) graph.operands.push_back(dense(name, stretch.num_live_ins));
    graph.operators.push_back(op);
    graph.source_lines.push_back(where);
  };
  for (size_t i = 0; i < named.size(); ++i) {
    const RecordStretch::Record& record = named.records[i];
    const RecordShape& shape = record.shape;
    if (shape.num_releases != 0) {
      add({.spec = kReleaseSpec, .num_inputs = shape.num_releases}, named.releases(record), {}, {}, i);
    }
    if (shape.spec == nullptr) continue;
    add({.spec = shape.spec->id,
         .num_inputs = shape.num_inputs,
         .num_outputs = shape.num_outputs,
         .num_scalars = shape.num_scalars},
        named.inputs(record), named.outputs(record), {shape.file, shape.line}, i);
    for (size_t k = 0; k < shape.num_scalars; ++k) graph.scalars.push_back({record.first_scalar + k});
  }
  return graph;
}

// By dense name: the records in which it is born, released, and read last.
struct Lives {
  static constexpr uint32_t kNever = TemplateBody::kNever;
  std::vector<uint32_t> births, deaths, last_reads;

  explicit Lives(const NamedStretch& stretch) {
    births.assign(size_t{stretch.num_live_ins} + stretch.num_born, kNever);
    deaths = last_reads = births;
    for (uint32_t i = 0; i < stretch.named.size(); ++i) {
      const RecordStretch::Record& record = stretch.named.records[i];
      for (uint32_t name : stretch.named.releases(record)) deaths[dense(name, stretch.num_live_ins)] = i;
      for (uint32_t name : stretch.named.inputs(record)) last_reads[dense(name, stretch.num_live_ins)] = i;
      for (uint32_t name : stretch.named.outputs(record)) births[dense(name, stretch.num_live_ins)] = i;
    }
  }
};

// Ranges of records that an instance does as a whole or not at all, because the calls left of them do something else
// than the records one by one would. By record: the end of a range that begins there, or 0.
using RangeEnds = std::vector<uint32_t>;

void add_range(RangeEnds& ends, uint32_t begin, uint32_t end) { ends[begin] = std::max(ends[begin], end); }

// A value that a pass has dropped, from its birth to its release: nobody can ask for it in between. False when one
// outlives the stretch.
bool add_dropped_values(const LogicalGraph& graph, const Lives& lives, RangeEnds& ends) {
  std::vector<bool> made(lives.births.size(), false);
  for (const Operator& op : graph.operators) {
    for (OperandId name : graph.outputs(op)) made[name] = true;
  }
  for (size_t name = 0; name < made.size(); ++name) {
    if (made[name] || lives.births[name] == Lives::kNever) continue;
    if (lives.deaths[name] == Lives::kNever) return false;
    add_range(ends, lives.births[name], lives.deaths[name] + 1);
  }
  return true;
}

// A value that a call takes away though a later record reads it, from the call to that record: a pass has dropped that
// one's operator, or made an alias of it.
void add_values_taken(const LogicalGraph& graph, const Lives& lives, RangeEnds& ends) {
  for (const Operator& op : graph.operators) {
    for (OperandId operand : graph.inputs(op)) {
      if ((operand & kLastUse) == 0) continue;
      const uint32_t read = lives.last_reads[operand & kMaxOperand];
      if (read > record_of(op)) add_range(ends, record_of(op), read + 1);
    }
  }
}

// A call that a pass has moved before others, from the first record whose operator it passed to its own: sent are the
// effects of a start of the records, whatever the order of the calls.
void add_moved_calls(const LogicalGraph& graph, RangeEnds& ends) {
  uint32_t first_after = TemplateBody::kNever;  // the first record that a later call comes from
  for (size_t c = graph.operators.size(); c-- > 0;) {
    const uint32_t record = record_of(graph.operators[c]);
    if (first_after < record) add_range(ends, first_after, record + 1);
    first_after = std::min(first_after, record);
  }
}

// The calls of a run or a bucket, which are sent as a whole.
void add_joined_calls(const LogicalGraph& graph, RangeEnds& ends) {
  uint32_t begin = TemplateBody::kNever, end = 0;
  for (const Operator& op : graph.operators) {
    const bool is_last = !is_fused_with_next(op) && !is_sent_with_next(op);
    if (is_last && end == 0) continue;  // alone
    begin = std::min(begin, record_of(op));
    end = std::max(end, record_of(op) + 1);
    if (!is_last) continue;
    add_range(ends, begin, end);
    begin = TemplateBody::kNever, end = 0;
  }
}

// What the calls of a template need, by call, and what they leave done; see template.h.
struct Progress {
  std::vector<uint32_t> needed, covered;
};

Progress progress_of(const LogicalGraph& graph, const Lives& lives, const RangeEnds& ends) {
  const size_t count = graph.operators.size();
  Progress result{std::vector<uint32_t>(count), std::vector<uint32_t>(count + 1)};
  std::vector<uint32_t>& needed = result.needed;
  for (size_t c = 0; c < count; ++c) {
    const Operator& op = graph.operators[c];
    needed[c] = record_of(op) + 1;
    for (OperandId operand : graph.inputs(op)) {
      if ((operand & kLastUse) != 0) needed[c] = std::max(needed[c], lives.deaths[operand & kMaxOperand] + 1);
    }
  }
  size_t first = 0;
  for (uint32_t record = 0; record < ends.size(); ++record) {
    if (ends[record] == 0) continue;
    uint32_t end = ends[record];  // of this range and all that touch it
    const uint32_t begin = record;
    for (; record + 1 < end; ++record) end = std::max(end, ends[record + 1]);
    while (first < count && record_of(graph.operators[first]) < begin) ++first;
    uint32_t all = end;
    size_t last = first;
    for (; last < count && record_of(graph.operators[last]) < end; ++last) all = std::max(all, needed[last]);
    for (; first < last; ++first) {
      needed[first] = all;
      result.covered[first + 1] = end;
    }
  }
  for (size_t c = 0; c < count; ++c) {
    if (c > 0) needed[c] = std::max(needed[c], needed[c - 1]);
    result.covered[c + 1] = std::max(result.covered[c + 1], result.covered[c]);
  }
  return result;
}

// Gives the names that are left new, dense numbers: live-ins first.
std::vector<uint32_t> renumber(LogicalGraph& graph, const NamedStretch& stretch, uint32_t& num_live_ins) {
  std::vector<uint32_t> numbers(size_t{stretch.num_live_ins} + stretch.num_born, Lives::kNever);
  for (OperandId operand : graph.operands) numbers[operand & kMaxOperand] = 0;
  std::vector<uint32_t> names;
  num_live_ins = 0;
  for (uint32_t name = 0; name < numbers.size(); ++name) {
    if (numbers[name] == Lives::kNever) continue;
    numbers[name] = static_cast<uint32_t>(names.size());
    const bool is_live_in = name < stretch.num_live_ins;
    num_live_ins += is_live_in;
    names.push_back(is_live_in ? live_in_name(name) : born_name(name - stretch.num_live_ins));
  }
  for (OperandId& operand : graph.operands) operand = numbers[operand & kMaxOperand] | (operand & kLastUse);
  return names;
}

std::vector<RecordCell> cells_of(const NamedStretch& stretch) {
  std::vector<RecordCell> cells;
  cells.reserve(stretch.named.size());
  for (const RecordStretch::Record& record : stretch.named.records) {
    const RecordShape& shape = record.shape;
    RecordCell& cell = cells.emplace_back(RecordCell{});
    if (shape.has_payload || record_cells(shape.num_operands(), shape.num_scalars) != 1) continue;
    cell = {.kind = RecordKind::kOperator,
            .num_scalars = 0,
            .num_inputs = shape.num_inputs,
            .num_outputs = shape.num_outputs,
            .num_releases = shape.num_releases,
            .line = shape.line,
            .num_cells = 1,
            .file = shape.file,
            .spec = shape.spec,
            .payload = nullptr,
            .operands = {}};
    std::ranges::fill(cell.operands, static_cast<uint32_t>(stretch.name_limit()));
    const auto first = stretch.named.operands.begin() + record.first_operand;
    std::copy_n(first, shape.num_operands(), cell.operands);
  }
  return cells;
}

std::vector<Template::Sums> sums_of(const LogicalGraph& graph, const SpecTable& specs) {
  std::vector<Template::Sums> before(1);
  before.reserve(graph.operators.size() + 1);
  for (const Operator& op : graph.operators) {
    Template::Sums sums = before.back();
    if (op.is_call()) {
      const SpecInfo& info = specs.at(op.spec);
      ++sums.operators;
      sums.transfers += info.moves_data;
      if (!info.is_read) {
        ++sums.credit_operators;
        sums.bytes += info.output_bytes;
      }
    }
    before.push_back(sums);
  }
  return before;
}

}  // namespace

TemplatePtr make_template(NamedStretch stretch, const SpecTable& specs, const PassList& passes) {
  DTORCH_CHECK(stretch.named.size() <= size_t{kRecordMask} + 1, "a template has too many records");
  LogicalGraph graph = graph_of(stretch);
  for (const auto& pass : passes) pass->run(graph, {specs, kTemplateLookahead});
  const bool has_operator =
      std::any_of(graph.operators.begin(), graph.operators.end(), [](const Operator& op) { return op.is_call(); });
  const Lives lives(stretch);
  RangeEnds ends(stretch.named.size(), 0);
  if (!has_operator || !add_dropped_values(graph, lives, ends)) return nullptr;
  add_values_taken(graph, lives, ends);
  add_moved_calls(graph, ends);
  add_joined_calls(graph, ends);
  // The last call ends the instance, so it waits for what comes after it as well, though that left no call.
  add_range(ends, record_of(graph.operators.back()), static_cast<uint32_t>(ends.size()));

  auto result = std::make_shared<Template>();
  Progress progress = progress_of(graph, lives, ends);
  result->records_needed = std::move(progress.needed);
  result->records_covered = std::move(progress.covered);
  for (Operator& op : graph.operators) {
    result->record_of_call.push_back(record_of(op));
    op.flags &= kFusedWithNext | kSentWithNext;
  }
  result->before = sums_of(graph, specs);
  for (Scalar& scalar : graph.scalars) {
    result->record_scalars.push_back(static_cast<uint32_t>(scalar.bits));
    scalar = stretch.named.scalars[scalar.bits];
  }
  for (const auto& pass : passes) pass->finish(graph, {specs, kTemplateLookahead});
  uint32_t num_live_ins = 0;
  result->record_names = renumber(graph, stretch, num_live_ins);
  result->deaths.assign(stretch.name_limit(), TemplateBody::kNever);
  for (uint32_t i = 0; i < stretch.named.size(); ++i) {
    for (uint32_t name : stretch.named.releases(stretch.named.records[i])) result->deaths[name] = i;
  }
  result->source_lines = std::move(graph.source_lines);
  graph.source_lines.clear();
  result->body = std::make_shared<const TemplateBody>(std::move(graph), num_live_ins);
  result->cells = cells_of(stretch);
  result->records = std::move(stretch);
  return result;
}

Template::Sums ReplayDraft::sums() const {
  const Template::Sums& end = of->before[end_call];
  const Template::Sums& first = of->before[first_call];
  return {end.credit_operators - first.credit_operators, end.bytes - first.bytes, end.operators - first.operators,
          end.transfers - first.transfers};
}

LogicalGraph calls_of(const ReplayDraft& replay) {
  const Template& of = *replay.of;
  const LogicalGraph& calls = of.body->calls();
  LogicalGraph graph;
  graph.operators.assign(calls.operators.begin() + replay.first_call, calls.operators.begin() + replay.end_call);
  graph.source_lines.assign(of.source_lines.begin() + replay.first_call, of.source_lines.begin() + replay.end_call);
  graph.scalars = replay.all_scalars;
  for (Operator& op : graph.operators) {
    const uint32_t from = op.first_operand;
    op.first_operand = static_cast<uint32_t>(graph.operands.size());
    op.first_scalar -= of.body->scalars_before(replay.first_call);
    for (uint32_t k = 0; k < uint32_t{op.num_inputs} + op.num_outputs; ++k) {
      const OperandId operand = calls.operands[from + k];
      graph.operands.push_back(replay.slots[operand & kMaxOperand] | (operand & kLastUse));
    }
  }
  return graph;
}

}  // namespace dtorch
