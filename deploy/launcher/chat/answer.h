// One answer from its first token to its end, over as many streams as it takes: when a stream
// breaks, because its server drained, was restarted or lost its connection, the answer goes on
// behind what has come. No token is lost or comes twice. Main thread.

#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "deploy/launcher/chat/server.h"
#include "deploy/launcher/chat/stop.h"

namespace weft::launcher {

struct AnswerLimits {
  // An answer as a whole.
  absl::Duration answer = absl::Minutes(5);
  // How long a server that went away is waited for.
  absl::Duration reconnect = absl::Seconds(60);
  // Between two tries at first; doubles up to 2 s.
  absl::Duration pause = absl::Milliseconds(200);
};

struct Answer {
  enum class End {
    // By itself, or at its limit of tokens.
    kWhole,
    kLength,
    // By Stop.
    kStopped,
    // Nobody takes the text any more.
    kUnread,
    // `error` says why.
    kFailed
  };
  End end = End::kFailed;
  absl::Status error;
  std::string text;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;
  absl::Duration to_first_token = absl::ZeroDuration();
  absl::Duration after_first_token = absl::ZeroDuration();
};

// `on_text` prints what came (false: it cannot any more), `on_note` says in a sentence what happens
// when a stream breaks.
Answer ReceiveAnswer(ChatServer& server, AnswerRequest request, const AnswerLimits& limits,
                     Stop& stop, absl::FunctionRef<bool(absl::string_view)> on_text,
                     absl::FunctionRef<void(absl::string_view)> on_note);

}  // namespace weft::launcher
