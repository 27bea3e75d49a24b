// The order in which a pipeline's parts are issued: every part once, after what it needs, with the bubble and the
// memory that the schedule promises.
#include <gtest/gtest.h>

#include <map>

#include "nn/pipeline.h"
#include "runtime/base/error.h"

namespace dtorch::nn {
namespace {

using Key = std::pair<int64_t, int64_t>;

void expect_complete(const PipelineOrder& order, int64_t chunks, int64_t micros) {
  std::map<Key, bool> forward, backward;
  for (const PipelineAction& action : order.actions) {
    const Key here{action.chunk, action.micro};
    if (action.is_forward) {
      EXPECT_TRUE(action.chunk == 0 || forward.contains({action.chunk - 1, action.micro}));
      EXPECT_TRUE(forward.emplace(here, true).second) << "forward twice";
    } else {
      EXPECT_TRUE(forward.contains(here));
      EXPECT_TRUE(action.chunk == chunks - 1 || backward.contains({action.chunk + 1, action.micro}));
      EXPECT_TRUE(backward.emplace(here, true).second) << "backward twice";
    }
  }
  EXPECT_EQ(forward.size(), static_cast<size_t>(chunks * micros));
  EXPECT_EQ(backward.size(), static_cast<size_t>(chunks * micros));
}

TEST(PipelineOrderTest, EveryPartComesOnceAndAfterWhatItNeeds) {
  for (int64_t stages = 1; stages <= 4; ++stages) {
    for (int64_t micros = 1; micros <= 9; ++micros) {
      for (PipelineSchedule schedule : {PipelineSchedule::kGPipe, PipelineSchedule::k1F1B}) {
        expect_complete(pipeline_order(schedule, stages, stages, micros), stages, micros);
      }
      for (int64_t chunks : {2, 3}) {
        expect_complete(pipeline_order(PipelineSchedule::kInterleaved, stages, chunks * stages, micros),
                        chunks * stages, micros);
      }
    }
  }
}

TEST(PipelineOrderTest, TheBubbleIsWhatTheoryAllows) {
  for (int64_t stages : {2, 4}) {
    for (int64_t micros : {4, 8, 16}) {
      const double theory = static_cast<double>(stages - 1) / static_cast<double>(micros + stages - 1);
      EXPECT_NEAR(pipeline_order(PipelineSchedule::kGPipe, stages, stages, micros).bubble, theory, 1e-9);
      EXPECT_NEAR(pipeline_order(PipelineSchedule::k1F1B, stages, stages, micros).bubble, theory, 1e-9);
      EXPECT_LT(pipeline_order(PipelineSchedule::kInterleaved, stages, 2 * stages, micros).bubble, theory);
    }
  }
}

TEST(PipelineOrderTest, OneForwardOneBackwardKeepsAsManyMicroBatchesAsThereAreStages) {
  EXPECT_EQ(pipeline_order(PipelineSchedule::kGPipe, 4, 4, 16).most_in_flight, 16);
  EXPECT_EQ(pipeline_order(PipelineSchedule::k1F1B, 4, 4, 16).most_in_flight, 4);
}

TEST(PipelineOrderTest, SizesThatDontFitAreRefused) {
  EXPECT_THROW(pipeline_order(PipelineSchedule::k1F1B, 2, 3, 4), UserError);
  EXPECT_THROW(pipeline_order(PipelineSchedule::k1F1B, 2, 2, 0), UserError);
  EXPECT_THROW(pipeline_schedule_from_name("zigzag"), UserError);
}

}  // namespace
}  // namespace dtorch::nn
