// Memory that a thread keeps for its next objects of a class.
#include "runtime/base/recycled.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/base/intrusive.h"

namespace dtorch {
namespace {

struct Small : RefCounted, Recycled<Small> {
  explicit Small(int number) : value(number) {}
  int value;
  void* padding = nullptr;
};
struct Larger : Small {
  using Small::Small;
  char more[100] = {};
};

#if !defined(__SANITIZE_ADDRESS__)
TEST(RecycledTest, TheNextObjectGetsTheMemoryOfTheLast) {
  auto* first = new Small(1);
  void* const place = first;
  delete first;
  IntrusivePtr<Small> second = make_intrusive<Small>(2);
  EXPECT_EQ(second.get(), place);
  EXPECT_EQ(second->value, 2);
}
#endif

TEST(RecycledTest, AnObjectOfADerivedClassHasMemoryOfItsOwn) {
  for (int i = 0; i < 10; ++i) {
    delete new Small(i);
    auto* larger = new Larger(i);
    larger->more[99] = 1;
    EXPECT_EQ(larger->value, i);
    delete larger;
  }
}

TEST(RecycledTest, ObjectsMayDieOnOtherThreadsAndThreadsMayEnd) {
  std::vector<Small*> made;
  std::thread([&] {
    for (int i = 0; i < 10000; ++i) made.push_back(new Small(i));
  }).join();
  std::thread([&] {
    for (size_t i = 0; i < made.size() / 2; ++i) delete made[i];
    for (int i = 0; i < 100; ++i) delete new Small(i);
  }).join();
  for (size_t i = made.size() / 2; i < made.size(); ++i) {
    EXPECT_EQ(made[i]->value, static_cast<int>(i));
    delete made[i];
  }
}

}  // namespace
}  // namespace dtorch
