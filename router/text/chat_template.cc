#include "router/text/chat_template.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/ffi_text.h"

namespace weft::router {
namespace {

// Instructions of the template engine, 20 to 50 ns each. Real templates take 20 to 200 for a
// message; some walk over all messages for each message.
constexpr uint64_t kTemplateFuelBase = 100'000;
constexpr uint64_t kTemplateFuelPerMessage = 20'000;

}  // namespace

void ChatTemplate::Deleter::operator()(WeftTemplate* chat_template) const {
  weft_template_free(chat_template);
}

ChatTemplate::ChatTemplate(Handle handle) : handle_(std::move(handle)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(absl::string_view source,
                                                                   absl::string_view bos_token,
                                                                   absl::string_view eos_token) {
  WeftTemplate* raw = nullptr;
  FfiText error;
  const WeftTextStatus status = weft_template_compile(ToSlice(source), ToSlice(bos_token),
                                                      ToSlice(eos_token), &raw, error.out());
  if (status != WEFT_TEXT_OK) {
    return Annotate(ToStatus(status, error.view()), "the model's chat template does not compile");
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(Handle(raw)));
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatPrompt& prompt) const {
  std::vector<WeftMessage> messages;
  messages.reserve(prompt.messages.size());
  for (const ChatMessage& message : prompt.messages) {
    messages.push_back({ToSlice(message.role), ToSlice(message.content)});
  }
  FfiText text;
  FfiText error;
  const uint64_t fuel = kTemplateFuelBase + kTemplateFuelPerMessage * messages.size();
  const WeftTextStatus status = weft_template_render(
      handle_.get(), messages.data(), messages.size(), prompt.add_generation_prompt, fuel,
      kTemplateOutputBytesMax, text.out(), error.out());
  if (status == WEFT_TEXT_INVALID || status == WEFT_TEXT_LIMIT) {
    return FieldError("messages", error.view());
  }
  if (status != WEFT_TEXT_OK) return ToStatus(status, error.view());
  return std::string(text.view());
}

}  // namespace weft::router
