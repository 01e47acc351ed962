#include "router/doors/grpc/request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "google/protobuf/unknown_field_set.h"
#include "router/doors/range.h"
#include "router/doors/resume.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// Path of each canonical field that the engine may name.
struct FieldPath {
  absl::string_view field;
  absl::string_view path;
};
constexpr FieldPath kPaths[] = {{"max_tokens", "stopping.max_tokens"},
                                {"stop_sequences", "stopping.stop_sequences"},
                                {"logit_bias", "decoding.logit_bias"},
                                {"top_logprobs", "response.top_logprobs"},
                                {"seed", "sampling.seed"}};

absl::string_view PromptField(const weft::v1::GenerateRequest& request) {
  switch (request.prompt_case()) {
    case weft::v1::GenerateRequest::kText:
      return "text";
    case weft::v1::GenerateRequest::kTokenIds:
      return "token_ids";
    case weft::v1::GenerateRequest::kChat:
      return "chat";
    case weft::v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return "prompt";
}

absl::Status CheckNumber(absl::string_view field, double value, const Range& range) {
  if (range.Contains(value)) return absl::OkStatus();
  return FieldError(field, absl::StrCat("must be ", range.Text(), ", not ", NumberText(value)));
}

absl::Status CheckText(absl::string_view field, absl::string_view text) {
  if (text.empty()) return FieldError(field, "must not be empty");
  if (text.size() > kPromptBytesMax) {
    return FieldError(field, absl::StrCat("is longer than ", kPromptBytesMax, " bytes"));
  }
  return absl::OkStatus();
}

template <typename Ids>
absl::StatusOr<std::vector<TokenId>> ReadIds(absl::string_view field, const Ids& ids) {
  if (ids.empty()) return FieldError(field, "must not be empty");
  if (static_cast<uint32_t>(ids.size()) > kContextTokensMax) {
    return FieldError(
        field, absl::StrCat("must have at most ", kContextTokensMax, " ids, not ", ids.size()));
  }
  for (const uint32_t id : ids) {
    if (id >= kVocabMax) {
      return FieldError(
          field, absl::StrCat("must hold token ids between 0 and ", kVocabMax - 1, ", not ", id));
    }
  }
  return std::vector<TokenId>(ids.begin(), ids.end());
}

absl::StatusOr<ChatPrompt> ReadChat(weft::v1::ChatPrompt* from) {
  const weft::v1::ChatPrompt& chat = *from;
  if (chat.messages().empty() || static_cast<size_t>(chat.messages_size()) > kChatMessagesMax) {
    return FieldError("chat.messages",
                      absl::StrCat("must hold 1 to ", kChatMessagesMax, " messages"));
  }
  ChatPrompt prompt;
  prompt.add_generation_prompt = !chat.has_add_generation_prompt() || chat.add_generation_prompt();
  size_t bytes = 0;
  for (int i = 0; i < chat.messages_size(); ++i) {
    const weft::v1::ChatMessage& message = chat.messages(i);
    if (message.role().empty() || message.role().size() > 64) {
      return FieldError(absl::StrCat("chat.messages[", i, "].role"), "must have 1 to 64 bytes");
    }
    bytes += message.content().size();
    prompt.messages.push_back(
        {message.role(), std::move(*from->mutable_messages(i)->mutable_content())});
  }
  if (bytes > kPromptBytesMax) {
    return FieldError("chat.messages",
                      absl::StrCat("hold more than ", kPromptBytesMax, " bytes of text"));
  }
  return prompt;
}

absl::Status ReadPrompt(weft::v1::GenerateRequest* request, GenerateInput* input) {
  switch (request->prompt_case()) {
    case weft::v1::GenerateRequest::kText:
      WEFT_RETURN_IF_ERROR(CheckText("text", request->text()));
      input->prompt = std::move(*request->mutable_text());
      return absl::OkStatus();
    case weft::v1::GenerateRequest::kTokenIds: {
      WEFT_ASSIGN_OR_RETURN(input->prompt, ReadIds("token_ids", request->token_ids().ids()));
      return absl::OkStatus();
    }
    case weft::v1::GenerateRequest::kChat: {
      WEFT_ASSIGN_OR_RETURN(input->prompt, ReadChat(request->mutable_chat()));
      return absl::OkStatus();
    }
    case weft::v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return FieldError("prompt", "one of text, token_ids and chat is required");
}

absl::Status ReadSampling(const weft::v1::SamplingParameters& from, GenerateInput* input) {
  SamplingParams& to = input->sampling;
  if (from.has_temperature()) to.temperature = from.temperature();
  to.top_k = from.top_k();
  if (from.has_top_p()) to.top_p = from.top_p();
  to.min_p = from.min_p();
  if (from.has_typical_p()) to.typical_p = from.typical_p();
  if (from.has_seed()) input->seed = from.seed();
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.temperature", to.temperature, {0, kTemperatureMax}));
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.top_k", to.top_k, {0, kVocabMax}));
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.top_p", to.top_p, kPositiveShareRange));
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.min_p", to.min_p, kShareRange));
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.typical_p", to.typical_p, kPositiveShareRange));
  if (from.has_n() && from.n() != 1) {
    return FieldError("sampling.n", "other than 1 is not supported");
  }
  return absl::OkStatus();
}

absl::Status ReadDecoding(const weft::v1::DecodingParameters& from, SamplingParams* to) {
  if (from.has_repetition_penalty()) to->repetition_penalty = from.repetition_penalty();
  to->presence_penalty = from.presence_penalty();
  to->frequency_penalty = from.frequency_penalty();
  WEFT_RETURN_IF_ERROR(
      CheckNumber("decoding.repetition_penalty", to->repetition_penalty, kRepetitionPenaltyRange));
  WEFT_RETURN_IF_ERROR(
      CheckNumber("decoding.presence_penalty", to->presence_penalty, kPenaltyRange));
  WEFT_RETURN_IF_ERROR(
      CheckNumber("decoding.frequency_penalty", to->frequency_penalty, kPenaltyRange));
  if (static_cast<size_t>(from.logit_bias_size()) > kLogitBiasMax) {
    return FieldError("decoding.logit_bias",
                      absl::StrCat("must have at most ", kLogitBiasMax, " entries, not ",
                                   from.logit_bias_size()));
  }
  for (const weft::v1::LogitBias& bias : from.logit_bias()) {
    if (bias.id() >= kVocabMax) {
      return FieldError("decoding.logit_bias", absl::StrCat("must hold token ids between 0 and ",
                                                            kVocabMax - 1, ", not ", bias.id()));
    }
    WEFT_RETURN_IF_ERROR(
        CheckNumber("decoding.logit_bias", bias.bias(), {-kLogitBiasAbsMax, kLogitBiasAbsMax}));
    to->logit_bias.emplace_back(bias.id(), bias.bias());
  }
  std::sort(to->logit_bias.begin(), to->logit_bias.end());
  const auto twice =
      std::adjacent_find(to->logit_bias.begin(), to->logit_bias.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != to->logit_bias.end()) {
    return FieldError("decoding.logit_bias", absl::StrCat("holds token ", twice->first, " twice"));
  }
  return absl::OkStatus();
}

absl::Status ReadStopping(const weft::v1::StoppingParameters& from, GenerateInput* input) {
  if (from.has_max_tokens()) {
    WEFT_RETURN_IF_ERROR(
        CheckNumber("stopping.max_tokens", from.max_tokens(), {1, kContextTokensMax}));
    input->max_tokens = from.max_tokens();
  }
  if (static_cast<size_t>(from.stop_sequences_size()) > kStopSequencesMax) {
    return FieldError("stopping.stop_sequences",
                      absl::StrCat("must hold at most ", kStopSequencesMax, " strings, not ",
                                   from.stop_sequences_size()));
  }
  for (const std::string& stop : from.stop_sequences()) {
    if (stop.empty() || stop.size() > kStopSequenceBytesMax) {
      return FieldError("stopping.stop_sequences", absl::StrCat("must hold strings of 1 to ",
                                                                kStopSequenceBytesMax, " bytes"));
    }
    input->stop_sequences.push_back(stop);
  }
  input->include_stop_sequence = from.include_stop_sequence();
  input->ignore_eos = from.ignore_eos();
  return absl::OkStatus();
}

absl::Status ReadResponse(const weft::v1::ResponseOptions& from, GenerateInput* input) {
  input->sampling.logprobs = from.logprobs();
  input->sampling.top_logprobs = from.top_logprobs();
  input->echo_prompt = from.echo_prompt();
  WEFT_RETURN_IF_ERROR(
      CheckNumber("response.top_logprobs", from.top_logprobs(), {0, kTopLogprobsMax}));
  if (from.top_logprobs() > 0 && !from.logprobs()) {
    return FieldError("response.top_logprobs", "needs response.logprobs");
  }
  return absl::OkStatus();
}

absl::Status ReadResume(const weft::v1::Resume& from, GenerateInput* input) {
  input->resume.emplace();
  if (from.output_ids_size() > 0) {
    WEFT_ASSIGN_OR_RETURN(input->resume->output_ids,
                          ReadIds("resume.output_ids", from.output_ids()));
  }
  std::optional<uint64_t> seed;
  if (from.has_seed()) seed = from.seed();
  return SettleResume(from.fingerprint(), seed, "resume.", "sampling.seed", input);
}

void ListUnknown(const google::protobuf::Message& message, absl::string_view path,
                 std::vector<std::string>* out) {
  const google::protobuf::UnknownFieldSet& unknown =
      message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    out->push_back(absl::StrCat(path, unknown.field(i).number()));
  }
}

absl::Status ReadUnknown(const DoorContext& doors, const weft::v1::GenerateRequest& request,
                         std::vector<std::string>* ignored) {
  ListUnknown(request, "", ignored);
  if (request.has_sampling()) ListUnknown(request.sampling(), "sampling.", ignored);
  if (request.has_decoding()) ListUnknown(request.decoding(), "decoding.", ignored);
  if (request.has_stopping()) ListUnknown(request.stopping(), "stopping.", ignored);
  if (request.has_response()) ListUnknown(request.response(), "response.", ignored);
  if (request.has_chat()) ListUnknown(request.chat(), "chat.", ignored);
  if (request.has_resume()) ListUnknown(request.resume(), "resume.", ignored);
  if (ignored->empty()) return absl::OkStatus();
  if (doors.options().strict_fields) {
    return FieldError(ignored->front(), "is a field number this server does not know");
  }
  doors.probe().IgnoredFields(Door::kGrpc, static_cast<uint32_t>(ignored->size()));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMessageBytes(size_t bytes, size_t bytes_max) {
  if (bytes <= bytes_max) return absl::OkStatus();
  return FieldError("request",
                    absl::StrCat("has ", bytes, " bytes; at most ", bytes_max, " are taken"));
}

absl::StatusOr<GenerateInput> ReadGenerate(const DoorContext& doors,
                                           weft::v1::GenerateRequest* from,
                                           std::vector<std::string>* ignored) {
  const weft::v1::GenerateRequest& request = *from;
  GenerateInput input;
  if (!request.request_id().empty() && !IsRequestId(request.request_id())) {
    return FieldError("request_id", "must have 1 to 128 characters of [A-Za-z0-9._-]");
  }
  input.correlation_id = request.request_id();
  WEFT_RETURN_IF_ERROR(doors.CheckModel(request.model()));
  WEFT_RETURN_IF_ERROR(ReadPrompt(from, &input));
  WEFT_RETURN_IF_ERROR(ReadSampling(request.sampling(), &input));
  WEFT_RETURN_IF_ERROR(ReadDecoding(request.decoding(), &input.sampling));
  WEFT_RETURN_IF_ERROR(ReadStopping(request.stopping(), &input));
  WEFT_RETURN_IF_ERROR(ReadResponse(request.response(), &input));
  if (request.has_resume()) WEFT_RETURN_IF_ERROR(ReadResume(request.resume(), &input));
  if (request.has_truncate_prompt_tokens()) {
    WEFT_RETURN_IF_ERROR(CheckNumber("truncate_prompt_tokens", request.truncate_prompt_tokens(),
                                     {1, kContextTokensMax}));
    input.truncate_prompt_tokens = request.truncate_prompt_tokens();
  }
  WEFT_RETURN_IF_ERROR(
      CheckNumber("priority", request.priority(), {-kPriorityAbsMax, kPriorityAbsMax}));
  if (request.has_priority()) input.priority = request.priority();
  input.add_special_tokens = !request.has_add_special_tokens() || request.add_special_tokens();
  WEFT_RETURN_IF_ERROR(ReadUnknown(doors, request, ignored));
  return input;
}

void FreePrompt(weft::v1::GenerateRequest* request) {
  // Clear() would keep the memory for the next message.
  if (request->has_text()) std::string().swap(*request->mutable_text());
  if (request->has_token_ids()) weft::v1::TokenIds().Swap(request->mutable_token_ids());
  if (request->has_chat()) weft::v1::ChatPrompt().Swap(request->mutable_chat());
  if (request->has_resume()) weft::v1::Resume().Swap(request->mutable_resume());
}

absl::StatusOr<std::variant<std::string, ChatPrompt>> ReadTokenize(
    weft::v1::TokenizeRequest* request) {
  switch (request->prompt_case()) {
    case weft::v1::TokenizeRequest::kText:
      WEFT_RETURN_IF_ERROR(CheckText("text", request->text()));
      return std::move(*request->mutable_text());
    case weft::v1::TokenizeRequest::kChat: {
      WEFT_ASSIGN_OR_RETURN(ChatPrompt chat, ReadChat(request->mutable_chat()));
      return chat;
    }
    case weft::v1::TokenizeRequest::PROMPT_NOT_SET:
      break;
  }
  return FieldError("prompt", "one of text and chat is required");
}

absl::StatusOr<std::vector<TokenId>> ReadDetokenize(const weft::v1::DetokenizeRequest& request) {
  return ReadIds("ids", request.ids());
}

absl::Status WithGrpcField(const absl::Status& status, const weft::v1::GenerateRequest& request) {
  const std::optional<std::string> field = ErrorField(status);
  if (!field.has_value()) return status;
  if (*field == "prompt") return RenameField(status, PromptField(request));
  for (const FieldPath& known : kPaths) {
    if (*field == known.field) return RenameField(status, known.path);
  }
  return status;
}

}  // namespace weft::router
