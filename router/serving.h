// The router's inside from text in to text out, once there is a model: owns admission, the text
// threads, the shard groups with their engine loops, and starts and stops them in one order.
// Made by router/core, which is how doors reach it; the methods of Entrance are thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/thread.h"
#include "common/tokenizer_fingerprint.h"
#include "router/admission.h"
#include "router/answer.h"
#include "router/core.h"
#include "router/doors/entrance.h"
#include "router/groups/groups.h"
#include "router/observe/tracer.h"
#include "router/recording/recorder.h"
#include "router/shards/supervisor_client.h"
#include "router/text/chat_template.h"
#include "router/text/model_text.h"
#include "router/text/pool_in.h"
#include "router/text/pool_out.h"
#include "router/text/prepare.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// Token ids by what they stand for, for answers.
class Tokens : public TokenTable {
 public:
  explicit Tokens(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  absl::string_view Bytes(TokenId id) const override { return tokenizer_->TokenBytes(id); }
  bool IsSpecial(TokenId id) const override { return tokenizer_->IsSpecial(id); }

 private:
  const Tokenizer* const tokenizer_;
};

// What answers are where their requests do not say it.
struct AnswerDefaults {
  // Formats of calls and of reasoning that they are read in (text/parts/part_parser.h).
  std::string tool_parser = "none";
  std::string reasoning_parser = "none";
  SamplingParams sampling;
};

// What exists once the model's text side is loaded. Members are in the order in which they are
// made; each may use those above it, and goes before them.
class Serving : public AnswerRegistry {
 public:
  // `probe` must outlive this.
  Serving(EngineOptions options, ModelText text, std::unique_ptr<Tokenizer> tokenizer,
          const TokenizerFingerprint& fingerprint, std::unique_ptr<ChatTemplate> chat_template,
          std::unique_ptr<GrammarEngine> grammars, AnswerDefaults defaults, Probe* probe);
  ~Serving() override { Shutdown(); }

  absl::Status Start();

  // -- As in Entrance
  absl::StatusOr<Admission::Permit> Enter(const TenantRef& tenant, size_t body_bytes);
  absl::StatusOr<Admission::Permit> EnterText(const TenantRef& tenant, size_t body_bytes);
  bool Run(size_t bytes, absl::AnyInvocable<void()>&& read);
  absl::StatusOr<std::vector<std::shared_ptr<Answer>>> Submit(
      GenerateInput input, std::vector<Admission::Permit> permits,
      std::shared_ptr<AnswerSink> sink);
  void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                Admission::Permit permit, std::shared_ptr<const TextCall> call,
                absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done);
  void Detokenize(std::vector<TokenId> ids, bool skip_special_tokens, Admission::Permit permit,
                  std::shared_ptr<const TextCall> call,
                  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done);
  bool Cancel(const Tenant& tenant, const std::string& name);
  ModelFacts Model() const;
  ServerStatus Status() const;

  // -- As in Core
  void SetQueueLimits(const QueueLimits& limits) { admission_.SetQueueLimits(limits); }
  absl::Status FlushPrefixCache();
  void StartDrain(absl::Duration timeout);
  bool WaitIdle(absl::Duration timeout) { return admission_.WaitIdle(timeout); }
  void Shutdown();

  // -- For simulations
  const Admission& AdmissionForTest() const { return admission_; }
  const Groups& GroupsForTest() const { return groups_; }

  // -- Answers' news
  void OnAnswerGone(const Answer& answer) override;
  void OnCancelled(SequenceId sequence) override { groups_.CancelSequence(sequence); }

 private:
  TextModel text_model() const {
    return {tokenizer_.get(), chat_template_.get(), &model_text_.eos_ids, grammars_.get()};
  }
  // The answer of one choice, known by its names.
  std::shared_ptr<Answer> MakeAnswer(const GenerateInput& input, Admission::Permit permit);
  // Null for a request that is not traced.
  std::shared_ptr<RequestTrace> BeginTrace(const GenerateInput& input, const Answer& answer);
  void EndTrace(const Answer& answer);
  // Counts a refusal.
  absl::StatusOr<Admission::Permit> Counted(absl::StatusOr<Admission::Permit> permit,
                                            const Tenant& tenant);
  void CountOverload(RejectReason reason, const Tenant* tenant = nullptr);
  absl::Status StartRecorders();
  // A thread of text in.
  void PrepareAndSend(ArrivedRequest arrived);
  // A text job under a permit; `done` hears of it when there is no room.
  template <typename Result>
  void RunCall(size_t bytes, Admission::Permit permit, std::shared_ptr<const TextCall> call,
               absl::AnyInvocable<absl::StatusOr<Result>(const ReadLimits&)> work,
               absl::AnyInvocable<void(absl::StatusOr<Result>)> done);

  EngineOptions options_;
  const ModelText model_text_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  const std::unique_ptr<ChatTemplate> chat_template_;
  // Null: no request may have a grammar.
  const std::unique_ptr<GrammarEngine> grammars_;
  // Prepares them while the shards load: a request with a grammar seldom waits for it.
  Thread grammar_thread_;
  const AnswerDefaults defaults_;
  const Tokens tokens_;
  Probe* const probe_;
  const Clock& clock_;
  const int64_t created_unix_s_;

  std::atomic<SequenceId> next_sequence_{1};
  absl::Mutex mutex_;
  // Answers that somebody holds, by weft's own name and by their clients'.
  absl::flat_hash_map<std::string, std::weak_ptr<Answer>> answers_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, absl::flat_hash_set<std::string>> ids_by_correlation_
      ABSL_GUARDED_BY(mutex_);

  Admission admission_;
  TextOut text_out_;
  MaskMaker mask_maker_;
  // None, or one for each group.
  std::vector<std::unique_ptr<Recorder>> recorders_;
  Groups groups_;
  std::unique_ptr<ShardRestarter> supervisor_;
  TextIn text_in_;
  std::atomic<bool> shut_down_{false};
};

}  // namespace weft::router
