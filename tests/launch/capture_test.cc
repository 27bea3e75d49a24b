// client.capture: a function that repeats itself, and what is said about one that doesn't.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtorch/dtorch.h"

namespace dtorch {
namespace {

void in_job(const std::function<void(Client&)>& program) {
  std::vector<std::string> words = {"program", "--devices", "2"};
  std::vector<char*> pointers = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  EXPECT_EQ(run(3, pointers.data(), program), 0);
}

TensorOptions whole_on(int64_t devices) {
  return {.mesh = init_device_mesh("cpu", {devices}), .placements = {Replicate()}};
}

std::string refusal(const std::function<void()>& function) {
  try {
    function();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n  in: " << text;
}

TEST(Capture, AFunctionIsReplayedFromItsThirdRun) {
  in_job([](Client& client) {
    Tensor y = full({4}, 0.0);
    const Tensor one = full({4}, 1.0);
    CapturedFunction step = client.capture([&] {
      for (int i = 0; i < 10; ++i) y = y + one;
    });
    EXPECT_EQ(step.num_calls(), 0u);
    std::vector<int64_t> replayed;
    for (int i = 0; i < 5; ++i) {
      step();
      client.synchronize();
      replayed.push_back(client.stats().template_operators);
    }
    EXPECT_EQ(step.num_calls(), 10u);
    EXPECT_GE(replayed[4] - replayed[3], 10);
    EXPECT_EQ(y.to_host().to_vector<float>(), std::vector<float>(4, 50));
    const CapturedFunction same = step;
    EXPECT_EQ(same.num_calls(), 10u);
  });
}

// Runs `step` with false (the first run), then with true.
std::string difference(const std::function<void(bool)>& step) {
  std::string text;
  in_job([&](Client& client) {
    bool changed = false;
    CapturedFunction captured = client.capture([&] { step(changed); });
    captured();
    changed = true;
    text = refusal([&] { captured(); });
    // The program goes on, and so does the function.
    changed = false;
    captured();
    EXPECT_EQ((full({2}, 1.0) + full({2}, 1.0)).to_host().to_vector<float>(), std::vector<float>(2, 2));
  });
  return text;
}

TEST(Capture, ADifferentOperatorIsNamedWithBothLines) {
  const std::string text = difference([](bool changed) {
    const Tensor a = full({4}, 1.0);
    if (changed) {
      (void)(a * a);
    } else {
      (void)(a + a);
    }
  });
  expect_parts(text, {"[capture] call 1 was add at ", "in the first run and is mul at ",
                      "capture_test.cc:", "a captured function must record the same calls every time"});
}

TEST(Capture, ADifferentShapeIsNamed) {
  const std::string text = difference([](bool changed) {
    const Tensor a = full({changed ? 5 : 4}, 1.0);
    (void)(a + a);
  });
  expect_parts(text, {"[capture] call 0, full at ", "4", "5"});
}

TEST(Capture, ADifferentDtypeOfAnInputIsNamed) {
  const std::string text = difference([](bool changed) {
    const Tensor a = full({4}, 1.0, {.dtype = changed ? kFloat64 : kFloat32});
    (void)(a + a);
  });
  expect_parts(text, {"[capture] call 0, full at ", "float32", "float64"});
}

TEST(Capture, ADifferentPlacementIsNamed) {
  const std::string text = difference([](bool changed) {
    TensorOptions options = whole_on(2);
    if (changed) options.placements = {Shard(0)};
    (void)full({4}, 1.0, options);
  });
  expect_parts(text, {"[capture] call 0, full at ", "output 0 was ", "then and is "});
}

TEST(Capture, DifferentDataflowIsNamed) {
  const std::string text = difference([](bool changed) {
    const Tensor a = full({4}, 1.0), b = full({4}, 2.0);
    const Tensor& second = changed ? a : b;
    (void)(a + second);
  });
  expect_parts(text, {"call 2, add at ", "its input 1 was value 1 of its own then and is value 0 of its own"});
}

TEST(Capture, AnotherCallIsNamed) {
  const std::string text = difference([](bool changed) {
    for (int i = 0; i < (changed ? 3 : 2); ++i) (void)full({4}, 1.0);
  });
  expect_parts(text, {"[capture] call 2 is full at ", "the first run had 2 calls"});
}

TEST(Capture, AnEarlyEndIsNamed) {
  const std::string text = difference([](bool changed) {
    for (int i = 0; i < (changed ? 1 : 2); ++i) (void)full({4}, 1.0);
  });
  expect_parts(text, {"recorded 1 calls, the first run had 2; the next one was full at "});
}

TEST(Capture, NumbersMayDiffer) {
  EXPECT_EQ(difference([](bool changed) { (void)full({4}, changed ? 2.0 : 1.0); }), "");
}

TEST(Capture, AnExceptionOfTheFunctionPassesThrough) {
  in_job([](Client& client) {
    bool fails = true;
    CapturedFunction step = client.capture([&] {
      (void)full({4}, 1.0);
      if (fails) throw std::runtime_error("enough");
    });
    EXPECT_THROW(step(), std::runtime_error);
    EXPECT_EQ(step.num_calls(), 0u);
    fails = false;
    step();
    EXPECT_EQ(step.num_calls(), 1u);
    step();
  });
}

TEST(Capture, OneInsideAnotherIsRefused) {
  in_job([](Client& client) {
    CapturedFunction inner = client.capture([] { (void)full({4}, 1.0); });
    CapturedFunction outer = client.capture([&] { inner(); });
    expect_parts(refusal([&] { outer(); }), {"[capture] a captured function is called by another one"});
    inner();
  });
}

}  // namespace
}  // namespace dtorch
