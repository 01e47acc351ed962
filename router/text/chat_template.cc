#include "router/text/chat_template.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/chat_values.h"
#include "router/text/ffi_text.h"
#include "router/text/template_channel.h"
#include "router/text/template_worker.h"

namespace weft::router {
namespace {

// Instructions of the template engine, 20 to 50 ns each. Real templates take 20 to 200 for a
// message; some walk over all messages for each message. Schemas of tools take some hundred for
// each of their values.
constexpr uint64_t kTemplateFuelBase = 100'000;
constexpr uint64_t kTemplateFuelPerMessage = 20'000;
constexpr uint64_t kTemplateFuelPerValue = 1'000;
constexpr size_t kLimitsBytes = 3 * sizeof(uint32_t);
// Rendered text with its marks of four bytes and its stand-ins of three, each for a character of
// one: text of nothing else fits. Without them kTemplateOutputBytesMax holds.
constexpr uint32_t kMarkedBytesMax = 3 * kTemplateOutputBytesMax;
static_assert(kMarkedBytesMax < kTemplateReplyBytesMax);

// True while the worker behind an idle socket lives: it says nothing unasked.
bool IsAlive(int socket) {
  char byte = 0;
  return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

// What ends a worker.
std::string Beyond(const TemplateLimits& limits) {
  return absl::StrCat("more than ", limits.memory_bytes >> 20, " MiB of memory, its stack or ",
                      limits.cpu_ms, " ms of processor time");
}

absl::StatusOr<std::string> Exchange(int socket, absl::string_view request, absl::Time deadline) {
  WEFT_RETURN_IF_ERROR(SendFrame(socket, request, deadline));
  return ReceiveFrame(socket, kTemplateReplyBytesMax, deadline);
}

absl::Status TooLarge(size_t bytes) {
  return FieldError("messages", absl::StrCat("the chat template gives ", bytes, " bytes; at most ",
                                             kTemplateOutputBytesMax, " are taken"));
}

// Cuts the text behind the last message's content, as transformers does: white space at its end
// goes where the template takes it away, and a message that the template shows otherwise than it is
// cannot be continued.
absl::Status LeaveOpen(const ChatMessage& last, std::optional<size_t> open_end,
                       RenderedChat* chat) {
  const std::string& content =
      last.content_parts.empty() ? last.content : last.content_parts.back();
  if (!open_end.has_value() ||
      !absl::StrContains(chat->text, absl::StripAsciiWhitespace(content))) {
    return FieldError("continue_final_message",
                      "the chat template does not show the last message as it is, so that it "
                      "cannot be continued");
  }
  const bool has_blank = absl::StartsWith(absl::string_view(chat->text).substr(*open_end), " ");
  chat->text.resize(*open_end);
  if (!has_blank) absl::StripTrailingAsciiWhitespace(&chat->text);
  while (!chat->breaks.empty() && chat->breaks.back() > chat->text.size()) chat->breaks.pop_back();
  return absl::OkStatus();
}

}  // namespace

ChatTemplate::ChatTemplate(TemplateHost* host, const Tokenizer* tokenizer, MarkedTemplate marked,
                           Options options)
    : host_(host),
      tokenizer_(tokenizer),
      marked_(std::move(marked)),
      options_(std::move(options)) {}

ChatTemplate::~ChatTemplate() {
  absl::MutexLock lock(&mutex_);
  for (const TemplateWorker& worker : idle_) close(worker.socket);
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(TemplateHost* host,
                                                                   const Tokenizer* tokenizer,
                                                                   absl::string_view source,
                                                                   Options options) {
  WEFT_ASSIGN_OR_RETURN(MarkedTemplate marked, MarkTemplate(*tokenizer, source));
  auto made = std::unique_ptr<ChatTemplate>(
      new ChatTemplate(host, tokenizer, std::move(marked), std::move(options)));
  WEFT_ASSIGN_OR_RETURN(const TemplateWorker worker,
                        made->Acquire(absl::Now() + made->options_.timeout));
  made->Release(worker, /*usable=*/true);
  WEFT_RETURN_IF_ERROR(made->LearnTraits(source));
  return made;
}

absl::Status ChatTemplate::LearnTraits(absl::string_view source) {
  absl::Status lost;
  bool too_much = false;
  const auto render = [&](const ChatPrompt& prompt, const TemplateTraits& tried,
                          bool* ended) -> absl::StatusOr<std::string> {
    const absl::StatusOr<std::string> text = RenderMarked(prompt, tried, ended);
    too_much = too_much || *ended;
    if (text.ok()) return Unmark(*text).text;
    if (absl::IsUnavailable(text.status())) {
      lost = text.status();
      *ended = true;
    }
    return text.status();
  };
  TemplateTraits traits;
  traits.developer_role = absl::StrContains(source, "developer");
  FindTraits(render, &traits);
  WEFT_RETURN_IF_ERROR(lost);
  traits_ = traits;
  if (too_much) {
    WEFT_LOG_WARN(
        "the chat template goes beyond its limits on a short conversation; what it wants a "
        "conversation to look like is not known, and taken to be the usual");
  }
  if (const std::string words = Describe(traits); !words.empty()) {
    WEFT_LOG_INFO("the chat template is given {}", words);
  }
  return absl::OkStatus();
}

// -- Workers -------------------------------------------------------------------------------------

absl::Status ChatTemplate::Ended(const absl::Status& why, absl::Duration limit) const {
  std::string what;
  if (absl::IsDeadlineExceeded(why)) {
    what = absl::StrCat("the chat template takes longer than ", absl::FormatDuration(limit));
  } else if (absl::IsResourceExhausted(why)) {
    what = "the chat template gives more than a prompt may have";
  } else {
    what = absl::StrCat(
        "the chat template ended its process: it took more than its memory, its "
        "stack or its processor time");
  }
  if (!logged_.exchange(true)) WEFT_LOG_WARN("{}; that conversation is refused", what);
  return FieldError("messages", what);
}

absl::StatusOr<TemplateWorker> ChatTemplate::Start(absl::Time deadline) const {
  WEFT_ASSIGN_OR_RETURN(const TemplateWorker worker, host_->StartWorker());
  std::string request;
  AppendText(&request, marked_.source);
  AppendText(&request, options_.bos_token);
  AppendText(&request, options_.eos_token);
  const absl::StatusOr<std::string> reply = Exchange(worker.socket, request, deadline);
  absl::Status status;
  uint32_t result = WEFT_TEXT_PANIC;
  absl::string_view error;
  if (!reply.ok()) {
    // A worker that ended with its server says nothing of the template.
    status = host_->CheckServer(worker.server);
    if (!status.ok()) {
      close(worker.socket);
      return status;
    }
    status = absl::InvalidArgumentError(
        absl::StrCat("compiling it ended its process: it took ", Beyond(host_->limits())));
  } else if (absl::string_view fields = *reply;
             !TakeNumber(&fields, &result) || !TakeText(&fields, &error)) {
    status = absl::InternalError("its process gave no answer that makes sense");
  } else {
    status = ToStatus(static_cast<WeftTextStatus>(result), error);
  }
  if (status.ok()) return worker;
  close(worker.socket);
  return Annotate(status, "the model's chat template does not compile");
}

absl::StatusOr<TemplateWorker> ChatTemplate::Acquire(absl::Time deadline) const {
  {
    absl::MutexLock lock(&mutex_);
    const auto available = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !idle_.empty() || workers_ < options_.workers_max;
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&available), deadline)) {
      return absl::DeadlineExceededError("all workers are busy");
    }
    while (!idle_.empty()) {
      const TemplateWorker worker = idle_.back();
      idle_.pop_back();
      if (IsAlive(worker.socket)) return worker;
      close(worker.socket);
      --workers_;
    }
    ++workers_;
  }
  absl::StatusOr<TemplateWorker> started = Start(deadline);
  if (!started.ok()) {
    absl::MutexLock lock(&mutex_);
    --workers_;
  }
  return started;
}

void ChatTemplate::Release(const TemplateWorker& worker, bool usable) const {
  if (!usable) close(worker.socket);
  absl::MutexLock lock(&mutex_);
  if (usable) {
    idle_.push_back(worker);
  } else {
    --workers_;
  }
}

absl::StatusOr<std::string> ChatTemplate::Call(absl::string_view request, bool* ended) const {
  const absl::Time deadline = absl::Now() + options_.timeout;
  const absl::StatusOr<TemplateWorker> worker = Acquire(deadline);
  if (absl::IsDeadlineExceeded(worker.status())) {
    *ended = true;
    return Ended(worker.status(), options_.timeout);
  }
  WEFT_RETURN_IF_ERROR(worker.status());
  const absl::Duration limit = std::min(options_.render_timeout, options_.timeout);
  const absl::StatusOr<std::string> reply =
      Exchange(worker->socket, request, std::min(deadline, absl::Now() + limit));
  uint32_t result = 0;
  absl::string_view fields, text;
  if (reply.ok()) fields = *reply;
  const bool answered = reply.ok() && TakeNumber(&fields, &result) && TakeText(&fields, &text);
  Release(*worker, answered);
  if (!answered) {
    WEFT_RETURN_IF_ERROR(host_->CheckServer(worker->server));
    *ended = true;
    return Ended(reply.status(), limit);
  }
  if (result == WEFT_TEXT_OK) return std::string(text);
  *ended = result == WEFT_TEXT_LIMIT;
  if (result == WEFT_TEXT_INVALID || result == WEFT_TEXT_LIMIT) {
    // A template may quote the conversation in what it says.
    return FieldError("messages", Unmark(text).text);
  }
  if (result == WEFT_TEXT_PANIC) {
    // Of the library that runs templates, and caught there: the worker is as it was.
    return FieldError("messages", absl::StrCat("the chat template cannot be run on this "
                                               "conversation: ",
                                               Unmark(text).text));
  }
  return ToStatus(static_cast<WeftTextStatus>(result), text);
}

// -- Rendering -----------------------------------------------------------------------------------

absl::StatusOr<std::string> ChatTemplate::RenderMarked(const ChatPrompt& prompt,
                                                       const TemplateTraits& traits,
                                                       bool* ended) const {
  // The limits in front follow from what comes behind them.
  std::string request(kLimitsBytes, '\0');
  WEFT_ASSIGN_OR_RETURN(const size_t values,
                        WriteVariables(prompt, traits, {tokenizer_, &marked_.words}, &request));
  const uint64_t fuel = kTemplateFuelBase + kTemplateFuelPerMessage * prompt.messages.size() +
                        kTemplateFuelPerValue * values;
  std::string limits;
  AppendNumber(&limits, static_cast<uint32_t>(
                            std::min<uint64_t>(fuel, std::numeric_limits<uint32_t>::max())));
  AppendNumber(&limits, kMarkedBytesMax);
  AppendNumber(&limits, options_.now_unix_s);
  request.replace(0, kLimitsBytes, limits);
  if (request.size() > kTemplateRequestBytesMax) {
    return FieldError("messages", absl::StrCat("have ", request.size(),
                                               " bytes with the marks that keep control tokens in "
                                               "them from being read as such; at most ",
                                               kTemplateRequestBytesMax, " are taken"));
  }
  return Call(request, ended);
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const ChatPrompt& prompt) const {
  if (prompt.messages.size() > kChatMessagesMax) {
    return FieldError("messages", absl::StrCat("are ", prompt.messages.size(), "; at most ",
                                               kChatMessagesMax, " are taken"));
  }
  bool ended = false;
  WEFT_ASSIGN_OR_RETURN(const std::string text, RenderMarked(prompt, traits_, &ended));
  std::optional<size_t> open_end;
  RenderedChat chat = Unmark(text, prompt.continue_final_message ? &open_end : nullptr);
  if (prompt.continue_final_message) {
    WEFT_RETURN_IF_ERROR(LeaveOpen(prompt.messages.back(), open_end, &chat));
  }
  // The strings have their marks in any case: the template's literals do too.
  if (options_.allow_control_tokens) chat.breaks.clear();
  if (chat.text.size() > kTemplateOutputBytesMax) return TooLarge(chat.text.size());
  return chat;
}

absl::Status ChatTemplate::Probe() const {
  ChatPrompt prompt;
  prompt.messages = {{"user", "Hello"}, {"assistant", "Hello"}, {"user", "Hello"}};
  const absl::StatusOr<RenderedChat> rendered = Render(prompt);
  if (!rendered.ok()) return rendered.status();
  if (rendered->text.empty()) {
    return absl::InvalidArgumentError("the chat template gives no text for a short conversation");
  }
  return absl::OkStatus();
}

}  // namespace weft::router
