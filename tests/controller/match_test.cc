// An instance of a template against records as they lie in a ring: what match_cells() takes, and where it stops.
#include <gtest/gtest.h>

#include "runtime/controller/template_instance.h"
#include "tests/controller/fake_cluster.h"

namespace dtorch {
namespace {

struct Entry {
  std::vector<OperandId> inputs, outputs, releases;
  std::vector<Scalar> scalars = {};
};

class MatchCells : public ::testing::Test {
 protected:
  MatchCells() {
    spec_.op = test_operator("test_add").index;
    spec_.outputs = {intern_meta({kTestElements}, kFloat32, Layout::replicated(init_device_mesh("cpu", {2})))};
    table_.find_or_add(spec_, false);
  }
  // A template of these records, under way.
  void begin(const std::vector<Entry>& entries) {
    RecordStretch log;
    for (const Entry& entry : entries) {
      std::vector<OperandId> operands = entry.inputs;
      operands.insert(operands.end(), entry.outputs.begin(), entry.outputs.end());
      operands.insert(operands.end(), entry.releases.begin(), entry.releases.end());
      log.append({.spec = &spec_,
                  .file = file_,
                  .line = 1,
                  .num_inputs = static_cast<uint16_t>(entry.inputs.size()),
                  .num_outputs = static_cast<uint16_t>(entry.outputs.size()),
                  .num_releases = static_cast<uint16_t>(entry.releases.size()),
                  .num_scalars = static_cast<uint8_t>(entry.scalars.size())},
                 operands, entry.scalars);
    }
    TemplatePtr made = make_template(RecordNamer().name(log, 0), table_, make_passes(plain_options().passes));
    ASSERT_TRUE(made);
    instance_.begin(std::move(made));
  }
  void write(const Entry& entry, uint32_t line = 1) {
    ASSERT_TRUE(write_record(ring_, {.spec = &spec_,
                                     .where = {file_, line},
                                     .inputs = entry.inputs,
                                     .outputs = entry.outputs,
                                     .releases = entry.releases,
                                     .scalars = entry.scalars}));
  }
  uint32_t match(size_t most = 100) { return instance_.match_cells(ring_, most); }

  const char* const file_ = "user.cc";
  OperatorSpec spec_;
  SpecTable table_;
  SpscRing<Cell> ring_{64};
  TemplateInstance instance_;
};

TEST_F(MatchCells, TakesTheSameDataflowOfOtherSlotsAndAtMostAsMuchAsAsked) {
  begin({{{7, 3}, {5}, {}}, {{5, 3}, {6}, {7}}, {{6, 4}, {7}, {5}}});
  write({{2, 9}, {8}, {}});
  write({{8, 9}, {1}, {2}});
  write({{1, 0}, {8}, {8}});  // a live-in that comes late; the slot of what it releases is its result's
  EXPECT_EQ(match(2), 2u);
  EXPECT_FALSE(instance_.complete());
  EXPECT_EQ(match(), 1u);
  EXPECT_TRUE(instance_.complete());
  EXPECT_EQ(ring_.readable(), 0u);
  EXPECT_EQ(match(), 0u);
  RecordStretch copied;
  instance_.copy_records(copied);
  EXPECT_EQ(copied.operands, (std::vector<uint32_t>{2, 9, 8, 8, 9, 1, 2, 1, 0, 8, 8}));
}

TEST_F(MatchCells, StopsAtTheFirstRecordThatDiffersAndLeavesItInTheRing) {
  const std::vector<Entry> entries = {{{7, 3}, {5}, {}}, {{5, 3}, {6}, {7}}, {{6, 4}, {7}, {5}}};
  const std::vector<Entry> others = {
      {{8, 8}, {1}, {2}},        // another operand
      {{8, 9}, {1}, {9}},        // another release
      {{8, 9, 9}, {1}, {2}},     // one more
      {{8, 9}, {1}, {2}, {{5}}}  // a number
  };
  for (const Entry& other : others) {
    begin(entries);
    write({{2, 9}, {8}, {}});
    write(other);
    EXPECT_EQ(match(), 1u);
    EXPECT_EQ(instance_.num_matched(), 1u);
    EXPECT_EQ(ring_.readable(), record_cells(other.inputs.size() + 2, other.scalars.size()));
    ring_.consume(ring_.readable());
    write({{8, 9}, {1}, {2}});  // had it come
    EXPECT_EQ(match(), 1u);
  }
  begin(entries);
  write({{2, 9}, {8}, {}}, 2);
  EXPECT_EQ(match(), 0u) << "of another line";
  ring_.consume(1);
}

TEST_F(MatchCells, ALateLiveInMayNotBeAValueThatHasAnotherName) {
  const std::vector<Entry> entries = {{{7, 3}, {5}, {}}, {{5, 3}, {6}, {}}, {{6, 4}, {7}, {3}}};
  for (const OperandId known : {8u, 9u, 1u}) {
    begin(entries);
    write({{2, 9}, {8}, {}});
    write({{8, 9}, {1}, {}});
    write({{1, known}, {4}, {9}});
    EXPECT_EQ(match(), 2u) << known;
    ring_.consume(1);
    write({{1, 30}, {4}, {9}});
    EXPECT_EQ(match(), 1u) << known;
  }
}

TEST_F(MatchCells, WhatLiesInSeveralCellsHasToBeRead) {
  const std::vector<Scalar> number = {{5}};
  begin({{{7, 3}, {5}, {}}, {{5, 3}, {6}, {}, number}, {{6, 4}, {2}, {}}});
  write({{7, 3}, {5}, {}});
  write({{5, 3}, {6}, {}, number});
  write({{6, 4}, {2}, {}});
  EXPECT_EQ(match(), 1u);
  EXPECT_EQ(match(), 0u);
  RecordReader reader;
  ASSERT_TRUE(reader.read(ring_));
  EXPECT_TRUE(instance_.match(RecordShape::of(reader), reader));
  reader.consume(ring_);
  EXPECT_EQ(match(), 1u);
  EXPECT_TRUE(instance_.complete());
}

}  // namespace
}  // namespace dtorch
