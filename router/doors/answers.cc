#include "router/doors/answers.h"

namespace weft::router {

bool Answers::Fetch() {
  bool any = false;
  for (const auto& answer : answers_) any |= answer->Fetch();
  at_ = 0;
  return any;
}

void Answers::Close() {
  for (const auto& answer : answers_) answer->Close();
}

void Answers::Cancel(CancelReason reason) {
  for (const auto& answer : answers_) answer->Cancel(reason);
}

std::optional<AnswerEvent> Answers::Next() {
  for (; at_ < answers_.size(); ++at_) {
    Answer& answer = *answers_[at_];
    State& state = state_[at_];
    if (state.end_given) continue;
    AnswerEvent event;
    event.index = static_cast<uint32_t>(at_);
    if (answer.Next(&token_)) event.token = &token_;
    const AnswerEnd* const end = answer.end();
    // A failure has no token beside it.
    if (end != nullptr && (end->status.ok() || event.token == nullptr)) event.end = end;
    if (answer.head() != nullptr && !state.head_given && (event.token != nullptr || event.end)) {
      event.head = answer.head();
      state.head_given = true;
    }
    if (event.end != nullptr) {
      state.end_given = true;
      ++ended_;
    }
    if (event.token != nullptr || event.end != nullptr) return event;
  }
  return std::nullopt;
}

bool Answers::complete() const {
  for (const auto& answer : answers_) {
    if (answer->end() == nullptr) return false;
  }
  return true;
}

const AnswerHead* Answers::head() const {
  for (const auto& answer : answers_) {
    if (answer->head() != nullptr) return answer->head();
  }
  return nullptr;
}

void Answers::Describe(AccessRecord* record) const {
  DescribeAnswer(first(), record);
  for (size_t i = 1; i < answers_.size(); ++i) {
    const AnswerEnd* const end = answers_[i]->end();
    if (end != nullptr) record->output_tokens += end->output_tokens;
  }
}

}  // namespace weft::router
