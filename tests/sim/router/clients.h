// A client of the simulated router, as a door would serve it: hands a request in, reads the answer
// fast, slowly or not to its end, and compares every token, text and last word with what the model
// says of the prompt (state.log, end.once, input.first). Owned by World, one for each request; one
// thread.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "router/answer.h"
#include "router/serving.h"
#include "router/waker.h"
#include "tests/sim/router/script.h"
#include "tests/sim/router/virtual_time.h"
#include "tests/sim/router/watch.h"
#include "tests/support/mock_model.h"

namespace weft::router::sim {

class Client : public AnswerSink, public Waker, public Happening {
 public:
  // `action` is a request. All must outlive this.
  Client(const Action& action, const Settings& settings, const testing::MockVocabulary& vocabulary,
         VirtualTime* time, Watch* watch);

  // -- The request
  // Hands it in on behalf of `tenant`. `self` is this.
  void Ask(Serving* serving, const TenantRef& tenant, const std::shared_ptr<Client>& self);
  const Action& action() const { return action_; }
  const std::string& name() const { return name_; }
  SequenceId sequence() const { return sequence_; }
  const std::vector<TokenId>& prompt() const { return prompt_; }
  // Tokens of the answer that it has had from elsewhere.
  const std::vector<TokenId>& resumed() const { return resumed_; }
  GenerateInput MakeInput() const;
  // Not any token may be the next one.
  bool constrained() const { return rule_ != nullptr; }
  // A shard begins it at `position`: what stands before was in the prefix cache. False when it is
  // not for the first time.
  bool SetStarted(Position position) {
    if (started_) return false;
    started_ = true;
    cached_ = position;
    return true;
  }

  // -- How it is
  // It was taken: an answer exists.
  bool accepted() const { return accepted_; }
  bool ended() const { return ended_; }
  // Neither end of its answer is held any more.
  bool gone() const { return answer_ == nullptr && weak_.expired(); }
  // It wants no more: it left, or called the request off. When; 0 = not.
  int64_t unwanted_us() const { return unwanted_us_; }
  void SetUnwanted(int64_t now_us) {
    if (unwanted_us_ == 0) unwanted_us_ = now_us;
  }
  // One of its rows was said not to be finite.
  void SetInvalidRow() { invalid_row_ = true; }
  // Rank 0 said a token that the others did not: it may have been given out before they answered,
  // and is then a part of the log, as is what came after it.
  void SetFalseToken() { false_token_ = true; }
  uint64_t groups_lost_before() const { return groups_lost_before_; }
  int64_t asked_us() const { return asked_us_; }
  // The client hangs up.
  void Leave();
  const absl::Status& status() const { return status_; }
  bool invalid_row() const { return invalid_row_; }

  // -- AnswerSink, Waker, Happening
  Waker* OnNews() override;
  void Wake() override;
  void OnTime(uint32_t kind, uint64_t value) override;

 private:
  enum Event : uint32_t { kRead, kLeave };

  void MakePrompt();
  void MakeConstraint();
  // What a stream elsewhere would have given so far, up to its end.
  void MakeResumed();
  void CheckResumed(const AnswerHead& head);
  void Read();
  void TakeHead(const AnswerHead& head);
  // Each token of the prompt is scored once, behind those before it.
  void CheckScores(const PromptScores* scores);
  void TakeToken(const AnswerToken& token);
  void TakeEnd(const AnswerEnd& end);
  // What the answer's text must be so far; looks for stop strings in it.
  void AddText(TokenId id);
  // A token that it has now.
  void Have(TokenId id);
  void CheckText(const AnswerEnd& end);
  [[noreturn]] void Wrong(absl::string_view invariant, const std::string& what) const;

  const Action action_;
  const Settings& settings_;
  const testing::MockVocabulary& vocabulary_;
  VirtualTime* const time_;
  Watch* const watch_;
  const std::string name_;
  std::vector<TokenId> prompt_;
  std::string prompt_text_;
  std::vector<std::string> stops_;
  std::vector<TokenId> allowed_ids_;
  std::vector<std::string> bad_words_;
  testing::MockRule rule_;
  std::vector<TokenId> resumed_;

  std::shared_ptr<Answer> answer_;
  std::weak_ptr<Answer> weak_;
  SequenceId sequence_ = 0;
  bool accepted_ = false;
  bool reading_ = false;
  bool has_head_ = false;
  bool ended_ = false;
  bool left_ = false;
  bool invalid_row_ = false;
  bool false_token_ = false;
  bool started_ = false;
  Position cached_ = 0;
  int64_t asked_us_ = 0;
  int64_t unwanted_us_ = 0;
  uint64_t groups_lost_before_ = 0;
  uint64_t seed_ = 0;
  size_t taken_ = 0;
  // With a rule: the answer so far.
  std::vector<TokenId> had_;
  TokenId last_ = kNoToken;
  uint64_t chain_ = 0;
  // As the router gave it, and the bytes of the tokens.
  std::string text_;
  std::string bytes_;
  // The stop string that ended the answer, and where it begins; npos without one.
  size_t stop_ = std::string::npos;
  size_t stop_begin_ = std::string::npos;
  absl::Status status_;
};

}  // namespace weft::router::sim
