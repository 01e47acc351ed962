#include "tests/router/doors/input_fault.h"

#include <boost/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/utf8.h"
#include "router/doors/door_context.h"
#include "router/range.h"

namespace weft::router {
namespace {

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

// True for JSON text of that kind, and for none.
bool IsJson(const std::string& text, boost::json::kind kind) {
  if (text.empty()) return true;
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(text, error);
  return !error && value.kind() == kind && IsUtf8(text);
}

std::string MessageFault(const ChatMessage& message) {
  if (message.role.empty() || message.role.size() > 64) return "a role";
  for (const std::string* text : {&message.role, &message.content, &message.name,
                                  &message.tool_call_id, &message.reasoning_content}) {
    if (!IsUtf8(*text)) return "not UTF-8";
  }
  if (message.content_parts.size() > kContentPartsMax) return "content_parts";
  if (!message.content.empty() && !message.content_parts.empty()) return "two contents";
  for (const std::string& part : message.content_parts) {
    if (!IsUtf8(part)) return "a part is not UTF-8";
  }
  const bool has_content = !message.content.empty() || !message.content_parts.empty();
  if (message.no_content && (has_content || message.tool_calls.empty())) return "no content";
  if (message.name.size() > kToolNameBytesMax) return "name";
  if (message.tool_call_id.size() > kToolCallIdBytesMax) return "tool_call_id";
  if (message.tool_calls.size() > kToolCallsMax) return "tool_calls";
  for (const ToolCall& call : message.tool_calls) {
    if (call.id.size() > kToolCallIdBytesMax || !IsUtf8(call.id)) return "id of a call";
    if (call.name.empty() || call.name.size() > kToolNameBytesMax) return "name of a call";
    if (call.arguments.empty() || !IsJson(call.arguments, boost::json::kind::object)) {
      return "arguments of a call";
    }
  }
  return "";
}

std::string PromptFault(const GenerateInput& input) {
  if (const auto* text = std::get_if<std::string>(&input.prompt)) {
    if (text->empty() || text->size() > kPromptBytesMax) return "text: its size";
    return IsUtf8(*text) ? "" : "text: not UTF-8";
  }
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&input.prompt)) {
    if (ids->empty() || ids->size() > kContextTokensMax) return "token_ids: their number";
    for (const TokenId id : *ids) {
      if (id >= kVocabMax) return "token_ids: an id";
    }
    return "";
  }
  const ChatPrompt& chat = std::get<ChatPrompt>(input.prompt);
  if (chat.messages.empty() || chat.messages.size() > kChatMessagesMax) return "messages";
  for (const ChatMessage& message : chat.messages) {
    if (std::string fault = MessageFault(message); !fault.empty()) return "messages: " + fault;
  }
  if (chat.add_generation_prompt && chat.continue_final_message) return "continue_final_message";
  if (chat.continue_final_message && chat.messages.back().no_content) return "nothing to continue";
  if (!IsJson(chat.tools, boost::json::kind::array)) return "tools";
  if (!IsJson(chat.documents, boost::json::kind::array)) return "documents";
  if (!IsJson(chat.template_kwargs, boost::json::kind::object)) return "chat_template_kwargs";
  return TextBytes(chat) > kPromptBytesMax ? "messages: their size" : "";
}

std::string SamplingFault(const SamplingParams& sampling) {
  if (!Range{0, kTemperatureMax}.Contains(sampling.temperature)) return "temperature";
  if (sampling.top_k > kVocabMax) return "top_k";
  if (!kPositiveShareRange.Contains(sampling.top_p)) return "top_p";
  if (!kShareRange.Contains(sampling.min_p)) return "min_p";
  if (!kPositiveShareRange.Contains(sampling.typical_p)) return "typical_p";
  if (!kRepetitionPenaltyRange.Contains(sampling.repetition_penalty)) return "repetition_penalty";
  if (!kPenaltyRange.Contains(sampling.presence_penalty)) return "presence_penalty";
  if (!kPenaltyRange.Contains(sampling.frequency_penalty)) return "frequency_penalty";
  if (sampling.top_logprobs > kTopLogprobsMax) return "top_logprobs";
  if (sampling.top_logprobs > 0 && !sampling.logprobs) return "top_logprobs: without logprobs";
  if (sampling.logit_bias.size() > kLogitBiasMax) return "logit_bias: too many";
  for (size_t i = 0; i < sampling.logit_bias.size(); ++i) {
    const auto& [id, bias] = sampling.logit_bias[i];
    if (id >= kVocabMax) return "logit_bias: an id";
    if (i > 0 && id <= sampling.logit_bias[i - 1].first) return "logit_bias: the order";
    if (!Range{-kLogitBiasAbsMax, kLogitBiasAbsMax}.Contains(bias)) return "logit_bias: a value";
  }
  return "";
}

std::string PromptWords(const GenerateInput& input) {
  if (const auto* text = std::get_if<std::string>(&input.prompt)) return absl::CHexEscape(*text);
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&input.prompt)) {
    return absl::StrCat("ids ", absl::StrJoin(*ids, ","));
  }
  const ChatPrompt& chat = std::get<ChatPrompt>(input.prompt);
  std::string text = absl::StrCat("chat ", chat.add_generation_prompt, chat.continue_final_message);
  for (const ChatMessage& message : chat.messages) {
    absl::StrAppend(&text, " ", absl::CHexEscape(message.role), ":",
                    absl::CHexEscape(message.content), message.no_content ? " none" : "");
    for (const std::string& part : message.content_parts) {
      absl::StrAppend(&text, " part ", absl::CHexEscape(part));
    }
    absl::StrAppend(&text, " name ", absl::CHexEscape(message.name), " answers ",
                    absl::CHexEscape(message.tool_call_id), " thinks ",
                    absl::CHexEscape(message.reasoning_content));
    for (const ToolCall& call : message.tool_calls) {
      absl::StrAppend(&text, " call ", absl::CHexEscape(call.id), " ", call.name, " ",
                      absl::CHexEscape(call.arguments));
    }
  }
  absl::StrAppend(&text, " tools ", chat.tools, " documents ", chat.documents, " variables ",
                  chat.template_kwargs, " effort ", chat.reasoning_effort);
  return text;
}

template <typename Value>
std::string Optional(const std::optional<Value>& value) {
  return value.has_value() ? absl::StrCat(*value) : "none";
}

}  // namespace

std::string InputFault(const GenerateInput& input) {
  if (std::string fault = PromptFault(input); !fault.empty()) return fault;
  if (std::string fault = SamplingFault(input.sampling); !fault.empty()) return fault;
  if (!input.correlation_id.empty() && !IsRequestId(input.correlation_id)) return "request_id";
  const uint32_t truncate = input.truncate_prompt_tokens.value_or(1);
  if (truncate == 0 || truncate > kContextTokensMax) return "truncate_prompt_tokens";
  const uint32_t tokens = input.max_tokens.value_or(1);
  if (tokens > kContextTokensMax || (tokens == 0 && !input.echo_prompt)) return "max_tokens";
  if (input.prompt_logprobs.value_or(0) > kTopLogprobsMax) return "prompt_logprobs";
  if (input.prompt_scores_max == 0 || input.prompt_scores_max > kPromptScoresMax) {
    return "what scores it may have";
  }
  if (input.stop_sequences.size() > kStopSequencesMax) return "stop_sequences: too many";
  for (const std::string& stop : input.stop_sequences) {
    if (stop.empty() || stop.size() > kStopSequenceBytesMax) return "stop_sequences: a size";
    if (!IsUtf8(stop)) return "stop_sequences: not UTF-8";
  }
  if (input.resume.has_value()) {
    const ResumeInput& resume = *input.resume;
    if (resume.output_ids.size() > kContextTokensMax) return "resume: too many";
    for (const TokenId id : resume.output_ids) {
      if (id >= kVocabMax) return "resume: an id";
    }
    if (resume.fingerprint.size() > kFingerprintBytesMax) return "resume: the fingerprint's size";
    const bool drawn = input.sampling.temperature >= kTemperatureMin;
    if (drawn && !resume.output_ids.empty() && !input.seed.has_value()) return "resume: no seed";
  }
  const int32_t priority = input.priority.value_or(0);
  return priority < -kPriorityAbsMax || priority > kPriorityAbsMax ? "priority" : "";
}

std::string InputText(const GenerateInput& input) {
  const SamplingParams& sampling = input.sampling;
  std::string text = absl::StrCat(PromptWords(input), " special ", input.add_special_tokens,
                                  " truncate ", Optional(input.truncate_prompt_tokens), " seed ",
                                  Optional(input.seed), " max ", Optional(input.max_tokens));
  absl::StrAppend(&text, " stop [",
                  absl::StrJoin(input.stop_sequences, ",",
                                [](std::string* out, const std::string& stop) {
                                  absl::StrAppend(out, absl::CHexEscape(stop));
                                }),
                  "] ", input.include_stop_sequence, " ", input.ignore_eos, " ", input.echo_prompt,
                  " scores ", Optional(input.prompt_logprobs), " priority ",
                  Optional(input.priority), " deadline ", input.deadline_us, " id ",
                  input.correlation_id);
  absl::StrAppend(&text, " t ", sampling.temperature, " k ", sampling.top_k, " p ", sampling.top_p,
                  " min ", sampling.min_p, " typical ", sampling.typical_p);
  absl::StrAppend(&text, " penalties ", sampling.repetition_penalty, " ", sampling.presence_penalty,
                  " ", sampling.frequency_penalty, " logprobs ", sampling.logprobs, " ",
                  sampling.top_logprobs);
  for (const auto& [id, bias] : sampling.logit_bias) absl::StrAppend(&text, " ", id, ":", bias);
  if (input.resume.has_value()) {
    absl::StrAppend(&text, " resume ", absl::CHexEscape(input.resume->fingerprint), " ids ",
                    absl::StrJoin(input.resume->output_ids, ","));
  }
  return text;
}

}  // namespace weft::router
