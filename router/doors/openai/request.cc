#include "router/doors/openai/request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/grammar.h"
#include "router/doors/http/parameters.h"
#include "router/doors/openai/messages.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// Fields of OpenAI and of vLLM's extensions that no route serves. Those that OpenAI has for chats
// alone are refused in completions too: whoever sends them there counts on them.
constexpr RefusedField kRefusedAnywhere[] = {{"service_tier", "\"auto\"|\"default\""},
                                             {"guided_decoding_backend", ""},
                                             {"guided_whitespace_pattern", ""},
                                             {"grammar", ""},
                                             {"regex", ""},
                                             {"json_schema", ""},
                                             {"ebnf", ""},
                                             {"logits_processors", "[]"},
                                             {"use_beam_search", "false"},
                                             {"length_penalty", "1|1.0"},
                                             {"spaces_between_special_tokens", "true"},
                                             {"return_tokens_as_token_ids", "false"},
                                             {"prompt_embeds", ""},
                                             {"kv_transfer_params", ""},
                                             {"vllm_xargs", "{}"},
                                             {"lora_path", ""},
                                             {"adapter_id", ""},
                                             {"request_id", ""},
                                             {"logprob_token_ids", ""},
                                             {"prompt_cache_retention", "\"in_memory\""},
                                             {"tool_prompt", ""},
                                             {"functions", "[]"},
                                             {"function_call", "\"none\"|\"auto\""},
                                             {"audio", ""},
                                             {"modalities", "[\"text\"]"},
                                             {"prediction", ""},
                                             {"verbosity", "\"medium\""},
                                             {"web_search_options", ""},
                                             {"moderation", ""},
                                             {"media_io_kwargs", "{}"},
                                             {"mm_processor_kwargs", "{}"},
                                             {"guideline", ""},
                                             {"separate_reasoning", "true"},
                                             {"suffix", "\"\""}};

// Completions have an echo.
constexpr RefusedField kRefusedInChat[] = {{"echo", "false"}, {"best_of", "1"}, {"store", "false"}};

constexpr RefusedField kRefusedInCompletions[] = {{"messages", ""},
                                                  {"store", "false"},
                                                  {"prompt_token_ids", ""},
                                                  {"tools", "[]"},
                                                  {"tool_choice", "\"none\"|\"auto\""},
                                                  {"parallel_tool_calls", "true"},
                                                  {"include_reasoning", "true"},
                                                  {"reasoning_effort", "\"none\""},
                                                  {"continue_final_message", "false"},
                                                  {"documents", "[]"},
                                                  {"chat_template", ""},
                                                  {"chat_template_kwargs", "{}"}};

constexpr RefusedField kRefusedStreamOptions[] = {{"include_obfuscation", "false"}};

// -- What both routes share ----------------------------------------------------------------------

void ReadStreamOptions(FieldReader& fields, OpenAiFormat* format,
                       std::vector<std::string>* unknown) {
  format->stream = fields.Bool("stream").value_or(false);
  const boost::json::object* object = fields.Object("stream_options");
  if (object == nullptr) return;
  if (!format->stream) fields.Fail("stream_options", "is only allowed with stream true");
  FieldReader options(*object, "stream_options.");
  format->usage = options.Bool("include_usage").value_or(false);
  format->usage_in_every_chunk = options.Bool("continuous_usage_stats").value_or(false);
  options.Refuse(kRefusedStreamOptions);
  fields.Fail(options.status());
  *unknown = options.Unknown();
}

// How many answers; after all that decides how they are given.
void ReadChoices(FieldReader& fields, bool has_best_of, OpenAiRequest* request) {
  OpenAiFormat& format = request->format;
  const auto count = [&fields](const char* name, uint32_t otherwise) {
    return static_cast<uint32_t>(fields.Integer(name, 1, kChoicesMax).value_or(otherwise));
  };
  format.choices = count("n", 1);
  format.best_of = has_best_of ? count("best_of", format.choices) : format.choices;
  format.prompts = static_cast<uint32_t>(request->inputs.size());
  if (format.best_of < format.choices) fields.Fail("best_of", "must not be less than n");
  if (format.best_of > format.choices && format.stream) {
    fields.Fail("best_of", "more than n is for whole answers: which is best shows at the end");
  }
  const size_t answers = size_t{format.prompts} * format.best_of;
  if (answers > kAnswersMax) {
    fields.Fail(format.prompts > 1 ? "prompt" : "n",
                absl::StrCat("asks for ", answers,
                             " answers with n or best_of; a request has at "
                             "most ",
                             kAnswersMax));
  }
  if (answers > 1 && request->inputs.front().resume.has_value()) {
    fields.Fail("resume", "is for streams of one answer");
  }
  if (format.best_of == format.choices) return;
  for (GenerateInput& input : request->inputs) input.sampling.logprobs = true;
}

void ReadShared(const DoorContext& doors, FieldReader& fields, OpenAiRequest* request,
                std::vector<std::string>* unknown) {
  GenerateInput& input = request->inputs.front();
  ReadSamplingFields(doors, fields, &input);
  ReadStreamOptions(fields, &request->format, unknown);
  request->format.token_ids = fields.Bool("return_token_ids").value_or(false);
  ReadResume(fields, request->format.stream, &input, unknown);
  ReadOpenAiGrammar(fields, &input);
  // They say who asks, not what: no effect on the answer, never logged.
  for (const char* name : {"user", "metadata", "prompt_cache_key", "safety_identifier"}) {
    fields.Accept(name);
  }
}

// vLLM's.
void ReadPromptLogprobs(FieldReader& fields, OpenAiRequest* request) {
  const std::optional<int64_t> top = fields.Integer("prompt_logprobs", 0, kTopLogprobsMax);
  if (!top.has_value()) return;
  if (request->format.stream) fields.Fail("prompt_logprobs", "is for whole answers");
  request->format.prompt_logprobs = static_cast<uint32_t>(*top);
  request->inputs.front().prompt_logprobs = request->format.prompt_logprobs;
}

// The text begins with the prompt, and log-probabilities do too. Behind ReadPromptLogprobs.
void ReadEcho(FieldReader& fields, OpenAiRequest* request) {
  GenerateInput& input = request->inputs.front();
  OpenAiFormat& format = request->format;
  input.echo_prompt = fields.Bool("echo").value_or(false);
  format.echo_logprobs = input.echo_prompt && format.logprobs;
  if (!format.echo_logprobs) return;
  if (format.stream) fields.Fail("echo", "with logprobs is for whole answers");
  input.prompt_logprobs = std::max(input.prompt_logprobs.value_or(0), format.top_logprobs);
}

// With echo a completion may be the prompt alone.
void ReadCompletionLimits(FieldReader& fields, GenerateInput* input) {
  const std::optional<int64_t> limit = fields.Integer("max_tokens", 0, kContextTokensMax);
  if (limit == 0 && !input->echo_prompt) {
    fields.Fail("max_tokens", absl::StrCat("must be an integer between 1 and ", kContextTokensMax,
                                           ", not 0: that needs echo"));
  }
  input->max_tokens = static_cast<uint32_t>(limit.value_or(kCompletionTokensDefault));
  ReadMinTokens(fields, "min_tokens", input);
}

void FillFormat(const DoorContext& doors, const std::string& request_id, bool chat,
                OpenAiRequest* request) {
  OpenAiFormat& format = request->format;
  format.chat = chat;
  format.request_id = request_id;
  format.model = doors.entrance().Model().model_name;
  format.created_unix_s = absl::ToUnixSeconds(absl::Now());
  for (GenerateInput& input : request->inputs) input.correlation_id = request_id;
}

// -- Chat ----------------------------------------------------------------------------------------

void ReadChatLimits(FieldReader& fields, GenerateInput* input) {
  const std::optional<uint32_t> old_name = ReadTokenCount(fields, "max_tokens");
  const std::optional<uint32_t> new_name = ReadTokenCount(fields, "max_completion_tokens");
  if (old_name.has_value() && new_name.has_value() && *old_name != *new_name) {
    fields.Fail("max_tokens", "differs from max_completion_tokens; give one of them");
  }
  input->max_tokens = new_name.has_value() ? new_name : old_name;
  ReadMinTokens(fields, "min_tokens", input);
}

void ReadChatLogprobs(FieldReader& fields, SamplingParams* sampling) {
  sampling->logprobs = fields.Bool("logprobs").value_or(false);
  sampling->top_logprobs =
      static_cast<uint32_t>(fields.Integer("top_logprobs", 0, kTopLogprobsMax).value_or(0));
  if (sampling->top_logprobs > 0 && !sampling->logprobs) {
    fields.Fail("top_logprobs", "needs logprobs true");
  }
}

// -- Completions ---------------------------------------------------------------------------------

using AnyPrompt = decltype(GenerateInput::prompt);

// A string or a list of ids.
absl::StatusOr<AnyPrompt> ReadPrompt(const boost::json::value& value, absl::string_view name) {
  if (const boost::json::string* string = value.if_string()) {
    std::string text(string->data(), string->size());
    WEFT_RETURN_IF_ERROR(CheckPromptText(text, name));
    return AnyPrompt(std::move(text));
  }
  const boost::json::array* array = value.if_array();
  if (array == nullptr) {
    return FieldError(
        name, absl::StrCat("must be a string or a list of token ids, not ", JsonKindName(value)));
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<TokenId> ids, ReadTokenIds(*array, name));
  return AnyPrompt(std::move(ids));
}

// One of these, or a list of them.
absl::StatusOr<std::vector<AnyPrompt>> ReadPrompts(const boost::json::value& value) {
  std::vector<AnyPrompt> prompts;
  const boost::json::array* array = value.if_array();
  const bool several = array != nullptr && !array->empty() &&
                       (array->front().is_string() || array->front().is_array());
  if (!several) {
    WEFT_ASSIGN_OR_RETURN(AnyPrompt prompt, ReadPrompt(value, "prompt"));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (array->size() > kPromptsMax) {
    return FieldError("prompt",
                      absl::StrCat("holds ", array->size(), " prompts, at most ", kPromptsMax));
  }
  for (size_t i = 0; i < array->size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(
        AnyPrompt prompt,
        ReadPrompt((*array)[i],
                   array->size() == 1 ? std::string("prompt") : absl::StrCat("prompt[", i, "]")));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

void ReadSamplingFields(const DoorContext& doors, FieldReader& fields, GenerateInput* input) {
  ReadCommonParameters(doors.entrance().Model().sampling_defaults, fields, input);
  input->sampling.temperature =
      fields.Float("temperature", {0, kTemperatureMax}).value_or(input->sampling.temperature);
  ReadStop(fields, "stop", input);
  input->include_stop_sequence = fields.Bool("include_stop_str_in_output").value_or(false);
  // -1 = no truncation, as in vLLM.
  const std::optional<int64_t> truncate =
      fields.Integer("truncate_prompt_tokens", -1, kContextTokensMax);
  if (truncate == 0) fields.Fail("truncate_prompt_tokens", "must not be 0");
  if (truncate.value_or(-1) > 0) {
    input->truncate_prompt_tokens = static_cast<uint32_t>(*truncate);
  }
  fields.Refuse(kRefusedAnywhere);
}

absl::StatusOr<OpenAiRequest> ReadChatRequest(const DoorContext& doors,
                                              const boost::json::object& body,
                                              const std::string& request_id, Door door) {
  FieldReader fields(body);
  WEFT_RETURN_IF_ERROR(ReadModelName(doors, fields));
  OpenAiRequest request;
  request.inputs.resize(1);
  GenerateInput& input = request.inputs.front();
  std::vector<std::string> unknown_options;
  ChatPrompt prompt;
  ToolChoice choice;
  ReadChatPrompt(fields, &prompt, &choice, &request.ignored);
  ReadShared(doors, fields, &request, &unknown_options);
  ReadChatLimits(fields, &input);
  ReadChatLogprobs(fields, &input.sampling);
  ReadPromptLogprobs(fields, &request);
  request.format.logprobs = input.sampling.logprobs;
  request.format.top_logprobs = input.sampling.top_logprobs;
  ReadChoices(fields, /*has_best_of=*/false, &request);
  fields.Refuse(kRefusedInChat);
  request.format.reasoning = fields.Bool("include_reasoning").value_or(true);
  if (fields.ok()) ReadParts(doors, fields, std::move(choice), &input);
  request.format.parts = input.parts;
  input.prompt = std::move(prompt);
  request.ignored.insert(request.ignored.end(), unknown_options.begin(), unknown_options.end());
  FieldReader* const readers[] = {&fields};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, door, readers, &request.ignored));
  FillFormat(doors, request_id, /*chat=*/true, &request);
  return request;
}

absl::StatusOr<OpenAiRequest> ReadCompletionRequest(const DoorContext& doors,
                                                    const boost::json::object& body,
                                                    const std::string& request_id, Door door) {
  FieldReader fields(body);
  WEFT_RETURN_IF_ERROR(ReadModelName(doors, fields));
  OpenAiRequest request;
  request.inputs.resize(1);
  GenerateInput& input = request.inputs.front();
  std::vector<AnyPrompt> prompts(1);
  if (const boost::json::value* value = fields.Value("prompt")) {
    absl::StatusOr<std::vector<AnyPrompt>> read = ReadPrompts(*value);
    fields.Fail(read.status());
    if (read.ok()) prompts = *std::move(read);
  } else {
    fields.Fail("prompt", "is required");
  }
  ReadShared(doors, fields, &request, &request.ignored);
  const std::optional<int64_t> logprobs = fields.Integer("logprobs", 0, kTopLogprobsMax);
  input.sampling.logprobs = request.format.logprobs = logprobs.has_value();
  input.sampling.top_logprobs = static_cast<uint32_t>(logprobs.value_or(0));
  request.format.top_logprobs = input.sampling.top_logprobs;
  ReadPromptLogprobs(fields, &request);
  ReadEcho(fields, &request);
  ReadCompletionLimits(fields, &input);
  input.prompt_scores_max = kPromptScoresMax / static_cast<uint32_t>(prompts.size());
  request.inputs.resize(prompts.size(), input);
  for (size_t i = 0; i < prompts.size(); ++i) request.inputs[i].prompt = std::move(prompts[i]);
  ReadChoices(fields, /*has_best_of=*/true, &request);
  fields.Refuse(kRefusedInCompletions);
  FieldReader* const readers[] = {&fields};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, door, readers, &request.ignored));
  FillFormat(doors, request_id, /*chat=*/false, &request);
  return request;
}

absl::Span<const RefusedField> RefusedSamplingFields() { return kRefusedAnywhere; }
absl::Span<const RefusedField> RefusedChatFields() { return kRefusedInChat; }
absl::Span<const RefusedField> RefusedCompletionFields() { return kRefusedInCompletions; }

absl::Span<const RefusedField> RefusedStreamOptions() { return kRefusedStreamOptions; }

}  // namespace weft::router
