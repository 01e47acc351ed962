#include "tests/sim/router/clients.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/prompt_scores.h"
#include "router/text/detokenizer.h"
#include "tests/sim/router/fake_tokenizer.h"

namespace weft::router::sim {
namespace {

// A client's thread gets to it within so long.
constexpr int64_t kReadUsMax = 60;

// The characters of a prompt, of which the first ones may be those of others.
constexpr uint64_t kPrefixDraws = 2000;
constexpr uint64_t kPromptDraws = 10'000;
constexpr uint64_t kStopDraws = 20'000'000;
constexpr uint64_t kConstraintDraws = 30'000'000;

}  // namespace

Client::Client(const Action& action, const Settings& settings,
               const testing::MockVocabulary& vocabulary, VirtualTime* time, Watch* watch)
    : action_(action),
      settings_(settings),
      vocabulary_(vocabulary),
      time_(time),
      watch_(watch),
      name_(absl::StrCat("client-", action.id)) {
  MakePrompt();
  Draws stops(0, kStopDraws + static_cast<uint64_t>(action.stop));
  for (int64_t i = action.stop == 0 ? 0 : stops.Between(1, 3); i > 0; --i) {
    std::string& stop = stops_.emplace_back();
    for (int64_t length = stops.Between(1, 4); length > 0; --length) {
      stop.push_back(static_cast<char>('a' + stops.Below(7)));
    }
  }
  MakeConstraint();
  if (action.resume > 0 && action.seed != 0 && action.bad == kGood) MakeResumed();
}

void Client::MakeConstraint() {
  Draws draws(0, kConstraintDraws + static_cast<uint64_t>(action_.allow + action_.ban));
  // The end among them or not.
  for (int64_t i = action_.allow == 0 ? 0 : draws.Between(1, 8); i > 0; --i) {
    allowed_ids_.push_back(static_cast<TokenId>(draws.Chance(80) ? kFirstSaid + draws.Below(kSaid)
                                                                 : draws.Below(kVocabulary)));
  }
  std::vector<std::vector<TokenId>> sequences;
  for (int64_t i = action_.ban == 0 ? 0 : draws.Between(1, 6); i > 0; --i) {
    std::string& word = bad_words_.emplace_back();
    for (int64_t length = draws.Between(1, 3); length > 0; --length) {
      word.push_back(static_cast<char>('a' + draws.Below(11)));
    }
    for (const std::string& text : {word, " " + word}) {
      std::vector<TokenId>& ids = sequences.emplace_back();
      for (const char byte : text) ids.push_back(IdOfByte(static_cast<uint8_t>(byte)));
    }
  }
  rule_ = testing::MakeMockRule(allowed_ids_, std::move(sequences));
  std::sort(allowed_ids_.begin(), allowed_ids_.end());
  allowed_ids_.erase(std::unique(allowed_ids_.begin(), allowed_ids_.end()), allowed_ids_.end());
}

void Client::MakeResumed() {
  const int64_t room = settings_.context_tokens - static_cast<int64_t>(prompt_.size()) - 1;
  const int64_t limit = action_.max_tokens > 0 ? std::min(action_.max_tokens, room) : room;
  const int64_t count = std::min(action_.resume, limit);
  if (count <= 0) return;
  for (const TokenId id :
       testing::MockAnswer(vocabulary_, prompt_, static_cast<uint64_t>(action_.seed),
                           static_cast<uint32_t>(count), action_.ignore_eos != 0, rule_)) {
    if (stop_ != std::string::npos) break;
    resumed_.push_back(id);
    Have(id);
  }
}

void Client::Have(TokenId id) {
  ++taken_;
  last_ = id;
  if (rule_) had_.push_back(id);
  chain_ = testing::MockChain(chain_, id);
  AddText(id);
}

void Client::MakePrompt() {
  const auto seed = static_cast<uint64_t>(settings_.seed);
  Draws shared(seed, kPrefixDraws + static_cast<uint64_t>(action_.prefix_of));
  Draws own(seed, kPromptDraws + static_cast<uint64_t>(action_.id));
  const bool is_text = action_.text != 0 && action_.bad != kBadId;
  const absl::string_view mark = kMark;
  for (int64_t i = 0; i < action_.prompt && action_.bad != kEmpty; ++i) {
    const uint64_t draw = i < action_.prefix ? shared.Next() : own.Next();
    if (!is_text) {
      prompt_.push_back(static_cast<TokenId>(draw % kEndId));
      continue;
    }
    const auto at = static_cast<size_t>(i);
    prompt_text_.push_back(at < mark.size() ? mark[at] : static_cast<char>('a' + draw % 26));
    prompt_.push_back(IdOfByte(static_cast<uint8_t>(prompt_text_.back())));
  }
  if (action_.bad == kBadId && !prompt_.empty()) prompt_.back() = kVocabulary;
  for (const TokenId id : prompt_) chain_ = testing::MockChain(chain_, id);
}

GenerateInput Client::MakeInput() const {
  GenerateInput input;
  input.correlation_id = name_;
  if (prompt_text_.empty()) {
    input.prompt = prompt_;
  } else {
    input.prompt = prompt_text_;
  }
  input.sampling.temperature = 0.5f;
  input.sampling.top_k = static_cast<uint32_t>(action_.id % 50);
  input.sampling.min_p = static_cast<float>(action_.min_p) / 1000;
  if (action_.penalty > 0) {
    input.sampling.repetition_penalty = 1.0f + static_cast<float>(action_.penalty) / 100;
  }
  if (action_.logprobs > 0) {
    input.sampling.logprobs = true;
    input.sampling.top_logprobs = static_cast<uint32_t>(action_.logprobs - 1);
  }
  if (action_.scores > 0) input.prompt_logprobs = static_cast<uint32_t>(action_.scores - 1);
  if (action_.bad == kBadBias) input.sampling.logit_bias = {{kVocabulary + 7, 1.0f}};
  if (action_.seed != 0) input.seed = static_cast<uint64_t>(action_.seed);
  if (action_.max_tokens != 0) input.max_tokens = static_cast<uint32_t>(action_.max_tokens);
  if (action_.bad == kTooLong) {
    input.max_tokens = static_cast<uint32_t>(settings_.context_tokens) + 1;
  }
  input.stop_sequences = stops_;
  input.include_stop_sequence = action_.keep_stop != 0;
  input.ignore_eos = action_.ignore_eos != 0;
  input.allowed_token_ids = allowed_ids_;
  input.bad_words = bad_words_;
  if (!resumed_.empty()) input.resume = ResumeInput{resumed_, "from elsewhere"};
  input.echo_prompt = action_.echo != 0 && !prompt_text_.empty();
  if (action_.priority != 0) input.priority = static_cast<int32_t>(action_.priority);
  if (action_.bad == kBadPriority) input.priority = 1000;
  if (action_.deadline_us != 0) input.deadline_us = time_->NowUs() + action_.deadline_us;
  return input;
}

void Client::Ask(Serving* serving, const TenantRef& tenant, const std::shared_ptr<Client>& self) {
  asked_us_ = time_->NowUs();
  groups_lost_before_ = watch_->counts().groups_lost;
  if (action_.deadline_us != 0) unwanted_us_ = asked_us_ + action_.deadline_us;
  absl::StatusOr<Admission::Permit> permit =
      serving->Enter(tenant, prompt_text_.size() + prompt_.size());
  absl::Status refused = permit.status();
  if (permit.ok()) {
    std::vector<Admission::Permit> permits;
    permits.push_back(*std::move(permit));
    absl::StatusOr<std::vector<std::shared_ptr<Answer>>> answers =
        serving->Submit(MakeInput(), std::move(permits), self);
    refused = answers.status();
    if (answers.ok()) {
      answer_ = std::move(answers->front());
      weak_ = answer_;
      sequence_ = answer_->sequence();
      accepted_ = true;
      if (action_.leave_us > 0) time_->At(asked_us_ + action_.leave_us, this, kLeave);
      return;
    }
  }
  ended_ = true;
  status_ = refused;
  watch_->OnRefused(action_.id, refused);
}

void Client::Leave() {
  if (!accepted_ || ended_ || left_) return;
  left_ = true;
  SetUnwanted(time_->NowUs());
  // As doors do it when a connection ends.
  answer_->Cancel(CancelReason::kClientGone);
  answer_->Close();
  answer_.reset();
}

Waker* Client::OnNews() {
  if (ended_) Wrong("end.once", "has news after its end");
  return this;
}

void Client::Wake() {
  if (reading_) return;
  reading_ = true;
  const uint64_t draw = Mix(static_cast<uint64_t>(action_.id) * 31 + taken_);
  time_->At(time_->NowUs() + static_cast<int64_t>(draw % kReadUsMax), this, kRead);
}

void Client::OnTime(uint32_t kind, uint64_t) {
  if (kind == kLeave) return Leave();
  reading_ = false;
  Read();
}

void Client::Read() {
  if (ended_ || left_ || answer_ == nullptr || !answer_->Fetch()) return;
  if (!has_head_ && answer_->head() != nullptr) TakeHead(*answer_->head());
  AnswerToken token;
  while (answer_->Next(&token)) {
    TakeToken(token);
    if (action_.leave_tokens > 0 && static_cast<int64_t>(taken_) == action_.leave_tokens) {
      return Leave();
    }
    if (action_.pause_us == 0) continue;
    reading_ = true;
    return time_->At(time_->NowUs() + action_.pause_us, this, kRead);
  }
  if (answer_->end() == nullptr) return;
  TakeEnd(*answer_->end());
  answer_.reset();
}

void Client::TakeHead(const AnswerHead& head) {
  has_head_ = true;
  watch_->OnEvent();
  seed_ = head.seed;
  if (action_.bad != kGood) Wrong("input.first", "is not good and has begun");
  if (action_.seed != 0 && head.seed != static_cast<uint64_t>(action_.seed)) {
    Wrong("state.log", absl::StrCat("runs with seed ", head.seed));
  }
  if (head.prompt_tokens != prompt_.size()) {
    Wrong("state.log",
          absl::StrCat("has ", head.prompt_tokens, " prompt tokens, not ", prompt_.size()));
  }
  CheckResumed(head);
  CheckScores(head.prompt_scores.get());
  // A step that was lost may have begun it, with another hit.
  if (head.cached_tokens != std::min<size_t>(cached_, prompt_.size()) &&
      groups_lost_before_ == watch_->counts().groups_lost) {
    Wrong("state.log", absl::StrCat("is said to have ", head.cached_tokens,
                                    " tokens from the prefix cache, the shards had ", cached_));
  }
  if (head.cached_tokens > 0) ++watch_->counts().prefix_hits;
}

void Client::CheckScores(const PromptScores* scores) {
  if ((scores != nullptr) != (action_.scores > 0)) {
    Wrong("state.log", absl::StrCat("asked for scores: ", action_.scores, ", and had ",
                                    scores == nullptr ? "none" : "some"));
  }
  if (scores == nullptr) return;
  const bool whole = scores->tokens() == prompt_.size() && scores->rows() + 1 == prompt_.size();
  if (!whole) Wrong("state.log", absl::StrCat("has scores of ", scores->rows(), " rows"));
  uint64_t chain = 0;
  for (size_t i = 0; i < prompt_.size(); ++i) {
    const AnswerToken token = scores->Token(i);
    bool good = token.id == prompt_[i] && token.has_logprob == (i > 0);
    if (i > 0) {
      const auto top = static_cast<size_t>(action_.scores - 1);
      good = good && token.logprob == testing::MockScore(chain, token.id) &&
             scores->Rank(i) == 1 + token.id && token.top.size() == top;
      for (uint32_t rank = 0; good && rank < top; ++rank) {
        good = token.top[rank].id == testing::MockBest(vocabulary_, chain, rank);
      }
    }
    if (!good) Wrong("state.log", absl::StrCat("has another score of its prompt's token ", i));
    chain = testing::MockChain(chain, token.id);
    ++watch_->counts().scored;
  }
}

void Client::CheckResumed(const AnswerHead& head) {
  const size_t tokens = head.resumed.has_value() ? head.resumed->tokens : 0;
  if (tokens != resumed_.size()) {
    Wrong("state.log", absl::StrCat("goes on behind ", tokens, " tokens, not ", resumed_.size()));
  }
  if (resumed_.empty()) return;
  ++watch_->counts().resumed;
  if (head.resumed->exact) Wrong("num.row", "is said to go on exactly from another fingerprint");
  // What came with these tokens; the rest of the text is compared with them at the end.
  text_ = head.resumed->text;
}

void Client::TakeToken(const AnswerToken& token) {
  Counts& counts = watch_->counts();
  ++counts.tokens;
  watch_->OnEvent();
  counts.digest = Mix(counts.digest ^ Mix(static_cast<uint64_t>(time_->NowUs()) * 977 +
                                          static_cast<uint64_t>(action_.id) * 31 + token.id));
  if (!has_head_) Wrong("end.once", "has a token before its head");
  const bool over = stop_ != std::string::npos ||
                    (last_ == vocabulary_.eos && action_.ignore_eos == 0) ||
                    (action_.max_tokens > 0 && static_cast<int64_t>(taken_) == action_.max_tokens);
  if (over) Wrong("end.once", absl::StrCat("has token ", taken_ + 1, " after its last one"));
  const auto position = static_cast<Position>(prompt_.size() + taken_);
  const TokenId expected = testing::MockAllowed(
      vocabulary_, rule_, had_, testing::MockToken(vocabulary_, seed_, position, chain_));
  counts.constrained_tokens += rule_ ? 1 : 0;
  if (token.id != expected && !false_token_) {
    Wrong("state.log", absl::StrCat("has token ", token.id, " at position ", position,
                                    ", where the model says ", expected));
  }
  if (token.has_logprob != (action_.logprobs > 0)) {
    Wrong("state.log", absl::StrCat("token ", taken_ + 1, ": log-probability asked ",
                                    action_.logprobs, ", had ", token.has_logprob));
  }
  if (token.has_logprob && !false_token_ && token.logprob != -static_cast<float>(token.id) / 64) {
    Wrong("state.log", absl::StrCat("token ", taken_ + 1, " has another's log-probability"));
  }
  text_ += token.text;
  Have(token.id);
}

void Client::AddText(TokenId id) {
  if (id == kEndId) return;
  for (const char byte : BytesOf(id)) {
    if (stop_ != std::string::npos) return;
    bytes_.push_back(byte);
    for (size_t i = 0; i < stops_.size(); ++i) {
      if (!absl::EndsWith(bytes_, stops_[i])) continue;
      if (stop_ != std::string::npos && stops_[i].size() <= stops_[stop_].size()) continue;
      stop_ = i;
      stop_begin_ = bytes_.size() - stops_[i].size();
    }
  }
}

void Client::TakeEnd(const AnswerEnd& end) {
  ended_ = true;
  status_ = end.status;
  watch_->OnEvent();
  Counts& counts = watch_->counts();
  counts.digest = Mix(counts.digest ^ static_cast<uint64_t>(end.status.code()) ^
                      static_cast<uint64_t>(time_->NowUs()));
  CheckText(end);
  if (end.status.ok()) {
    if (!has_head_ || taken_ == 0) Wrong("end.once", "ends well without a head or a token");
    if (end.output_tokens != taken_ || end.prompt_tokens != prompt_.size()) {
      Wrong("end.once", absl::StrCat("had ", taken_, " tokens; its end says ", end.output_tokens,
                                     " after ", end.prompt_tokens, " of the prompt"));
    }
    const bool by_eos = last_ == vocabulary_.eos && action_.ignore_eos == 0;
    const FinishReason reason = stop_ != std::string::npos ? FinishReason::kStopSequence
                                : by_eos                   ? FinishReason::kEosToken
                                                           : FinishReason::kLength;
    if (end.reason != reason) {
      Wrong("end.once", absl::StrCat("ended by ", FinishReasonName(end.reason), ", expected ",
                                     FinishReasonName(reason)));
    }
    if (reason == FinishReason::kLength && action_.max_tokens > 0 &&
        static_cast<int64_t>(taken_) != action_.max_tokens) {
      Wrong("end.once", absl::StrCat("ended by length after ", taken_, " tokens"));
    }
    if (reason == FinishReason::kStopSequence && end.stop_sequence != stops_[stop_]) {
      Wrong("end.once", absl::StrCat("ended by the stop string \"", end.stop_sequence, "\""));
    }
  }
  watch_->OnEnd(action_.id);
}

void Client::CheckText(const AnswerEnd& end) {
  std::string bytes = bytes_;
  if (stop_ != std::string::npos && action_.keep_stop == 0) bytes.resize(stop_begin_);
  const bool echoed = action_.echo != 0 && taken_ > 0;
  const std::string expected = absl::StrCat(echoed ? prompt_text_ : "", LossyText(bytes));
  const std::string text = text_ + end.text;
  const bool whole = end.status.ok() || (stop_ != std::string::npos && has_head_);
  if (whole ? text == expected : absl::StartsWith(expected, text)) return;
  Wrong("state.log", absl::StrCat("has the text \"", text, "\", expected \"", expected, "\""));
}

void Client::Wrong(absl::string_view invariant, const std::string& what) const {
  watch_->Violated(invariant, absl::StrCat("request ", action_.id, " ", what));
  std::abort();  // not reached: what the compiler cannot know of an override
}

}  // namespace weft::router::sim
