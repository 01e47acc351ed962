// Turns a conversation into prompt text with the model's own Jinja template, as transformers'
// apply_chat_template does (trim_blocks, lstrip_blocks, Python string methods, raise_exception,
// strftime_now, tojson). Compiled once at start-up, shared by all text workers; Render is
// thread-safe. The source comes from the model only, never from a request. Instructions (in
// proportion to the number of messages) and output are bounded, so that a template that runs away
// ends one request (invariants bound.all, scope.one); memory inside the template is not, beyond
// 100 MB for one repeated string.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/request.h"

struct WeftTemplate;  // router/text/ffi/weft_text.h

namespace weft::router {

class ChatTemplate {
 public:
  // Compiles `source`; `bos_token` and `eos_token` are the template's variables of these names.
  // INVALID_ARGUMENT with line and reason when it does not compile.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(absl::string_view source,
                                                              absl::string_view bos_token,
                                                              absl::string_view eos_token);
  ~ChatTemplate();

  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // The prompt's text, to be encoded without special tokens (templates write their own).
  // INVALID_ARGUMENT with the field "messages" when the template refuses the conversation
  // (raise_exception), fails on it, takes more than its allowance of instructions, or gives more
  // than kTemplateOutputBytesMax bytes.
  absl::StatusOr<std::string> Render(const ChatPrompt& prompt) const;

 private:
  struct Deleter {
    void operator()(WeftTemplate* chat_template) const;
  };
  using Handle = std::unique_ptr<WeftTemplate, Deleter>;

  explicit ChatTemplate(Handle handle);

  Handle handle_;
};

}  // namespace weft::router
