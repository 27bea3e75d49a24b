// What a Graph's stream has held since the last boundary, in the form in which templates compare it: the heads of its
// records, and their operands by name. A name says what a value is within the stretch: the n-th value born there, or
// the n-th value from before in order of first use. Slots differ from one repetition to the next, names don't. Used by
// one executor's thread.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/client/record_codec.h"
#include "runtime/controller/passes/pass.h"

namespace dtorch {

// What two repetitions of a record have in common beside dataflow. (A spec stands for the operator, its attributes and
// everything about its operands' metadata; the source line is part of it, so that an error names the right one.)
struct RecordShape {
  const OperatorSpec* spec = nullptr;  // null: it only releases
  const char* file = nullptr;
  uint32_t line = 0;
  uint16_t num_inputs = 0;  // these five are one word
  uint16_t num_outputs = 0;
  uint16_t num_releases = 0;
  uint8_t num_scalars = 0;
  bool has_payload = false;

  static RecordShape of(const RecordReader& record);
  size_t num_operands() const { return size_t{num_inputs} + num_outputs + num_releases; }
  uint64_t hash() const;
  // One branch, since it decides about every record.
  friend bool operator==(const RecordShape& a, const RecordShape& b) {
    const auto differ = [](const void* x, const void* y) {
      return reinterpret_cast<uintptr_t>(x) ^ reinterpret_cast<uintptr_t>(y);
    };
    return (differ(a.spec, b.spec) | differ(a.file, b.file) | (a.counts() ^ b.counts()) | (a.line ^ b.line)) == 0;
  }

 private:
  // One load.
  uint64_t counts() const {
    return uint64_t{num_inputs} | uint64_t{num_outputs} << 16 | uint64_t{num_releases} << 32 |
           uint64_t{num_scalars} << 48 | uint64_t{has_payload} << 56;
  }
};

// Names of values: even for live-ins, odd for those born in the stretch, so that a name doesn't depend on what follows.
constexpr uint32_t live_in_name(uint32_t number) { return 2 * number; }
constexpr uint32_t born_name(uint32_t number) { return 2 * number + 1; }
constexpr bool is_born(uint32_t name) { return (name & 1) != 0; }
constexpr uint32_t number_of_name(uint32_t name) { return name / 2; }

// A stretch of records. Operands of a record: inputs, outputs, releases (which come before the operator).
struct RecordStretch {
  struct Record {
    RecordShape shape;
    uint32_t first_operand = 0;
    uint32_t first_scalar = 0;
  };
  std::vector<Record> records;
  std::vector<uint32_t> operands;  // slots or names
  std::vector<Scalar> scalars;

  size_t size() const { return records.size(); }
  std::span<const uint32_t> inputs(const Record& record) const {
    return {operands.data() + record.first_operand, record.shape.num_inputs};
  }
  std::span<const uint32_t> outputs(const Record& record) const {
    return {operands.data() + record.first_operand + record.shape.num_inputs, record.shape.num_outputs};
  }
  std::span<const uint32_t> releases(const Record& record) const {
    return {operands.data() + record.first_operand + record.shape.num_inputs + record.shape.num_outputs,
            record.shape.num_releases};
  }
  std::span<const Scalar> scalars_of(const Record& record) const {
    return {scalars.data() + record.first_scalar, record.shape.num_scalars};
  }
  void append(const RecordShape& shape, std::span<const uint32_t> record_operands,
              std::span<const Scalar> record_scalars);
  void clear();
};

// A stretch by names.
struct NamedStretch {
  RecordStretch named;
  uint32_t num_live_ins = 0;
  uint32_t num_born = 0;
  size_t name_limit() const { return std::max(live_in_name(num_live_ins), born_name(num_born)); }  // names are below
  // By record, and one more: a hash of everything before it but the scalars. Equal stretches have equal hashes.
  std::vector<uint64_t> prefix_hashes;

  bool same_start(const NamedStretch& other, size_t count) const;
};

class RecordNamer {
 public:
  // The records from `first` on, as a stretch of their own.
  NamedStretch name(const RecordStretch& slots, size_t first);

 private:
  SlotMap names_;
};

}  // namespace dtorch
