#include "router/text/prepare.h"

#include <string>
#include <variant>
#include <vector>

#include "common/status.h"
#include "router/errors.h"
#include "router/text/prompt_reader.h"
#include "router/text/resume.h"
#include "router/text/stream_text.h"

namespace weft::router {

namespace {

size_t BytesOf(const std::string& text) { return text.size(); }
size_t BytesOf(const std::vector<TokenId>& /*ids*/) { return 0; }
size_t BytesOf(const ChatPrompt& chat) {
  size_t bytes = 0;
  for (const ChatMessage& message : chat.messages) {
    bytes += message.role.size() + message.content.size();
  }
  return bytes;
}

}  // namespace

size_t TextBytes(const GenerateInput& input) {
  return std::visit([](const auto& prompt) { return BytesOf(prompt); }, input.prompt);
}

size_t TextBytes(const std::variant<std::string, ChatPrompt>& prompt) {
  return std::visit([](const auto& text) { return BytesOf(text); }, prompt);
}

absl::Status Prepare(const TextModel& model, const Admission& admission, uint32_t vocab_size,
                     const std::optional<PrefixHasher>& hasher, const Clock& clock, Probe* probe,
                     ArrivedRequest* arrived, PreparedRequest* prepared) {
  GenerateInput& input = arrived->input;
  Answer& answer = arrived->writer.answer();
  if (input.deadline_us > 0 && clock.NowUs() >= input.deadline_us) {
    answer.Cancel(CancelReason::kDeadline);
  }
  const CancelReason cancelled = answer.cancelled();
  if (cancelled != CancelReason::kNone) return CancelStatus(cancelled);
  WEFT_ASSIGN_OR_RETURN(
      PromptText prompt,
      ReadPrompt(*model.tokenizer, model.chat_template, vocab_size, admission.request_tokens_max(),
                 {&arrived->writer.permit(), &answer.unwanted()}, &input));
  const auto prompt_tokens = static_cast<uint32_t>(prompt.ids.size());
  const absl::StatusOr<uint32_t> max_new_tokens =
      admission.OutputTokens(prompt_tokens, input.max_tokens);
  if (!max_new_tokens.ok()) {
    probe->Rejected(RejectReason::kTooLong, answer.tenant().get());
    return max_new_tokens.status();
  }
  Admission::Permit& permit = arrived->writer.permit();
  prepared->max_new_tokens = *max_new_tokens;
  auto text = std::make_unique<StreamText>(
      Detokenizer(model.tokenizer, /*skip_special=*/true, /*continues=*/true),
      StopMatcher(std::move(input.stop_sequences), input.include_stop_sequence),
      input.echo_prompt ? std::move(prompt.text) : std::string());
  if (input.resume.has_value()) {
    WEFT_RETURN_IF_ERROR(ReadResumed(model, vocab_size, input, &permit, text.get(), prepared));
    const std::vector<TokenId>& ids = input.resume->output_ids;
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  }
  WEFT_RETURN_IF_ERROR(permit.AddTokens(static_cast<uint32_t>(prompt.ids.size())));
  permit.ReleaseTextBytes();
  prepared->text = std::move(text);
  prepared->text_worker = arrived->text_worker;
  // Here and not on the engine's thread: a long prompt takes a millisecond.
  const uint64_t salt = answer.tenant()->cache_salt;
  prepared->prompt = hasher.has_value() ? hasher->Hash(std::move(prompt.ids), salt)
                                        : Prompt(std::move(prompt.ids), salt);
  prepared->prompt_tokens = prompt_tokens;
  prepared->max_tokens_named = input.max_tokens.has_value();
  prepared->sampling = std::move(input.sampling);
  prepared->seed = arrived->seed;
  prepared->priority = input.priority.value_or(0);
  prepared->ignore_eos = input.ignore_eos;
  prepared->deadline_us = input.deadline_us;
  prepared->times.arrival_us = arrived->arrival_us;
  prepared->times.prepared_us = clock.NowUs();
  prepared->writer = std::move(arrived->writer);
  return absl::OkStatus();
}

}  // namespace weft::router
