// What a chat template wants a conversation to look like where published templates differ: found
// out once, when the model is loaded, by rendering short conversations and looking for their words.
// Pure but for the renders that the caller brings; called at start-up.

#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "router/chat_prompt.h"

namespace weft::router {

struct TemplateTraits {
  // The content of a message may be a string, may be a list of {"type": "text", "text": ...}.
  bool text_content = true;
  bool part_content = false;
  // What stands for the content of a message that has none.
  enum class NoContent { kLeftOut, kNull, kEmptyText };
  NoContent no_content = NoContent::kLeftOut;
  // The arguments of a call are wanted as the JSON text that they came as, not as an object.
  bool text_arguments = false;
  // The role "developer" has a meaning of its own; elsewhere it is "system".
  bool developer_role = false;
};

// Renders with these traits. `*ended` becomes true when the template went beyond a limit, after
// which no more is tried.
using TraitsRenderer = std::function<absl::StatusOr<std::string>(
    const ChatPrompt& prompt, const TemplateTraits& traits, bool* ended)>;

// Fills all but developer_role. What a template refuses or shows nothing of stays as it is.
void FindTraits(const TraitsRenderer& render, TemplateTraits* traits);

// For the log: what is not the default; empty when all is.
std::string Describe(const TemplateTraits& traits);

}  // namespace weft::router
