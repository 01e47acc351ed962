// Making room: a conversation that outgrows the model's context is sent without its oldest
// exchanges. Pure but for the count, which asks the server; main thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "deploy/launcher/chat/conversation.h"

namespace weft::launcher {

struct Room {
  uint32_t prompt_tokens = 0;
  // What an answer may have at most, above 0.
  uint32_t answer_tokens_max = 0;
  // Exchanges that were left out now, beside those that already were.
  size_t dropped = 0;
};

using CountTokens =
    absl::FunctionRef<absl::StatusOr<uint32_t>(const std::vector<ChatTurn>& messages)>;

// Leaves out as few of the oldest exchanges as make room for the last question and an answer:
// `answer_tokens` of it, where they are given (not 0), at most half of `context_tokens`; otherwise
// a quarter. When it leaves any out, an eighth more becomes free, so that not every further
// question changes the beginning, which the server has in its cache. INVALID_ARGUMENT when the last
// question alone does not fit. Errors of `count` pass through.
absl::StatusOr<Room> MakeRoom(uint32_t context_tokens, uint32_t answer_tokens, CountTokens count,
                              Conversation* conversation);

}  // namespace weft::launcher
