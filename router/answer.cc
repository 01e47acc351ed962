#include "router/answer.h"

#include <cstring>

#include "absl/time/time.h"
#include "common/check.h"
#include "router/errors.h"
#include "router/prompt_scores.h"

namespace weft::router {
namespace {

// A token in the log: id; length of its text, whether its log-probability follows and how many
// alternatives do, packed into one word; then log-probability, alternatives as (id,
// log-probability), and the text.
constexpr uint32_t kTopBits = 5;
constexpr uint32_t kTopMask = (1u << kTopBits) - 1;
constexpr uint32_t kLogprobBit = 1u << kTopBits;
constexpr uint32_t kLengthShift = kTopBits + 1;

// A buffer that grew for one burst does not keep its memory.
constexpr size_t kKeptBytesMax = 16u << 10;

template <typename T>
void AppendRaw(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T TakeRaw(const std::string& from, size_t* at) {
  T value;
  std::memcpy(&value, from.data() + *at, sizeof(value));
  *at += sizeof(value);
  return value;
}

}  // namespace

// -- Answer --------------------------------------------------------------------------------------

Answer::Answer(SequenceId sequence, std::string id, std::string correlation_id,
               Admission::Permit permit, const TokenTable* tokens, AnswerRegistry* registry)
    : sequence_(sequence),
      id_(std::move(id)),
      correlation_id_(std::move(correlation_id)),
      tenant_(permit.tenant()),
      tokens_(tokens),
      registry_(registry),
      permit_(std::move(permit)) {}

Answer::~Answer() {
  permit_.Release();
  if (registry_ != nullptr) registry_->OnAnswerGone(*this);
}

bool Answer::Cancel(CancelReason reason) {
  CancelReason none = CancelReason::kNone;
  if (!cancelled_.compare_exchange_strong(none, reason, std::memory_order_acq_rel)) return false;
  unwanted_.store(true, std::memory_order_release);
  if (registry_ != nullptr) registry_->OnCancelled(sequence_);
  return true;
}

bool Answer::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_;
}

bool Answer::Fetch() {
  if (at_ == reading_.size()) {
    reading_.clear();
    if (reading_.capacity() > kKeptBytesMax) std::string().swap(reading_);
    at_ = 0;
  }
  absl::MutexLock lock(&mutex_);
  if (new_head_.has_value()) head_ = *std::exchange(new_head_, std::nullopt);
  if (new_end_.has_value()) end_ = std::exchange(new_end_, std::nullopt);
  if (reading_.empty()) {
    reading_.swap(incoming_);
  } else {
    reading_ += incoming_;
    incoming_.clear();
  }
  return at_ < reading_.size() || end_.has_value();
}

bool Answer::Next(AnswerToken* token) {
  if (at_ == reading_.size()) return false;
  const size_t begin = at_;
  token->id = TakeRaw<TokenId>(reading_, &at_);
  const auto packed = TakeRaw<uint32_t>(reading_, &at_);
  token->has_logprob = (packed & kLogprobBit) != 0;
  token->logprob = token->has_logprob ? TakeRaw<float>(reading_, &at_) : 0.0f;
  token->top.resize(packed & kTopMask);
  for (TokenLogprob& top : token->top) {
    top.id = TakeRaw<TokenId>(reading_, &at_);
    top.logprob = TakeRaw<float>(reading_, &at_);
    top.bytes = tokens_->Bytes(top.id);
  }
  const size_t length = packed >> kLengthShift;
  token->text.assign(reading_, at_, length);
  at_ += length;
  token->bytes = tokens_->Bytes(token->id);
  token->special = tokens_->IsSpecial(token->id);
  permit_.GiveBackBytes(at_ - begin);
  return true;
}

void Answer::Close() {
  size_t unread = reading_.size() - at_;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    unread += incoming_.size();
    std::string().swap(incoming_);
  }
  std::string().swap(reading_);
  at_ = 0;
  permit_.GiveBackBytes(unread);
}

const AnswerEnd* Answer::LastWord() const {
  absl::MutexLock lock(&mutex_);
  if (new_end_.has_value()) return &*new_end_;
  return end_.has_value() ? &*end_ : nullptr;
}

absl::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kEosToken:
      return "eos_token";
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kStopSequence:
      return "stop_sequence";
  }
  return "length";
}

absl::string_view ResumeMatchName(bool exact) { return exact ? "exact" : "inexact"; }

absl::Status CancelStatus(CancelReason reason) {
  switch (reason) {
    case CancelReason::kDeadline:
      return absl::DeadlineExceededError("the request's deadline passed");
    case CancelReason::kQueueTimeout:
      return UnavailableError("QUEUE_TIMEOUT", "the request waited too long for its first step",
                              absl::Seconds(1));
    case CancelReason::kSlowReader:
      return absl::CancelledError("the client reads too slowly");
    case CancelReason::kAdmin:
      return absl::CancelledError("cancelled by request id");
    case CancelReason::kNone:
    case CancelReason::kClientGone:
    case CancelReason::kStopMatched:
      break;
  }
  return absl::CancelledError("the client is gone");
}

// -- AnswerWriter --------------------------------------------------------------------------------

AnswerWriter::~AnswerWriter() {
  if (answer_ != nullptr) Fail(absl::InternalError("the request was dropped"));
}

void AnswerWriter::Head(AnswerHead head) { head_ = std::move(head); }

void AnswerWriter::Token(TokenId id, absl::string_view text) { Append(id, text, false, 0, {}); }

void AnswerWriter::Token(TokenId id, absl::string_view text, float logprob,
                         absl::Span<const std::pair<TokenId, float>> top) {
  Append(id, text, true, logprob, top);
}

void AnswerWriter::Append(TokenId id, absl::string_view text, bool has_logprob, float logprob,
                          absl::Span<const std::pair<TokenId, float>> top) {
  WEFT_CHECK(!ended_ && top.size() <= kTopMask && text.size() < (1u << (32 - kLengthShift)));
  AppendRaw(id, &pending_);
  AppendRaw(static_cast<uint32_t>(text.size()) << kLengthShift | (has_logprob ? kLogprobBit : 0) |
                static_cast<uint32_t>(top.size()),
            &pending_);
  if (has_logprob) AppendRaw(logprob, &pending_);
  for (const auto& [top_id, top_logprob] : top) {
    AppendRaw(top_id, &pending_);
    AppendRaw(top_logprob, &pending_);
  }
  pending_.append(text.data(), text.size());
  ++pending_tokens_;
}

void AnswerWriter::End(AnswerEnd end) {
  WEFT_CHECK(!ended_);
  ended_ = true;
  end_ = std::move(end);
}

Waker* AnswerWriter::Publish(std::vector<std::shared_ptr<AnswerSink>>* retired) {
  {
    absl::MutexLock lock(&answer_->mutex_);
    if (head_.has_value()) {
      // They stay as long as the answer does.
      if (head_->prompt_scores != nullptr) {
        answer_->permit_.ChargeBytes(head_->prompt_scores->bytes());
      }
      answer_->new_head_ = std::exchange(head_, std::nullopt);
    }
    if (!answer_->closed_) {
      answer_->permit_.ChargeBytes(pending_.size());
      if (answer_->incoming_.empty()) {
        answer_->incoming_.swap(pending_);
      } else {
        answer_->incoming_ += pending_;
      }
    }
    if (ended_) {
      answer_->new_end_ = std::exchange(end_, std::nullopt);
      answer_->ended_ = true;
    }
  }
  pending_.clear();
  if (pending_tokens_ > 0) answer_->permit_.ChargeGenerated(std::exchange(pending_tokens_, 0));
  // An answer that is complete waits for its reader; its place in the batch is free.
  if (ended_) answer_->permit_.MarkWritten();
  Waker* const waker = sink_->OnNews();
  if (ended_) {
    retired->push_back(std::move(sink_));
    answer_.reset();
  }
  return waker;
}

void AnswerWriter::Fail(const absl::Status& status) {
  if (!ended_) {
    AnswerEnd end;
    end.status = status;
    End(std::move(end));
  }
  std::vector<std::shared_ptr<AnswerSink>> retired;
  if (Waker* const waker = Publish(&retired)) waker->Wake();
}

void AnswerWriter::Abandon() {
  answer_.reset();
  sink_.reset();
}

}  // namespace weft::router
