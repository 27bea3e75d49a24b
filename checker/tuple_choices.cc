#include "checker/tuple_choices.h"

#include <algorithm>

#include "checker/sample_values.h"

namespace dtorch::checker {
namespace {

bool inputs_agree(const Choice& choice) {
  return std::ranges::all_of(choice, [&](const Placements& p) { return p[0] == choice[0][0]; });
}

Choice both(const Choice& first, const Choice& second) {
  Choice choice;
  for (size_t i = 0; i < first.size(); ++i) choice.push_back({first[i][0], second[i][0]});
  return choice;
}

constexpr int64_t kMostEnumerated = 1000000;

}  // namespace

TupleChoices::TupleChoices(const Sample& sample, const CheckOptions& options)
    : options_(options), random_(options.seed) {
  for (const SampleInput& input : sample.inputs) {
    choices_.push_back(axis_choices(input, options.every_reduction));
    total_ *= static_cast<int64_t>(choices_.back().size());
  }
}

Choice TupleChoices::number(int64_t number) const {
  Choice choice;
  for (const std::vector<Placement>& own : choices_) {
    const int64_t count = static_cast<int64_t>(own.size());
    choice.push_back({own[static_cast<size_t>(number % count)]});
    number /= count;
  }
  return choice;
}

std::vector<Choice> TupleChoices::one_axis() {
  std::vector<Choice> all;
  const auto kept_of = static_cast<uint64_t>(options_.max_tuples), total = static_cast<uint64_t>(total_);
  // Very many inputs: to look at every number would take longer than to run the calls.
  if (total_ > kMostEnumerated) {
    for (uint64_t i = 0; i < kept_of; ++i) all.push_back(number(static_cast<int64_t>(random_() % total)));
    all.push_back(number(0));
    return all;
  }
  for (int64_t i = 0; i < total_; ++i) {
    Choice choice = number(i);
    const bool drawn = total_ <= options_.max_tuples || random_() % total < kept_of;
    if (drawn || inputs_agree(choice)) all.push_back(std::move(choice));
  }
  return all;
}

std::vector<Choice> TupleChoices::pairs_of(const std::vector<Choice>& accepted) {
  std::vector<Choice> pairs;
  const uint64_t total = accepted.size() * accepted.size(), limit = static_cast<uint64_t>(options_.max_pairs);
  for (const Choice& first : accepted) {
    for (const Choice& second : accepted) {
      if (total <= limit || random_() % total < limit) pairs.push_back(both(first, second));
    }
  }
  return pairs;
}

std::vector<Choice> TupleChoices::other_pairs() {
  std::vector<Choice> pairs;
  const int64_t possible = total_ > kMostEnumerated ? options_.max_others : total_ * total_;
  for (int64_t i = 0; i < std::min(options_.max_others, possible); ++i) {
    const auto any = [&] { return number(static_cast<int64_t>(random_() % static_cast<uint64_t>(total_))); };
    pairs.push_back(both(any(), any()));
  }
  return pairs;
}

Choice TupleChoices::wide(int64_t num_axes, const std::vector<Choice>& accepted) {
  Choice choice(choices_.size());
  const bool legal_ones = !accepted.empty() && draw(3) != 0;
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    const Choice one = legal_ones ? accepted[static_cast<size_t>(draw(static_cast<int64_t>(accepted.size())))]
                                  : number(draw(std::min(total_, kMostEnumerated)));
    for (size_t i = 0; i < choice.size(); ++i) choice[i].push_back(one[i][0]);
  }
  return choice;
}

}  // namespace dtorch::checker
