#include "runtime/controller/inspection.h"

#include <string>
#include <utility>

#include "runtime/base/event_log.h"

namespace dtorch {

Inspection::Answers Inspection::ask(Aspect aspect, std::chrono::nanoseconds wait) {
  Question question{Answers(static_cast<size_t>(num_nodes_)), 0, trace_clock_ns()};
  std::unique_lock lock(mutex_);
  if (closed_) return std::move(question.answers);
  std::vector<int32_t> asked;
  for (int32_t node = 0; node < num_nodes_; ++node) {
    if (!lost_[static_cast<size_t>(node)]) asked.push_back(node);
  }
  question.missing = static_cast<int32_t>(asked.size());
  const uint32_t number = ++number_;
  open_[number] = &question;
  lock.unlock();
  const Message message = encode(Inspect{.number = number, .aspect = aspect});
  // Not down the tree: a node that hangs mustn't hide those that it passes messages on to.
  for (int32_t node : asked) control_.send(node, message);
  lock.lock();
  changed_.wait_for(lock, wait, [&] { return question.missing == 0 || closed_; });
  open_.erase(number);
  return std::move(question.answers);
}

void Inspection::set_lost(int32_t node) {
  std::lock_guard lock(mutex_);
  const auto n = static_cast<size_t>(node);
  if (lost_.at(n)) return;
  lost_[n] = true;
  for (auto& [number, question] : open_) {
    if (!question->answers[n]) --question->missing;
  }
  changed_.notify_all();
}

bool Inspection::is_lost(int32_t node) const {
  std::lock_guard lock(mutex_);
  return lost_.at(static_cast<size_t>(node));
}

void Inspection::on_answer(int32_t node, Answer answer) {
  if (answer.node != node) {
    throw RuntimeFault("it answers for node " + std::to_string(answer.node));
  }
  std::lock_guard lock(mutex_);
  const auto n = static_cast<size_t>(node);
  const auto found = open_.find(answer.number);
  if (found == open_.end() || n >= found->second->answers.size()) return;
  Question& question = *found->second;
  if (question.answers[n] || lost_[n]) return;
  answer.asked_ns = question.asked_ns;
  answer.received_ns = trace_clock_ns();
  question.answers[n] = std::move(answer);
  if (--question.missing == 0) changed_.notify_all();
}

void Inspection::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace dtorch
