// Records in the ring's cells: what is written is what is read.
#include "runtime/client/record_codec.h"

#include <gtest/gtest.h>

#include <numeric>

namespace dtorch {
namespace {

std::vector<OperandId> numbers(size_t count, OperandId first) {
  std::vector<OperandId> list(count);
  std::iota(list.begin(), list.end(), first);
  return list;
}
template <class T>
std::vector<T> copy(std::span<const T> list) {
  return {list.begin(), list.end()};
}

TEST(RecordCodec, ReadsBackWhatWasWrittenForAnyNumberOfOperandsAndScalars) {
  OperatorSpec spec;
  for (size_t num_inputs : {0, 1, 2, 6, 7, 40}) {
    for (size_t num_outputs : {0, 1, 3, 17}) {
      for (size_t num_releases : {0, 2, 5, 33}) {
        for (size_t num_scalars : {0, 1, 2, 8, 9, 255}) {
          SpscRing<Cell> ring(128);
          const auto inputs = numbers(num_inputs, 10), outputs = numbers(num_outputs, 1000),
                     releases = numbers(num_releases, kMaxOperand - 50);
          std::vector<Scalar> scalars;
          for (size_t i = 0; i < num_scalars; ++i) scalars.push_back(Scalar::of_int(-static_cast<int64_t>(i) - 1));
          ASSERT_TRUE(write_record(ring, {.spec = &spec,
                                          .where = {"file.cc", 7},
                                          .inputs = inputs,
                                          .outputs = outputs,
                                          .releases = releases,
                                          .scalars = scalars}));
          RecordReader reader;
          ASSERT_TRUE(reader.read(ring));
          EXPECT_EQ(reader.kind(), RecordKind::kOperator);
          EXPECT_EQ(reader.spec(), &spec);
          EXPECT_EQ(reader.where().str(), "file.cc:7");
          EXPECT_EQ(copy(reader.inputs()), inputs);
          EXPECT_EQ(copy(reader.outputs()), outputs);
          EXPECT_EQ(copy(reader.releases()), releases);
          ASSERT_EQ(reader.scalars().size(), num_scalars);
          for (size_t i = 0; i < num_scalars; ++i)
            EXPECT_EQ(reader.scalars()[i].as_int(), -static_cast<int64_t>(i) - 1);
          EXPECT_FALSE(reader.take_payload());
          reader.consume(ring);
          EXPECT_FALSE(reader.read(ring));
        }
      }
    }
  }
}

TEST(RecordCodec, WritesASmallCallIntoOneCell) {
  EXPECT_EQ(record_cells(6, 0), 1u);
  EXPECT_EQ(record_cells(7, 0), 2u);
  EXPECT_EQ(record_cells(3, 8), 2u);
  EXPECT_EQ(record_cells(6 + 16, 0), 2u);
  EXPECT_EQ(record_cells(6 + 16, 1), 3u);
}

TEST(RecordCodec, WrapsAroundTheEndOfTheRing) {
  SpscRing<Cell> ring(8);
  RecordReader reader;
  for (OperandId round = 0; round < 50; ++round) {
    const auto inputs = numbers(30, round * 100);
    const Scalar scalar = Scalar::of(round);
    ASSERT_TRUE(write_record(ring, {.inputs = inputs, .scalars = {&scalar, 1}}));
    ASSERT_TRUE(reader.read(ring));
    EXPECT_EQ(copy(reader.inputs()), inputs);
    EXPECT_EQ(reader.scalars()[0].as_double(), round);
    reader.consume(ring);
  }
}

TEST(RecordCodec, HandsThePayloadsReferenceToTheReader) {
  SpscRing<Cell> ring(8);
  auto payload = make_intrusive<RecordPayload>();
  payload->add_ref();
  ASSERT_TRUE(write_record(ring, {.payload = payload.get()}));
  RecordReader reader;
  ASSERT_TRUE(reader.read(ring));
  EXPECT_TRUE(reader.has_payload());
  {
    IntrusivePtr<RecordPayload> taken = reader.take_payload();
    EXPECT_EQ(taken, payload);
    EXPECT_EQ(payload->ref_count(), 2u);
  }
  EXPECT_EQ(payload->ref_count(), 1u);
}

TEST(RecordCodec, LeavesThePayloadWithTheCallerWhenTheRingIsClosed) {
  SpscRing<Cell> ring(2);
  ASSERT_TRUE(write_record(ring, {}));
  ASSERT_TRUE(write_record(ring, {}));
  ring.close();
  auto payload = make_intrusive<RecordPayload>();
  EXPECT_FALSE(write_record(ring, {.payload = payload.get()}));
  EXPECT_EQ(payload->ref_count(), 1u);
}

}  // namespace
}  // namespace dtorch
