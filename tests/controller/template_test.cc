// The controller's parts of templates, each by itself: names, loops, which calls may be sent, the store.
#include "runtime/controller/template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>

#include "runtime/base/options_table.h"
#include "runtime/controller/loop_finder.h"
#include "runtime/controller/template_store.h"
#include "runtime/graph/fused_runs.h"
#include "runtime/graph/transfer_buckets.h"
#include "tests/controller/fake_cluster.h"

namespace dtorch {
namespace {

// Writes stretches by hand; one spec an operator name.
class Stretches {
 public:
  Stretches() {
    const DeviceMesh mesh = init_device_mesh("cpu", {2});
    const TensorMeta* meta = intern_meta({kTestElements}, kFloat32, Layout::replicated(mesh));
    for (const char* name : {"test_make", "test_add", "test_effect", "test_move", "test_scale"}) {
      auto spec = std::make_unique<OperatorSpec>();
      spec->id = static_cast<uint32_t>(specs_.size());
      spec->op = test_operator(name).index;
      spec->outputs = {meta};
      // A reduction.
      if (name == std::string("test_move"))
        spec->inputs = {intern_meta({kTestElements}, kFloat32, Layout(mesh, {Partial()}, 1))};
      table.find_or_add(*spec, false);
      specs_.push_back(std::move(spec));
    }
  }
  Stretches& add(const std::string& name, std::vector<OperandId> inputs, std::vector<OperandId> outputs,
                 std::vector<OperandId> releases = {}, uint32_t line = 1) {
    RecordShape shape{.file = "user.cc",
                      .line = line,
                      .num_inputs = static_cast<uint16_t>(inputs.size()),
                      .num_outputs = static_cast<uint16_t>(outputs.size()),
                      .num_releases = static_cast<uint16_t>(releases.size())};
    for (const auto& spec : specs_) {
      if (name == OperatorRegistry::global().at(spec->op).name) shape.spec = spec.get();
    }
    inputs.insert(inputs.end(), outputs.begin(), outputs.end());
    inputs.insert(inputs.end(), releases.begin(), releases.end());
    log.append(shape, inputs, {});
    return *this;
  }
  NamedStretch named(size_t first = 0) { return RecordNamer().name(log, first); }
  TemplatePtr made(const std::vector<std::string>& passes = {"dead_operators", "early_reductions", "liveness"}) {
    return make_template(named(), table, make_passes(passes));
  }

  SpecTable table;
  RecordStretch log;

 private:
  std::vector<std::unique_ptr<OperatorSpec>> specs_;
};

TEST(RecordNamer, NamesDependOnDataflowAndNotOnSlots) {
  Stretches s;
  s.add("test_add", {7, 3}, {5}).add("test_add", {5, 3}, {6}, {7}).add("test_add", {6, 5}, {7}, {3});
  const NamedStretch first = s.named();
  EXPECT_EQ(first.num_live_ins, 2u);
  EXPECT_EQ(first.num_born, 3u);
  s.log.clear();
  s.add("test_add", {2, 4}, {9}).add("test_add", {9, 4}, {1}, {2}).add("test_add", {1, 9}, {4}, {4});
  const NamedStretch permuted = s.named();
  EXPECT_EQ(permuted.named.operands, first.named.operands);
  EXPECT_EQ(permuted.prefix_hashes, first.prefix_hashes);
  EXPECT_TRUE(permuted.same_start(first, 3));
  s.log.clear();
  s.add("test_add", {7, 3}, {5}).add("test_add", {5, 3}, {6}, {3}).add("test_add", {6, 5}, {7}, {7});
  const NamedStretch other = s.named();
  EXPECT_NE(other.named.operands, first.named.operands) << "released in another order";
  EXPECT_NE(other.prefix_hashes.back(), first.prefix_hashes.back());
  EXPECT_TRUE(other.same_start(first, 1));
  EXPECT_FALSE(other.same_start(first, 2));
}

TEST(RecordNamer, AStretchThatBeginsLaterHasTheValuesBeforeItAsLiveIns) {
  Stretches s;
  s.add("test_make", {}, {0}).add("test_add", {0, 0}, {1}, {}).add("test_add", {1, 0}, {2}, {});
  const NamedStretch rest = s.named(2);
  EXPECT_EQ(rest.num_live_ins, 2u);
  EXPECT_EQ(rest.named.operands, (std::vector<uint32_t>{live_in_name(0), live_in_name(1), born_name(0)}));
}

size_t feed(LoopFinder& finder, const std::vector<uint64_t>& records, std::vector<size_t>& found_at) {
  size_t stretch = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    const size_t found = finder.add(records[i]);
    if (found == 0) continue;
    found_at.push_back(i);
    stretch = found;
    finder.clear();
  }
  return stretch;
}

std::vector<uint64_t> repeat(std::vector<uint64_t> body, size_t times) {
  std::vector<uint64_t> records;
  for (size_t i = 0; i < times; ++i) records.insert(records.end(), body.begin(), body.end());
  return records;
}

TEST(LoopFinder, FindsALongLoopAfterItsSecondTurn) {
  std::vector<uint64_t> body;
  for (uint64_t i = 0; i < 1000; ++i) body.push_back(i * i % 7 + (i == 999 ? 100 : 0) + i / 100);
  LoopFinder finder(8192);
  std::vector<size_t> found_at;
  EXPECT_EQ(feed(finder, repeat(body, 2), found_at), 1000u);
  EXPECT_EQ(found_at.size(), 1u);
}

TEST(LoopFinder, TakesShortLoopsTogether) {
  LoopFinder finder(8192);
  std::vector<size_t> found_at;
  EXPECT_EQ(feed(finder, repeat({5}, 1000), found_at), LoopFinder::kMinStretch);
  EXPECT_EQ(found_at.size(), 3u);
  finder.clear();
  EXPECT_EQ(feed(finder, repeat({1, 2, 3}, 400), found_at), 258u);
}

TEST(LoopFinder, WhatDoesNotRepeatIsNoLoop) {
  LoopFinder finder(8192);
  std::vector<size_t> found_at;
  std::vector<uint64_t> records;
  for (uint64_t i = 0; i < 8000; ++i) records.push_back((i * i * 31 + i) % 1009 % 5 + i / 200);
  EXPECT_EQ(feed(finder, records, found_at), 0u);
}

TEST(Template, ACallWaitsForTheReleaseThatItReliesOn) {
  Stretches s;
  s.add("test_make", {}, {0});             // record 0
  s.add("test_add", {0, 0}, {1});          // 1: the last use of 0
  s.add("test_add", {1, 1}, {2});          // 2
  s.add("test_add", {2, 1}, {3}, {0});     // 3: releases 0
  s.add("test_add", {3, 3}, {4}, {1, 2});  // 4
  const TemplatePtr made = s.made();
  ASSERT_TRUE(made);
  EXPECT_EQ(made->body->num_calls(), 5u);
  EXPECT_EQ(made->records_needed, (std::vector<uint32_t>{1, 4, 4, 5, 5}));
  EXPECT_TRUE((made->body->calls().operands[2] & kLastUse) != 0);
}

TEST(Template, AReleaseFarFromTheLastUseHoldsNothingBack) {
  Stretches s;
  s.add("test_make", {}, {0}).add("test_add", {0, 0}, {1});
  for (OperandId i = 2; i < 100; ++i) s.add("test_add", {i - 1, i - 1}, {i});
  s.add("test_add", {1, 1}, {100}, {0});
  const TemplatePtr made = s.made();
  ASSERT_TRUE(made);
  EXPECT_EQ(made->records_needed[1], 2u);
  EXPECT_EQ(made->body->num_calls(), 102u) << "the release stays a call of its own";
}

TEST(Template, WhereAnOperatorWasDroppedCallsGoAllOrNone) {
  Stretches s;
  s.add("test_make", {}, {0});          // 0
  s.add("test_add", {0, 0}, {1});       // 1: dead
  s.add("test_add", {0, 0}, {2});       // 2
  s.add("test_add", {2, 2}, {3}, {1});  // 3: releases it
  s.add("test_add", {3, 3}, {4}, {});   // 4
  const TemplatePtr made = s.made();
  ASSERT_TRUE(made);
  ASSERT_EQ(made->body->num_calls(), 4u);
  EXPECT_EQ(made->records_needed, (std::vector<uint32_t>{1, 4, 4, 5}));
}

// Values of slots, told apart by how they were computed. An operator reads only what is there.
using Values = std::map<OperandId, std::string>;

void run_operator(Values& values, const std::string& name, std::span<const OperandId> inputs,
                  std::span<const OperandId> outputs) {
  std::string value = name;
  for (OperandId input : inputs) {
    const auto at = values.find(input & kMaxOperand);
    ASSERT_NE(at, values.end()) << "operand " << (input & kMaxOperand) << " has no value";
    value += "(" + at->second + ")";
  }
  for (OperandId output : outputs) values[output] = value;
}

void run_record(Values& values, const RecordStretch& log, size_t i) {
  const RecordStretch::Record& record = log.records[i];
  for (OperandId slot : log.releases(record)) values.erase(slot);
  if (record.shape.spec == nullptr) return;
  run_operator(values, std::to_string(record.shape.spec->id), log.inputs(record), log.outputs(record));
}

// What a node has in its slots after the first `sent` calls of an instance that ends there.
Values after_calls(const Template& t, const RecordStretch& log, const Values& before, uint32_t sent) {
  std::map<uint32_t, OperandId> slot_of_name;
  for (size_t i = 0; i < log.size(); ++i) {
    const size_t first = log.records[i].first_operand;
    for (size_t k = 0; k < log.records[i].shape.num_operands(); ++k)
      slot_of_name[t.records.named.operands[first + k]] = log.operands[first + k];
  }
  const LogicalGraph& calls = t.body->calls();
  Values named, slots = before;
  for (OperandId name = 0; name < t.body->num_live_ins(); ++name) {
    const OperandId slot = slot_of_name.at(t.record_names[name]);
    named[name] = before.at(slot);
    slots.erase(slot);
  }
  for (uint32_t c = 0; c < sent; ++c) {
    const Operator& op = calls.operators[c];
    if (op.spec == kAliasSpec) {
      for (size_t k = 0; k < op.num_inputs; ++k)
        named[calls.outputs(op)[k]] = named.at(calls.inputs(op)[k] & kMaxOperand);
    } else if (op.spec != kReleaseSpec) {
      run_operator(named, std::to_string(op.spec), calls.inputs(op), calls.outputs(op));
    }
    for (OperandId input : calls.inputs(op)) {
      if (op.spec == kReleaseSpec || (input & kLastUse) != 0) named.erase(input & kMaxOperand);
    }
  }
  for (const auto& [name, value] : named) slots[slot_of_name.at(t.record_names[name])] = value;
  return slots;
}

// Records as a client writes them: slots are taken again once their release is on its way.
void add_random_records(Stretches& s, std::mt19937& random, std::vector<OperandId> live, size_t count) {
  std::vector<OperandId> free, pending;
  OperandId next = static_cast<OperandId>(live.size());
  const auto below = [&](size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random); };
  for (size_t i = 0; i < count; ++i) {
    const OperandId a = live[below(live.size())], b = live[below(live.size())];
    const OperandId out = free.empty() ? next++ : free.back();
    if (!free.empty()) free.pop_back();
    if (!pending.empty() && below(4) == 0) {
      s.add("", {}, {}, pending);
      free.insert(free.end(), pending.begin(), pending.end());
      pending.clear();
    }
    if (below(8) == 0) {
      s.add("test_make", {}, {out}, pending);
    } else if (below(4) == 0) {
      s.add("test_move", {a}, {out}, pending);
    } else if (below(2) == 0) {
      s.add("test_scale", {a}, {out}, pending);  // may be fused with its like
    } else {
      s.add("test_add", {a, b}, {out}, pending);
    }
    free.insert(free.end(), pending.begin(), pending.end());
    pending.clear();
    live.push_back(out);
    while (live.size() > 2 && below(3) != 0) {
      const size_t victim = below(live.size());
      pending.push_back(live[victim]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    }
  }
}

TEST(Template, AnInstanceThatBreaksLeavesWhatItsRecordsWould) {
  std::mt19937 random(20);
  int64_t covered_more = 0, num_joined = 0;
  const std::vector<std::string> all(std::begin(kPassNames), std::end(kPassNames));
  for (int program = 0; program < 800; ++program) {
    Stretches s;
    add_random_records(s, random, {0, 1, 2}, 24);
    const TemplatePtr made = program % 2 == 0 ? s.made() : s.made(all);
    if (!made) continue;
    for (const Operator& op : made->body->calls().operators)
      num_joined += is_fused_with_next(op) || is_sent_with_next(op) ? 1 : 0;
    Values before = {{0, "a"}, {1, "b"}, {2, "c"}};
    Values expected = before;
    for (uint32_t matched = 0; matched <= s.log.size(); ++matched) {
      if (matched > 0) run_record(expected, s.log, matched - 1);
      const auto sendable = [&] {
        const auto& needed = made->records_needed;
        return static_cast<uint32_t>(std::upper_bound(needed.begin(), needed.end(), matched) - needed.begin());
      };
      ASSERT_TRUE(std::is_sorted(made->records_needed.begin(), made->records_needed.end()));
      // What was sent may have been sendable for a while.
      for (uint32_t sent = 1; sent <= sendable(); ++sent) {
        if (sent < sendable() && made->records_needed[sent] == made->records_needed[sent - 1]) continue;
        const uint32_t last = made->record_of_call[sent - 1];
        const bool shared = sent < made->record_of_call.size() && made->record_of_call[sent] == last;
        const uint32_t first = std::max(shared ? last : last + 1, made->records_covered[sent]);
        ASSERT_LE(first, matched);
        covered_more += first > last + 1;
        Values values = after_calls(*made, s.log, before, sent);
        for (uint32_t i = first; i < matched; ++i) run_record(values, s.log, i);
        ASSERT_FALSE(HasFatalFailure()) << "program " << program << ", " << sent << " calls of " << matched
                                        << " records";
        for (const auto& [slot, value] : expected) {
          ASSERT_EQ(values[slot], value) << "program " << program << ", " << sent << " calls of " << matched
                                         << " records";
        }
      }
    }
  }
  EXPECT_GT(covered_more, 0) << "nothing was dropped or shared";
  EXPECT_GT(num_joined, 0);
}

TEST(Template, OnlyReleasesMakeNone) {
  Stretches s;
  s.add("", {}, {}, {1, 2});
  EXPECT_FALSE(s.made());
}

TEST(TemplateStore, TheOneThatWasNotUsedForLongestMakesRoom) {
  TemplateStore store(2, 100);
  Stretches s;
  s.add("test_make", {}, {0}, {}, 1);
  const auto add = [&](uint32_t line, uint32_t count) {
    s.log.clear();
    for (uint32_t i = 0; i < count; ++i) s.add("test_make", {}, {i}, {}, line);
    const TemplatePtr made = s.made();
    EXPECT_TRUE(store.add(made));
    return made;
  };
  const TemplatePtr a = add(1, 10);
  const TemplatePtr b = add(2, 10);
  store.use(*a);
  const TemplatePtr c = add(3, 10);
  EXPECT_EQ(store.size(), 2u);
  EXPECT_EQ(store.find(a->records), a);
  EXPECT_EQ(store.find(b->records), nullptr);
  EXPECT_EQ(c->id, b->id);
  add(4, 95);
  EXPECT_EQ(store.size(), 1u) << "100 records at most";
  EXPECT_EQ(store.num_records(), 95u);
  s.log.clear();
  for (uint32_t i = 0; i < 101; ++i) s.add("test_make", {}, {i}, {}, 9);
  EXPECT_FALSE(store.add(s.made()));
}

TEST(TemplateStore, KnowsWhereTwoPart) {
  TemplateStore store;
  Stretches s;
  s.add("test_make", {}, {0}).add("test_add", {0, 0}, {1}).add("test_add", {1, 0}, {2});
  const TemplatePtr a = s.made();
  ASSERT_TRUE(store.add(a));
  EXPECT_EQ(a->shared_start, 0u);
  s.log.clear();
  s.add("test_make", {}, {0}).add("test_add", {0, 0}, {1}).add("test_add", {0, 0}, {2});
  const TemplatePtr b = s.made();
  ASSERT_TRUE(store.add(b));
  EXPECT_EQ(a->shared_start, 2u);
  EXPECT_EQ(b->shared_start, 2u);
  EXPECT_EQ(store.candidates(a.get(), 2, b->records.named.records[2].shape), std::vector<TemplatePtr>{b});
  EXPECT_EQ(store.candidates(nullptr, 0, a->records.named.records[0].shape).size(), 2u);
}

TEST(TemplateStore, RemembersABoundedNumberOfStretches) {
  using Appearance = TemplateStore::Appearance;
  TemplateStore store;
  NamedStretch stretch;
  const auto note = [&](uint64_t hash) {
    stretch.prefix_hashes = {hash};
    return store.note(stretch);
  };
  EXPECT_EQ(note(1), Appearance::kFirst);
  EXPECT_EQ(note(1), Appearance::kAgain);
  store.refuse(1);
  EXPECT_EQ(note(1), Appearance::kRefused);
  for (uint64_t i = 0; i < TemplateStore::kMaxSeen; ++i) EXPECT_EQ(note(10 + i), Appearance::kFirst);
  EXPECT_EQ(note(10 + TemplateStore::kMaxSeen - 1), Appearance::kAgain);
  EXPECT_EQ(note(1), Appearance::kFirst) << "forgotten";
}

TEST(TemplateStore, KeepsEarlyOnlyWhileThatProvesRight) {
  TemplateStore store;
  Template unused, used;
  for (int i = 0; i < 3 * TemplateStore::kMaxEarly; ++i) {
    ASSERT_TRUE(store.may_keep_early());
    store.kept_early(used);
    store.use(used);
    store.use(used);
  }
  for (int i = 0; i < TemplateStore::kMaxEarly; ++i) {
    EXPECT_TRUE(store.may_keep_early());
    store.kept_early(unused);
  }
  EXPECT_FALSE(store.may_keep_early());
}

}  // namespace
}  // namespace dtorch
