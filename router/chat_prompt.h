// A conversation as the doors take it and the model's chat template renders it. Made by a door's
// thread, checked by it as far as it can be without the model, and handed over whole; plain data.
// JSON stands in it as text, because what a template sees of it depends on the template:
// router/text parses it where it renders. Never holds what a door answers.

#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace weft::router {

// A call of a tool in an assistant's message.
struct ToolCall {
  // What the answer of the tool refers to; empty = none.
  std::string id;
  std::string name;
  // The JSON text of an object.
  std::string arguments;
};

struct ChatMessage {
  ChatMessage() = default;
  ChatMessage(std::string its_role, std::string its_content)
      : role(std::move(its_role)), content(std::move(its_content)) {}

  // system, developer, user, assistant, tool, or what the model's template knows beside them.
  std::string role;
  std::string content;
  // The texts of a content that came as a list of parts; `content` is empty then.
  std::vector<std::string> content_parts;
  // The message has no content at all (null): it only calls tools.
  bool no_content = false;
  // What an assistant thought before it answered; empty = none.
  std::string reasoning_content;
  // Of whoever speaks, or of the tool that answers; empty = none.
  std::string name;
  std::vector<ToolCall> tool_calls;
  // Which call a tool's message answers; empty = none.
  std::string tool_call_id;
};

struct ChatPrompt {
  std::vector<ChatMessage> messages;
  // The text ends with the opening of an assistant's turn.
  bool add_generation_prompt = true;
  // The text ends with the last message's content, which is left open. Not both.
  bool continue_final_message = false;
  // JSON text of a list of {"type": "function", "function": {...}}; empty = none.
  std::string tools;
  // JSON text of a list of objects; empty = none.
  std::string documents;
  // Further variables of the template: JSON text of an object; empty = none. Holds no name that the
  // template's other variables have.
  std::string template_kwargs;
  // A variable of the template; empty = not given.
  std::string reasoning_effort;
};

// Bytes of text in a conversation, its JSON included.
inline size_t TextBytes(const ChatMessage& message) {
  size_t bytes = message.role.size() + message.content.size() + message.reasoning_content.size() +
                 message.name.size() + message.tool_call_id.size();
  for (const std::string& part : message.content_parts) bytes += part.size();
  for (const ToolCall& call : message.tool_calls) {
    bytes += call.id.size() + call.name.size() + call.arguments.size();
  }
  return bytes;
}

inline size_t TextBytes(const ChatPrompt& chat) {
  size_t bytes = chat.tools.size() + chat.documents.size() + chat.template_kwargs.size() +
                 chat.reasoning_effort.size();
  for (const ChatMessage& message : chat.messages) bytes += TextBytes(message);
  return bytes;
}

}  // namespace weft::router
