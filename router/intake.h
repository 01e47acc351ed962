// The one way in for all doors: hands requests to the text pool, from there to admission and the
// engine loop, and answers what a door may ask about the model and the server's state. Implemented
// by router/engine_intake; tests use a fake. Thread-safe; no call blocks.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "router/request.h"

namespace weft::router {

// Facts of the served model, fixed once the group is ready.
struct ModelFacts {
  std::string model_name;
  std::string family;
  uint64_t parameters = 0;
  uint32_t vocab_size = 0;
  uint32_t context_tokens = 0;
  // Largest prompt + max_tokens that admission accepts: min(context, KV pool).
  uint32_t request_tokens_max = 0;
  std::string dtype;
  std::string device;
  uint32_t shards = 0;
  bool has_chat_template = false;
  int64_t created_unix_s = 0;
};

enum class ServerState : uint8_t { kStarting, kLoading, kWarming, kReady, kRecovering, kDraining };

struct ServerStatus {
  ServerState state = ServerState::kStarting;
  // 0 .. 100 while loading.
  int percent = 0;
  // For people: what it waits for.
  std::string detail;
  // Work exists and no step has ended for this long, microseconds; 0 otherwise.
  int64_t stalled_us = 0;
};

struct TokenizeResult {
  std::vector<TokenId> ids;
  // Bytes of each token.
  std::vector<std::string> tokens;
  // Byte range of each token in the text; empty for chat prompts.
  std::vector<std::pair<uint32_t, uint32_t>> offsets;
  // The rendered prompt of a conversation.
  std::string text;
};

// A submitted request, as its door sees it.
class RequestHandle {
 public:
  virtual ~RequestHandle() = default;
  // Idempotent; the terminal event follows.
  virtual void Cancel(CancelReason reason) = 0;
  virtual const std::string& request_id() const = 0;
};

class Intake {
 public:
  virtual ~Intake() = default;

  // Starts a request. All outcomes, refusals too, come as events to `sink`.
  virtual std::shared_ptr<RequestHandle> Submit(GenerateInput input,
                                                std::shared_ptr<ResponseSink> sink) = 0;
  // `done` runs on a text worker.
  virtual void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                        absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) = 0;
  virtual void Detokenize(std::vector<TokenId> ids, bool skip_special_tokens,
                          absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) = 0;
  // False when no such request is running or waiting.
  virtual bool Cancel(const std::string& request_id) = 0;

  virtual ModelFacts Model() const = 0;
  virtual ServerStatus Status() const = 0;
};

}  // namespace weft::router
