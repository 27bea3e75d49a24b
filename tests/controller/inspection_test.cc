// Questions to nodes: several at a time, late answers, answers in another's name, the end.
#include "runtime/controller/inspection.h"

#include <gtest/gtest.h>

#include <future>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

constexpr auto kLong = std::chrono::seconds(20);

// Keeps what is asked.
class Asked final : public ControlEndpoint {
 public:
  void send(int32_t to, Message message) override { sent_.push({to, std::move(message)}); }
  Inbox& inbox() override { return inbox_; }
  int64_t messages_sent() const override { return 0; }
  int64_t bytes_sent() const override { return 0; }
  // Waits until both nodes have been asked; returns the question.
  Inspect by_both_nodes() {
    std::optional<Inspect> question;
    for (int32_t node = 0; node < 2; ++node) {
      const std::optional<Envelope> envelope = sent_.pop_for(kLong);
      if (!envelope) throw RuntimeFault("nobody asks");
      EXPECT_EQ(envelope->from, node);
      question = decode_inspect(envelope->message);
    }
    return *question;
  }

 private:
  Inbox sent_, inbox_;
};

class InspectionTest : public testing::Test {
 protected:
  std::future<Inspection::Answers> ask(Aspect aspect, std::chrono::nanoseconds wait = kLong) {
    return std::async(std::launch::async, [this, aspect, wait] { return inspection_.ask(aspect, wait); });
  }
  void answer(const Inspect& question, int32_t node) {
    inspection_.on_answer(node, {.node = node, .number = question.number});
  }
  Asked asked_;
  Inspection inspection_{asked_, 2};
};

TEST_F(InspectionTest, AQuestionThatIsAnsweredLateDoesNotKeepOthersWaiting) {
  std::future<Inspection::Answers> memory = ask(Aspect::kMemory);
  const Inspect of_memory = asked_.by_both_nodes();
  EXPECT_EQ(of_memory.aspect, Aspect::kMemory);
  answer(of_memory, 1);
  std::future<Inspection::Answers> status = ask(Aspect::kStatus);
  const Inspect of_status = asked_.by_both_nodes();
  EXPECT_EQ(of_status.aspect, Aspect::kStatus);
  EXPECT_NE(of_status.number, of_memory.number);
  answer(of_status, 0);
  answer(of_status, 1);
  for (const std::optional<Answer>& answer : status.get()) EXPECT_EQ(answer.value().number, of_status.number);
  EXPECT_EQ(memory.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  answer(of_memory, 0);
  for (const std::optional<Answer>& answer : memory.get()) EXPECT_EQ(answer.value().number, of_memory.number);
}

TEST_F(InspectionTest, WhatDoesNotComeInTimeIsMissingAndDroppedLater) {
  std::future<Inspection::Answers> status = ask(Aspect::kStatus, std::chrono::milliseconds(1));
  const Inspect question = asked_.by_both_nodes();
  const Inspection::Answers answers = status.get();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_FALSE(answers[0] || answers[1]);
  answer(question, 0);
  EXPECT_THROW(inspection_.on_answer(0, {.node = 1, .number = question.number}), RuntimeFault);
}

TEST_F(InspectionTest, TheEndLetsEverybodyGoWithWhatThereIs) {
  std::future<Inspection::Answers> memory = ask(Aspect::kMemory);
  const Inspect of_memory = asked_.by_both_nodes();
  std::future<Inspection::Answers> status = ask(Aspect::kStatus);
  asked_.by_both_nodes();
  answer(of_memory, 0);
  inspection_.close();
  const Inspection::Answers of_all = memory.get();
  EXPECT_TRUE(of_all[0]);
  EXPECT_FALSE(of_all[1]);
  EXPECT_FALSE(status.get()[0]);
  EXPECT_FALSE(ask(Aspect::kClock).get()[0]) << "nobody is asked any more";
}

}  // namespace
}  // namespace dtorch
