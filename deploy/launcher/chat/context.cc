#include "deploy/launcher/chat/context.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weft::launcher {

absl::StatusOr<Room> MakeRoom(uint32_t context_tokens, uint32_t answer_tokens, CountTokens count,
                              Conversation* conversation) {
  const uint32_t reserve =
      answer_tokens == 0 ? context_tokens / 4 : std::min(answer_tokens, context_tokens / 2);
  Room room;
  uint32_t prompt_max = context_tokens - reserve;
  while (true) {
    WEFT_ASSIGN_OR_RETURN(room.prompt_tokens, count(conversation->ToSend()));
    if (room.prompt_tokens <= prompt_max || !conversation->DropOldest()) break;
    if (room.dropped++ == 0) prompt_max -= std::min(prompt_max, context_tokens / 8);
  }
  if (room.prompt_tokens >= context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has ", room.prompt_tokens, " tokens",
                     conversation->system().empty() ? "" : " with the system message",
                     ", and the context is ", context_tokens, ": send a shorter one"));
  }
  const uint32_t left = context_tokens - room.prompt_tokens;
  room.answer_tokens_max = answer_tokens == 0 ? left : std::min(answer_tokens, left);
  return room;
}

}  // namespace weft::launcher
