// What a conversation needs of a server, whichever door it is reached by: facts about its model,
// the length of a prompt, and the events of an answer. Used by the main thread alone; each call
// waits, and ends early when `stop` is requested.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "deploy/launcher/chat/conversation.h"
#include "deploy/launcher/chat/settings.h"
#include "deploy/launcher/chat/stop.h"

namespace weft::launcher {

struct ModelFacts {
  std::string name;
  // Prompt and answer together at most.
  uint32_t context_tokens = 0;
};

// Of an answer that broke off: what the server needs to go on behind it (docs/API.md, "Resuming a
// stream").
struct ResumePoint {
  std::vector<uint32_t> output_ids;
  uint64_t seed = 0;
  std::string fingerprint;
};

struct AnswerRequest {
  std::vector<ChatTurn> messages;
  Settings settings;
  // 0 = the server's limit.
  uint32_t max_tokens = 0;
  // Nothing = a new answer.
  absl::optional<ResumePoint> resume;
};

enum class Finish { kNotYet, kEnd, kLength };

struct AnswerEvent {
  std::string text;
  std::vector<uint32_t> token_ids;
  // Of the first event of a stream.
  bool begins = false;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint64_t seed = 0;
  std::string fingerprint;
  // The rest of a resumed answer may be another than what would have come.
  bool inexact = false;
  // Of the last event.
  Finish finish = Finish::kNotYet;
  uint32_t output_tokens = 0;
};

class ChatServer {
 public:
  virtual ~ChatServer() = default;

  // UNAVAILABLE says what may be the cause and how to start a server. Prints a line when it takes
  // more than a second.
  virtual absl::Status Connect(absl::Duration wait) = 0;
  virtual absl::StatusOr<ModelFacts> Facts(Stop& stop) = 0;
  virtual absl::StatusOr<uint32_t> CountTokens(const std::vector<ChatTurn>& messages,
                                               Stop& stop) = 0;
  // Hands each event to `on_event` until that returns false, which cancels the answer. OK when the
  // stream ended by itself, which without a Finish is no end of the answer. Takes at most `most`.
  virtual absl::Status Stream(const AnswerRequest& request, absl::Duration most, Stop& stop,
                              absl::FunctionRef<bool(const AnswerEvent&)> on_event) = 0;
  // As messages name it.
  virtual const std::string& address() const = 0;
};

}  // namespace weft::launcher
