// What the tests of users' text in chat templates share (chat_marks.h): templates compiled and run
// with marks and without, and the control tokens in what they give.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/chat_prompt.h"
#include "router/text/chat_marks.h"
#include "router/text/chat_template.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// Ids of a rendered chat, as a request gets them.
std::vector<TokenId> Ids(const Tokenizer& tokenizer, const RenderedChat& chat);
// Ids of added tokens alone.
std::vector<TokenId> ControlIds(const Tokenizer& tokenizer, const std::vector<TokenId>& ids);
// Ids of a text that is read without control tokens.
std::vector<TokenId> PlainIds(const Tokenizer& tokenizer, const std::string& text);
// One of TokenizerVariants().
std::unique_ptr<Tokenizer> Variant(absl::string_view name);
std::unique_ptr<ChatTemplate> Compile(const Tokenizer& tokenizer, absl::string_view source,
                                      ChatTemplate::Options options = {});
// What the template gives without any marks, run here.
std::string PlainRender(const std::string& source, const ChatPrompt& prompt);
// The same with other traits, for a template compiled with "<bos>" and "<eos>"; nothing when it
// refuses the conversation.
std::optional<std::string> PlainRender(const std::string& source, const ChatPrompt& prompt,
                                       const TemplateTraits& traits, uint32_t now_unix_s);
// A user and an assistant in turns.
ChatPrompt Conversation(const std::vector<std::string>& contents);

}  // namespace weft::router
