#include "router/doors/grpc/request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/doors/grpc/chat.h"
#include "router/doors/resume.h"
#include "router/errors.h"
#include "router/range.h"

namespace weft::router {
namespace {

// Path of each canonical field that the engine may name.
struct FieldPath {
  absl::string_view field;
  absl::string_view path;
};
constexpr FieldPath kPaths[] = {{"max_tokens", "stopping.max_tokens"},
                                {"stop_sequences", "stopping.stop_sequences"},
                                {"allowed_token_ids", "decoding.allowed_token_ids"},
                                {"bad_words", "decoding.bad_words"},
                                {"min_tokens", "stopping.min_tokens"},
                                {"stop_token_ids", "stopping.stop_token_ids"},
                                {"logit_bias", "decoding.logit_bias"},
                                {"top_logprobs", "response.top_logprobs"},
                                {"prompt_logprobs", "response.prompt_logprobs"},
                                {"messages", "chat.messages"},
                                {"tools", "chat.tools"},
                                {"continue_final_message", "chat.continue_final_message"},
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

absl::Status ReadPrompt(weft::v1::GenerateRequest* request, ToolChoice* choice,
                        GenerateInput* input) {
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
      WEFT_ASSIGN_OR_RETURN(input->prompt, ReadChat(request->mutable_chat(), choice));
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
  if (from.top_k() != 0) to.top_k = from.top_k();
  if (from.has_top_p()) to.top_p = from.top_p();
  if (from.min_p() != 0) to.min_p = from.min_p();
  if (from.has_typical_p()) to.typical_p = from.typical_p();
  if (from.has_seed()) input->seed = from.seed();
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.temperature", to.temperature, {0, kTemperatureMax}));
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.top_k", to.top_k, {0, kVocabMax}));
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.top_p", to.top_p, kPositiveShareRange));
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.min_p", to.min_p, kShareRange));
  WEFT_RETURN_IF_ERROR(CheckNumber("sampling.typical_p", to.typical_p, kPositiveShareRange));
  if (from.has_n()) {
    WEFT_RETURN_IF_ERROR(CheckNumber("sampling.n", from.n(), {1, kChoicesMax}));
  }
  return absl::OkStatus();
}

absl::Status ReadBans(const weft::v1::DecodingParameters& from, GenerateInput* input) {
  const auto check_count = [](absl::string_view field, int count, size_t most) {
    if (static_cast<size_t>(count) <= most) return absl::OkStatus();
    return FieldError(field, absl::StrCat("must have at most ", most, " entries, not ", count));
  };
  WEFT_RETURN_IF_ERROR(
      check_count("decoding.allowed_token_ids", from.allowed_token_ids_size(), kAllowedIdsMax));
  WEFT_RETURN_IF_ERROR(check_count("decoding.bad_words", from.bad_words_size(), kBadWordsMax));
  if (from.allowed_token_ids_size() > 0) {
    WEFT_ASSIGN_OR_RETURN(input->allowed_token_ids,
                          ReadIds("decoding.allowed_token_ids", from.allowed_token_ids()));
    SortIds(&input->allowed_token_ids);
  }
  for (const std::string& word : from.bad_words()) {
    if (word.empty() || word.size() > kBadWordBytesMax) {
      return FieldError("decoding.bad_words",
                        absl::StrCat("must hold strings of 1 to ", kBadWordBytesMax, " bytes"));
    }
    input->bad_words.push_back(word);
  }
  input->watermark = from.watermark();
  return absl::OkStatus();
}

absl::Status ReadGrammar(const weft::v1::Grammar& from, GenerateInput* input) {
  using Kind = GrammarSpec::Kind;
  GrammarSpec spec;
  const auto one = [&spec](Kind kind, const std::string& text) {
    spec.kind = kind;
    spec.texts = {text};
  };
  switch (from.kind_case()) {
    case weft::v1::Grammar::kJsonSchema:
      one(Kind::kJsonSchema, from.json_schema());
      break;
    case weft::v1::Grammar::kJsonObject:
      if (!from.json_object()) {
        return FieldError("decoding.grammar.json_object", "must be true, or left out");
      }
      spec.kind = Kind::kJsonObject;
      break;
    case weft::v1::Grammar::kRegex:
      one(Kind::kRegex, from.regex());
      break;
    case weft::v1::Grammar::kLark:
      one(Kind::kLark, from.lark());
      break;
    case weft::v1::Grammar::kChoice:
      spec.kind = Kind::kChoice;
      spec.texts.assign(from.choice().texts().begin(), from.choice().texts().end());
      break;
    case weft::v1::Grammar::kStructuralTag:
      one(Kind::kStructuralTag, from.structural_tag());
      break;
    case weft::v1::Grammar::KIND_NOT_SET:
      return FieldError("decoding.grammar", "one of its kinds is required");
  }
  spec.closed_objects = from.closed_objects();
  input->grammar = std::move(spec);
  input->grammar_field = "decoding.grammar";
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
  if (static_cast<size_t>(from.stop_token_ids_size()) > kStopTokenIdsMax) {
    return FieldError("stopping.stop_token_ids",
                      absl::StrCat("must hold at most ", kStopTokenIdsMax, " token ids, not ",
                                   from.stop_token_ids_size()));
  }
  if (from.stop_token_ids_size() > 0) {
    WEFT_ASSIGN_OR_RETURN(input->stop_token_ids,
                          ReadIds("stopping.stop_token_ids", from.stop_token_ids()));
    SortIds(&input->stop_token_ids);
  }
  WEFT_RETURN_IF_ERROR(
      CheckNumber("stopping.min_tokens", from.min_tokens(),
                  {0, static_cast<double>(input->max_tokens.value_or(kContextTokensMax))}));
  input->sampling.min_tokens = from.min_tokens();
  input->include_stop_sequence = from.include_stop_sequence();
  input->ignore_eos = from.ignore_eos();
  return absl::OkStatus();
}

absl::Status ReadResponse(const weft::v1::ResponseOptions& from, GenerateInput* input) {
  input->sampling.logprobs = from.logprobs();
  input->sampling.top_logprobs = from.top_logprobs();
  input->echo_prompt = from.echo_prompt();
  input->skip_special_tokens = !from.keep_special_tokens();
  WEFT_RETURN_IF_ERROR(
      CheckNumber("response.top_logprobs", from.top_logprobs(), {0, kTopLogprobsMax}));
  if (from.top_logprobs() > 0 && !from.logprobs()) {
    return FieldError("response.top_logprobs", "needs response.logprobs");
  }
  if (from.has_prompt_logprobs()) {
    WEFT_RETURN_IF_ERROR(
        CheckNumber("response.prompt_logprobs", from.prompt_logprobs(), {0, kTopLogprobsMax}));
    input->prompt_logprobs = from.prompt_logprobs();
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

absl::Status ReadUnknown(const DoorContext& doors, const weft::v1::GenerateRequest& request,
                         std::vector<std::string>* ignored) {
  ListUnknown(request, "", ignored);
  if (request.has_sampling()) ListUnknown(request.sampling(), "sampling.", ignored);
  if (request.has_decoding()) ListUnknown(request.decoding(), "decoding.", ignored);
  if (request.decoding().has_grammar()) {
    ListUnknown(request.decoding().grammar(), "decoding.grammar.", ignored);
  }
  if (request.has_stopping()) ListUnknown(request.stopping(), "stopping.", ignored);
  if (request.has_response()) ListUnknown(request.response(), "response.", ignored);
  if (request.has_chat()) ListUnknownChat(request.chat(), ignored);
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
  const ModelFacts model = doors.entrance().Model();
  input.sampling = model.sampling_defaults;
  ToolChoice choice;
  WEFT_RETURN_IF_ERROR(ReadPrompt(from, &choice, &input));
  WEFT_RETURN_IF_ERROR(ReadSampling(request.sampling(), &input));
  WEFT_RETURN_IF_ERROR(ReadDecoding(request.decoding(), &input.sampling));
  WEFT_RETURN_IF_ERROR(ReadBans(request.decoding(), &input));
  if (request.decoding().has_grammar()) {
    WEFT_RETURN_IF_ERROR(ReadGrammar(request.decoding().grammar(), &input));
  }
  WEFT_RETURN_IF_ERROR(ReadStopping(request.stopping(), &input));
  WEFT_RETURN_IF_ERROR(ReadResponse(request.response(), &input));
  WEFT_RETURN_IF_ERROR(ReadParts(model, request.response(), std::move(choice), &input));
  if (request.has_resume()) WEFT_RETURN_IF_ERROR(ReadResume(request.resume(), &input));
  if (request.has_resume() && input.prompt_logprobs.has_value()) {
    return FieldError("response.prompt_logprobs", "is not for a request that resumes an answer");
  }
  if (request.has_resume() && request.sampling().n() > 1) {
    return FieldError("resume", "is for streams of one answer");
  }
  if (request.has_truncate_prompt_tokens()) {
    WEFT_RETURN_IF_ERROR(CheckNumber("truncate_prompt_tokens", request.truncate_prompt_tokens(),
                                     {1, kContextTokensMax}));
    input.truncate_prompt_tokens = request.truncate_prompt_tokens();
  }
  WEFT_RETURN_IF_ERROR(
      CheckNumber("priority", request.priority(), {-kPriorityAbsMax, kPriorityAbsMax}));
  if (request.has_priority()) input.priority = request.priority();
  if (request.cache_salt().size() > kCacheSaltBytesMax) {
    return FieldError("cache_salt",
                      absl::StrCat("must have at most ", kCacheSaltBytesMax, " bytes"));
  }
  input.cache_salt = request.cache_salt();
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
      ToolChoice choice;
      WEFT_ASSIGN_OR_RETURN(ChatPrompt chat, ReadChat(request->mutable_chat(), &choice));
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
  return RenameFields(status, [&request](const std::string& field) {
    if (field == "prompt") return std::string(PromptField(request));
    for (const FieldPath& known : kPaths) {
      if (field == known.field) return std::string(known.path);
    }
    return field;
  });
}

}  // namespace weft::router
