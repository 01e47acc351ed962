// A conversation as the variables of a chat template, on its way to a template worker: messages,
// tools, documents, add_generation_prompt and what else a request names, as transformers'
// apply_chat_template passes them. Every string of a user has its marks (chat_marks.h), keys of
// maps too. Stateless; any thread.
//
// The bytes, which ffi/src/values.rs reads: a value is a letter and what belongs to it; texts and
// counts are as in template_channel.h.
//
//   n t f           null, true, false
//   i d s  text     an integer, a floating-point number, a string
//   l      count    so many values
//   m      count    so many pairs of a text and a value

#pragma once

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/chat_prompt.h"
#include "router/text/chat_traits.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// Nesting of JSON that stands in a conversation.
inline constexpr size_t kChatJsonDepthMax = 64;

// How users' strings are marked.
struct UserText {
  // Null = they are not.
  const Tokenizer* tokenizer = nullptr;
  // Words that the template compares with (MarkedTemplate): as they are but in contents.
  const absl::flat_hash_set<std::string>* words = nullptr;
};

// Appends the variables to `*out` and gives the number of values, which is what a template works
// on. INVALID_ARGUMENT with the field when JSON in the conversation is none or of the wrong kind,
// which doors have checked before, or when a string is not UTF-8.
absl::StatusOr<size_t> WriteVariables(const ChatPrompt& prompt, const TemplateTraits& traits,
                                      const UserText& user_text, std::string* out);

}  // namespace weft::router
