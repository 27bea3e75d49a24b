// Templates: a stretch of a Graph's stream that comes again and again is defined on the nodes once and replayed by its
// number from then on. A definition's calls have names instead of slots: values from before the stretch (live-ins) come
// first, then those that are born in it. Only a live-in, and a value that outlives the stretch, has a slot; a Replay
// lists these slots (and the scalars that differ from instance to instance), in the order in which the calls meet them.
//
// An instance may come in several Replays, each going on where the last one ended. One that isn't completed is
// abandoned by a Replay with `ends`, which also lists the slots of the temporaries alive then.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/graph/messages.h"

namespace dtorch {

using TemplateId = uint32_t;
// Of one Graph; a definition with a number that is in use replaces the older one.
inline constexpr TemplateId kMaxTemplates = 256;

// The calls of a template and what follows from them. Immutable: any thread.
class TemplateBody {
 public:
  static constexpr uint32_t kNever = 0xFFFFFFFFu;

  TemplateBody() = default;
  // Names are 0 .. num_names-1, live-ins first. Throws DecodeError unless every value is born once, before its uses,
  // and not used after its release.
  TemplateBody(LogicalGraph calls, uint32_t num_live_ins);

  const LogicalGraph& calls() const { return calls_; }
  uint32_t num_calls() const { return static_cast<uint32_t>(calls_.operators.size()); }
  uint32_t num_names() const { return static_cast<uint32_t>(deaths_.size()); }
  uint32_t num_live_ins() const { return num_live_ins_; }
  bool is_live_in(OperandId name) const { return name < num_live_ins_; }
  bool outlives(OperandId name) const { return deaths_[name] == kNever; }
  // Names that get slots with the calls [first, end): live-ins used for the first time, values born that outlive it.
  std::span<const OperandId> externals(uint32_t first, uint32_t end) const {
    return {externals_.data() + externals_before_[first], externals_before_[end] - externals_before_[first]};
  }
  uint32_t born_in(OperandId name) const { return births_[name]; }  // the call; kNever of a live-in
  // Whether a value that exists before call `end` is still there.
  bool alive_before(OperandId name, uint32_t end) const { return deaths_[name] >= end; }
  // Values without slots that were born before call `end` and live, in order of their names.
  std::vector<OperandId> temporaries_alive(uint32_t end) const;
  // Number of scalars of the calls before this one.
  uint32_t scalars_before(uint32_t call) const {
    return call < num_calls() ? calls_.operators[call].first_scalar : static_cast<uint32_t>(calls_.scalars.size());
  }

 private:
  LogicalGraph calls_;
  uint32_t num_live_ins_ = 0;
  std::vector<uint32_t> births_;            // by name: the call that makes it, kNever for live-ins
  std::vector<uint32_t> deaths_;            // by name: the call that releases it
  std::vector<OperandId> externals_;        // names
  std::vector<uint32_t> externals_before_;  // by call, and one more
};

// The scalars of a template that have ever differed from the definition's, by their numbers in the body: every Replay
// carries the values of these. Both ends of the wire keep one.
class VaryingScalars {
 public:
  bool contains(uint32_t scalar) const;
  void add(uint32_t scalar);
  // Those with numbers in [first, end), in order.
  std::span<const uint32_t> range(uint32_t first, uint32_t end) const;
  const std::vector<uint32_t>& all() const { return scalars_; }

 private:
  std::vector<uint32_t> scalars_;  // ascending
};

struct TemplateDefinition {
  uint32_t epoch = 0;
  GraphId graph = 0;
  TemplateId id = 0;
  std::vector<OperatorSpec> new_specs;  // specs that this definition is the first to use
  std::shared_ptr<const TemplateBody> body;
  std::vector<uint32_t> varying = {};  // ascending: of a template that was replayed before, its varying scalars
};

// The calls [first_call, end_call) of the next instance of a template, or of the one under way.
struct Replay {
  uint32_t epoch = 0;
  Sequence sequence = 0;
  GraphId graph = 0;
  uint64_t first_transfer = 0;  // number of the first call here that moves data between devices
  TemplateId id = 0;
  uint32_t first_call = 0;
  uint32_t end_call = 0;
  bool wants_ack_now = false;
  bool wants_statistics = false;
  bool ends = false;                  // the instance is over; always with the last call
  std::vector<uint32_t> new_varying;  // numbers of scalars whose values come with this and all later instances
  std::vector<OperandId> operands;    // slots of externals(first_call, end_call); then of the temporaries alive
  std::vector<Scalar> scalars;        // values of the varying scalars of these calls
  // Of the template that `id` named when this was encoded or decoded.
  std::shared_ptr<const TemplateBody> body;
};

// A Replay without its body; the grammar stands in replay_wire.cc.
Message encode(const Replay& fields);

// What a decoder knows of a Graph's templates.
struct KnownTemplates {
  struct Known {
    std::shared_ptr<const TemplateBody> body;
    VaryingScalars varying;
  };
  std::vector<Known> by_id;
  // The instance under way: which template, and its next call; kNever: none.
  TemplateId current = TemplateBody::kNever;
  uint32_t next_call = 0;
};
// Takes the Replay out of a message and verifies it against the Graph's templates, which it brings up to date. Throws
// DecodeError; nothing has changed then.
Replay take_replay(const Message& message, KnownTemplates& known);
// The Graph that a Replay belongs to; verifies the envelope only.
GraphId graph_of_replay(const Message& message);

}  // namespace dtorch
