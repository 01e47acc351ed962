// The answers of one request (choices of one prompt, or of several), read as one. Owned by whoever
// reads them, one thread at a time; Cancel may be called by any thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "router/answer.h"
#include "router/doors/access_log.h"

namespace weft::router {

// What comes next of one of them. Pointers hold until the next call of Answers::Next.
struct AnswerEvent {
  // Which answer, in the order in which they were asked for.
  uint32_t index = 0;
  // With the first event of an answer, when it is known.
  const AnswerHead* head = nullptr;
  // A token, or null.
  const AnswerToken* token = nullptr;
  // The end: of a complete answer beside its last token or alone, of one that failed alone.
  const AnswerEnd* end = nullptr;
};

class Answers {
 public:
  // At least one.
  explicit Answers(std::vector<std::shared_ptr<Answer>> answers)
      : answers_(std::move(answers)), state_(answers_.size()) {}

  // As the same functions of each answer.
  bool Fetch();
  void Close();
  void Cancel(CancelReason reason);

  // Empty when nothing more was fetched, or all ends have been given.
  std::optional<AnswerEvent> Next();
  // Every answer's end was given.
  bool ended() const { return ended_ == answers_.size(); }
  // All of them have one, read or not.
  bool complete() const;
  // The first head that is known.
  const AnswerHead* head() const;
  const Answer& first() const { return *answers_.front(); }

  // As DescribeAnswer of the first, with the tokens of all.
  void Describe(AccessRecord* record) const;

 private:
  struct State {
    bool head_given = false;
    bool end_given = false;
  };

  std::vector<std::shared_ptr<Answer>> answers_;
  std::vector<State> state_;
  size_t at_ = 0;
  size_t ended_ = 0;
  AnswerToken token_;
};

}  // namespace weft::router
