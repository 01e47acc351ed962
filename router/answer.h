// One answer on its way from the thread that writes it to the door that sends it: a log of token
// ids, text and log-probabilities with one writer and one reader. The writer's end is a move-only
// AnswerWriter that travels with the request through its stages, so that only one stage at a time
// can write; the reader's end is the Answer itself, held by its door. Unread bytes are all that an
// answer keeps, and they are counted on the request's permit. The permit comes back when both ends
// have let go. Decoding never waits for a reader.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "router/admission.h"
#include "router/request.h"
#include "router/waker.h"

namespace weft::router {

class PromptScores;

// What the client of a resumed request has had of the answer.
struct ResumedPart {
  // Tokens, and the last one if there was any.
  uint32_t tokens = 0;
  TokenId last = 0;
  // The text that came with them.
  std::string text;
  // Characters of the tokens' own texts, each by itself.
  uint64_t token_characters = 0;
  // The rest is what would have come.
  bool exact = false;
};

// The request was planned for its first step: what is known before the first token.
struct AnswerHead {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint64_t seed = 0;
  // What the tokens depend on beside the request (engine/fingerprint.h).
  std::string fingerprint;
  std::optional<ResumedPart> resumed;
  // Of an answer whose parts are told apart: the prompt leaves it inside of reasoning.
  bool reasoning_open = false;
  // Null unless they were asked for; of several choices of a prompt the first has them for all.
  std::shared_ptr<const PromptScores> prompt_scores = nullptr;
};

// One of the most likely tokens at a position.
struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0.0f;
  // The token's own bytes, which may be a part of a character; they lie in the TokenTable.
  absl::string_view bytes;
};

// One token of the answer, with the text that became certain with it.
struct AnswerToken {
  TokenId id = 0;
  // Whole UTF-8 characters; empty while a character or a possible stop string is incomplete.
  std::string text;
  // The token's own bytes, which may be a part of a character; they lie in the TokenTable.
  absl::string_view bytes;
  bool special = false;
  bool has_logprob = false;
  float logprob = 0.0f;
  std::vector<TokenLogprob> top;
};

// The last word about a request (invariant end.once).
struct AnswerEnd {
  // OK: the answer is complete. Otherwise the request failed or was cancelled; user errors are
  // INVALID_ARGUMENT with a field (router/errors.h).
  absl::Status status;
  FinishReason reason = FinishReason::kLength;
  // Text that was held back until the end.
  std::string text;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  std::string stop_sequence;
  // With FinishReason::kStopToken.
  TokenId stop_token = kNoToken;
  uint64_t seed = 0;
  // Microseconds: until its text was read and its fields found good, from there to its first step,
  // and from there to the end.
  int64_t validation_us = 0;
  int64_t queue_us = 0;
  int64_t inference_us = 0;
};

// What each token id stands for. Immutable; outlives all answers.
class TokenTable {
 public:
  virtual ~TokenTable() = default;
  virtual absl::string_view Bytes(TokenId id) const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;
};

// Whoever reads an answer, as its writer sees it.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // There is something to read. Called by the writing thread; must not block, and must not read.
  // Returns who is to be woken once the thread's batch is done, or null.
  virtual Waker* OnNews() = 0;
};

// "length", "eos_token", "stop_sequence" or "stop_token", as the access log has it.
absl::string_view FinishReasonName(FinishReason reason);

// "exact" or "inexact".
absl::string_view ResumeMatchName(bool exact);

// The terminal error of a request that was cancelled for `reason`.
absl::Status CancelStatus(CancelReason reason);

// What is noted of a request whose trace is exported (observe/request_trace.h).
struct RequestTrace;

// Who wants to hear that an answer was let go by both ends.
class Answer;

class AnswerRegistry {
 public:
  virtual ~AnswerRegistry() = default;
  virtual void OnAnswerGone(const Answer& answer) = 0;
  // The sequence of a request that was cancelled need not run on.
  virtual void OnCancelled(SequenceId sequence) = 0;
};

class Answer {
 public:
  // `tokens` and `registry` must outlive the answer; `registry` may be null.
  Answer(SequenceId sequence, std::string id, std::string correlation_id, Admission::Permit permit,
         const TokenTable* tokens, AnswerRegistry* registry);
  ~Answer();

  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  const TenantRef& tenant() const { return tenant_; }
  // weft's own name of the request, never used twice.
  const std::string& id() const { return id_; }
  const std::string& correlation_id() const { return correlation_id_; }
  // What the client knows the request by.
  const std::string& name() const { return correlation_id_.empty() ? id_ : correlation_id_; }
  SequenceId sequence() const { return sequence_; }
  // Null in tests without texts.
  const TokenTable* token_table() const { return tokens_; }
  // Null for most. What it holds is noted by whoever owns the request, and read once the answer is
  // gone; its ids are for all.
  const std::shared_ptr<RequestTrace>& trace() const { return trace_; }
  // Before anybody else has the answer.
  void SetTrace(std::shared_ptr<RequestTrace> trace) { trace_ = std::move(trace); }

  // -- Cancelling: any thread -------------------------------------------------------------------
  // The first cause counts; true for it. The end follows through the log, unless the answer is
  // complete before.
  bool Cancel(CancelReason reason);
  CancelReason cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Becomes true with the first cause; for work that looks at it now and then.
  const std::atomic<bool>& unwanted() const { return unwanted_; }
  bool ended() const;

  // -- Reading: one thread at a time ------------------------------------------------------------
  // Takes what was written since the last call; true when anything is there to be read.
  bool Fetch();
  // Null until it is known; the end only after all tokens were read.
  const AnswerHead* head() const { return head_.has_value() ? &*head_ : nullptr; }
  const AnswerEnd* end() const {
    return end_.has_value() && at_ == reading_.size() ? &*end_ : nullptr;
  }
  // The next token, into storage that may be used again. False when no more was fetched.
  bool Next(AnswerToken* token);
  // How it ended, read or not; null without an end. For OnAnswerGone, when nobody else has it.
  const AnswerEnd* LastWord() const;
  // Nobody will read on: what is unread is dropped, and what is still written is too.
  void Close();

 private:
  friend class AnswerWriter;

  const SequenceId sequence_;
  const std::string id_;
  const std::string correlation_id_;
  const TenantRef tenant_;
  std::shared_ptr<RequestTrace> trace_;
  const TokenTable* const tokens_;
  AnswerRegistry* const registry_;
  std::atomic<CancelReason> cancelled_{CancelReason::kNone};
  std::atomic<bool> unwanted_{false};

  // -- The reader's
  std::string reading_;
  size_t at_ = 0;
  std::optional<AnswerHead> head_;
  std::optional<AnswerEnd> end_;

  mutable absl::Mutex mutex_;
  std::string incoming_ ABSL_GUARDED_BY(mutex_);
  std::optional<AnswerHead> new_head_ ABSL_GUARDED_BY(mutex_);
  std::optional<AnswerEnd> new_end_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;

  // Its writer's while there is one; goes with the answer.
  Admission::Permit permit_;
};

// The right to write an answer. Belongs to one stage at a time; one that goes away without an end
// ends its answer with INTERNAL, so that no client waits for ever (invariant end.once).
class AnswerWriter {
 public:
  AnswerWriter() = default;
  AnswerWriter(std::shared_ptr<Answer> answer, std::shared_ptr<AnswerSink> sink)
      : answer_(std::move(answer)), sink_(std::move(sink)) {}
  AnswerWriter(AnswerWriter&&) = default;
  AnswerWriter& operator=(AnswerWriter&&) = default;
  ~AnswerWriter();

  Answer& answer() const { return *answer_; }
  const std::shared_ptr<Answer>& shared_answer() const { return answer_; }
  Admission::Permit& permit() const { return answer_->permit_; }

  // What follows is seen by the reader with the next Publish. `text` may be empty.
  void Head(AnswerHead head);
  void Token(TokenId id, absl::string_view text);
  void Token(TokenId id, absl::string_view text, float logprob,
             absl::Span<const std::pair<TokenId, float>> top);
  void End(AnswerEnd end);

  bool ended() const { return ended_; }
  // Hands over what was written; returns who is to be woken, or null. After the end it lets go of
  // the answer and gives back the sink, in which the waker may live.
  Waker* Publish(std::vector<std::shared_ptr<AnswerSink>>* retired);
  // End, Publish and wake in one: for a request that ends by itself.
  void Fail(const absl::Status& status);
  // Lets go without a word: the request was never taken, and its door hears so otherwise.
  void Abandon();

 private:
  void Append(TokenId id, absl::string_view text, bool has_logprob, float logprob,
              absl::Span<const std::pair<TokenId, float>> top);

  std::shared_ptr<Answer> answer_;
  std::shared_ptr<AnswerSink> sink_;
  std::string pending_;
  uint32_t pending_tokens_ = 0;
  std::optional<AnswerHead> head_;
  std::optional<AnswerEnd> end_;
  bool ended_ = false;
};

}  // namespace weft::router
