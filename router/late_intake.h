// The intake that the doors get at start, before there is an engine: ports open in the first
// milliseconds and say "starting" while tokenizer and shards load. Passes everything on once the
// engine is set. Owned by main; thread-safe.

#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "router/intake.h"

namespace weft::router {

class LateIntake : public Intake {
 public:
  // Once. `intake` must outlive all calls.
  void Set(Intake* intake) { intake_.store(intake, std::memory_order_release); }

  std::shared_ptr<RequestHandle> Submit(GenerateInput input,
                                        std::shared_ptr<ResponseSink> sink) override;
  void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) override;
  void Detokenize(std::vector<TokenId> ids, bool skip_special_tokens,
                  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) override;
  bool Cancel(const std::string& request_id) override;
  ModelFacts Model() const override;
  ServerStatus Status() const override;

 private:
  Intake* get() const { return intake_.load(std::memory_order_acquire); }

  std::atomic<Intake*> intake_{nullptr};
};

}  // namespace weft::router
