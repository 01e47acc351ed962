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
#include "router/doors/http/parameters.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// OpenAI's default of /v1/completions.
constexpr uint32_t kCompletionTokensDefault = 16;

// Fields of OpenAI and of vLLM's extensions that no route serves. Those that OpenAI has for chats
// alone are refused in completions too: whoever sends them there counts on them.
constexpr RefusedField kRefusedAnywhere[] = {{"n", "1"},
                                             {"best_of", "1"},
                                             {"store", "false"},
                                             {"service_tier", "\"auto\"|\"default\""},
                                             {"min_tokens", "0"},
                                             {"stop_token_ids", "[]"},
                                             {"prompt_logprobs", "false"},
                                             {"allowed_token_ids", ""},
                                             {"bad_words", "[]"},
                                             {"guided_json", ""},
                                             {"guided_regex", ""},
                                             {"guided_choice", ""},
                                             {"guided_grammar", ""},
                                             {"guided_decoding_backend", ""},
                                             {"guided_whitespace_pattern", ""},
                                             {"structured_outputs", ""},
                                             {"structural_tag", ""},
                                             {"grammar", ""},
                                             {"regex", ""},
                                             {"json_schema", ""},
                                             {"ebnf", ""},
                                             {"response_format", "{\"type\":\"text\"}"},
                                             {"logits_processors", "[]"},
                                             {"use_beam_search", "false"},
                                             {"length_penalty", "1|1.0"},
                                             {"skip_special_tokens", "true"},
                                             {"spaces_between_special_tokens", "true"},
                                             {"return_tokens_as_token_ids", "false"},
                                             {"prompt_embeds", ""},
                                             {"cache_salt", ""},
                                             {"kv_transfer_params", ""},
                                             {"vllm_xargs", "{}"},
                                             {"lora_path", ""},
                                             {"adapter_id", ""},
                                             {"request_id", ""},
                                             {"logprob_token_ids", ""},
                                             {"prompt_cache_retention", "\"in_memory\""},
                                             {"tools", "[]"},
                                             {"tool_choice", "\"none\"|\"auto\""},
                                             {"tool_prompt", ""},
                                             {"parallel_tool_calls", "true"},
                                             {"functions", "[]"},
                                             {"function_call", "\"none\"|\"auto\""},
                                             {"audio", ""},
                                             {"modalities", "[\"text\"]"},
                                             {"prediction", ""},
                                             {"reasoning_effort", "\"none\""},
                                             {"verbosity", "\"medium\""},
                                             {"web_search_options", ""},
                                             {"moderation", ""},
                                             {"continue_final_message", "false"},
                                             {"documents", "[]"},
                                             {"chat_template", ""},
                                             {"chat_template_kwargs", "{}"},
                                             {"media_io_kwargs", "{}"},
                                             {"mm_processor_kwargs", "{}"},
                                             {"guideline", ""},
                                             {"include_reasoning", "true"},
                                             {"separate_reasoning", "true"},
                                             {"suffix", "\"\""}};

// Completions have an echo.
constexpr RefusedField kRefusedInChat[] = {{"echo", "false"}};

constexpr RefusedField kRefusedInCompletions[] = {{"messages", ""}, {"prompt_token_ids", ""}};

constexpr RefusedField kRefusedInMessage[] = {
    {"name", ""},      {"tool_calls", "[]"}, {"tool_call_id", ""},  {"function_call", ""},
    {"audio", ""},     {"refusal", ""},      {"annotations", "[]"}, {"reasoning_content", ""},
    {"reasoning", ""}, {"prefix", "false"},  {"tools", "[]"}};

// -- What both routes share ----------------------------------------------------------------------

void ReadStreamOptions(FieldReader& fields, OpenAiFormat* format,
                       std::vector<std::string>* unknown) {
  format->stream = fields.Bool("stream").value_or(false);
  const boost::json::object* object = fields.Object("stream_options");
  if (object == nullptr) return;
  if (!format->stream) fields.Fail("stream_options", "is only allowed with stream true");
  static constexpr RefusedField kRefused[] = {{"include_obfuscation", "false"}};
  FieldReader options(*object, "stream_options.");
  format->usage = options.Bool("include_usage").value_or(false);
  format->usage_in_every_chunk = options.Bool("continuous_usage_stats").value_or(false);
  options.Refuse(kRefused);
  fields.Fail(options.status());
  *unknown = options.Unknown();
}

void ReadShared(FieldReader& fields, OpenAiRequest* request, std::vector<std::string>* unknown) {
  GenerateInput& input = request->input;
  ReadCommonParameters(fields, &input);
  input.sampling.temperature = fields.Float("temperature", {0, kTemperatureMax}).value_or(1.0f);
  ReadStop(fields, "stop", &input);
  input.include_stop_sequence = fields.Bool("include_stop_str_in_output").value_or(false);
  // -1 = no truncation, as in vLLM.
  const std::optional<int64_t> truncate =
      fields.Integer("truncate_prompt_tokens", -1, kContextTokensMax);
  if (truncate == 0) fields.Fail("truncate_prompt_tokens", "must not be 0");
  if (truncate.value_or(-1) > 0) {
    input.truncate_prompt_tokens = static_cast<uint32_t>(*truncate);
  }
  ReadStreamOptions(fields, &request->format, unknown);
  request->format.token_ids = fields.Bool("return_token_ids").value_or(false);
  ReadResume(fields, request->format.stream, &input, unknown);
  // They say who asks, not what: no effect on the answer, never logged.
  for (const char* name : {"user", "metadata", "prompt_cache_key", "safety_identifier"}) {
    fields.Accept(name);
  }
  fields.Refuse(kRefusedAnywhere);
}

absl::Status ReadModel(const DoorContext& doors, FieldReader& fields) {
  const std::string model = fields.String("model").value_or("");
  WEFT_RETURN_IF_ERROR(fields.status());
  return doors.CheckModel(model);
}

void FillFormat(const DoorContext& doors, const std::string& request_id, bool chat,
                OpenAiRequest* request) {
  OpenAiFormat& format = request->format;
  format.chat = chat;
  format.logprobs = request->input.sampling.logprobs;
  format.top_logprobs = request->input.sampling.top_logprobs;
  format.request_id = request_id;
  format.model = doors.entrance().Model().model_name;
  format.created_unix_s = absl::ToUnixSeconds(absl::Now());
  request->input.correlation_id = request_id;
}

// -- Chat ----------------------------------------------------------------------------------------

std::optional<std::string> ReadContent(FieldReader& message, std::vector<std::string>* unknown) {
  const boost::json::value* content = message.Value("content");
  if (content == nullptr) {
    message.Fail("content", "is required");
    return std::nullopt;
  }
  if (const boost::json::string* text = content->if_string()) {
    return std::string(text->data(), text->size());
  }
  const boost::json::array* parts = content->if_array();
  if (parts == nullptr) {
    message.Fail("content", absl::StrCat("must be a string or a list of text parts, not ",
                                         JsonKindName(*content)));
    return std::nullopt;
  }
  // Parts are joined by a line break, as vLLM does for templates that take strings.
  std::string joined;
  for (size_t i = 0; i < parts->size(); ++i) {
    const std::string path = absl::StrCat(message.path(), "content[", i, "].");
    const boost::json::object* object = (*parts)[i].if_object();
    if (object == nullptr) {
      message.Fail(absl::StrCat("content[", i, "]"), "must be an object");
      return std::nullopt;
    }
    FieldReader part(*object, path);
    const std::string type = part.String("type").value_or("");
    if (type != "text") part.Fail("type", "must be \"text\": other parts are not supported");
    const std::optional<std::string> text = part.String("text");
    if (!text.has_value()) part.Fail("text", "is required");
    if (!part.ok()) {
      message.Fail(part.status());
      return std::nullopt;
    }
    if (i > 0) joined += '\n';
    joined += *text;
    for (std::string& name : part.Unknown()) unknown->push_back(std::move(name));
  }
  return joined;
}

// OpenAI's `developer` is its newer word for `system`.
std::optional<std::string> ReadRole(FieldReader& message) {
  const std::optional<std::string> role = message.String("role");
  if (!role.has_value()) {
    message.Fail("role", "is required");
    return std::nullopt;
  }
  if (*role == "developer") return "system";
  if (*role == "system" || *role == "user" || *role == "assistant") return role;
  const bool tool = *role == "tool" || *role == "function";
  message.Fail("role", tool ? "tool messages are not supported"
                            : "must be system, developer, user or assistant");
  return std::nullopt;
}

void ReadMessages(FieldReader& fields, ChatPrompt* prompt, std::vector<std::string>* unknown) {
  const boost::json::array* messages = fields.Array("messages");
  if (!fields.ok()) return;
  if (messages == nullptr) {
    fields.Fail("messages", "is required");
    return;
  }
  if (messages->empty() || messages->size() > kChatMessagesMax) {
    fields.Fail("messages", absl::StrCat("must hold 1 to ", kChatMessagesMax, " messages"));
    return;
  }
  size_t bytes = 0;
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string name = absl::StrCat("messages[", i, "]");
    const boost::json::object* object = (*messages)[i].if_object();
    if (object == nullptr) {
      fields.Fail(name, "must be an object");
      return;
    }
    FieldReader message(*object, absl::StrCat(name, "."));
    std::optional<std::string> role = ReadRole(message);
    message.Refuse(kRefusedInMessage);
    std::optional<std::string> content = ReadContent(message, unknown);
    if (!message.ok()) {
      fields.Fail(message.status());
      return;
    }
    for (std::string& ignored : message.Unknown()) unknown->push_back(std::move(ignored));
    bytes += content->size();
    prompt->messages.push_back({*std::move(role), *std::move(content)});
  }
  if (bytes > kPromptBytesMax) {
    fields.Fail("messages", absl::StrCat("hold more than ", kPromptBytesMax, " bytes of text"));
  }
}

void ReadChatLimits(FieldReader& fields, GenerateInput* input) {
  const std::optional<uint32_t> old_name = ReadTokenCount(fields, "max_tokens");
  const std::optional<uint32_t> new_name = ReadTokenCount(fields, "max_completion_tokens");
  if (old_name.has_value() && new_name.has_value() && *old_name != *new_name) {
    fields.Fail("max_tokens", "differs from max_completion_tokens; give one of them");
  }
  input->max_tokens = new_name.has_value() ? new_name : old_name;
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

// A string, a list of ids, or a list with one of these.
absl::Status ReadPrompt(const boost::json::value& value, bool in_list, GenerateInput* input) {
  if (const boost::json::string* string = value.if_string()) {
    std::string text(string->data(), string->size());
    WEFT_RETURN_IF_ERROR(CheckPromptText(text, "prompt"));
    input->prompt = std::move(text);
    return absl::OkStatus();
  }
  const boost::json::array* array = value.if_array();
  if (array == nullptr) {
    return FieldError("prompt", absl::StrCat("must be a string or a list of token ids, not ",
                                             JsonKindName(value)));
  }
  const bool nested = !array->empty() && (array->front().is_string() || array->front().is_array());
  if (!in_list && nested) {
    if (array->size() > 1) {
      return FieldError("prompt", absl::StrCat("holds ", array->size(),
                                               " prompts; one prompt a request is served"));
    }
    return ReadPrompt(array->front(), true, input);
  }
  WEFT_ASSIGN_OR_RETURN(input->prompt, ReadTokenIds(*array, "prompt"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenAiRequest> ReadChatRequest(const DoorContext& doors,
                                              const boost::json::object& body,
                                              const std::string& request_id, Door door) {
  FieldReader fields(body);
  WEFT_RETURN_IF_ERROR(ReadModel(doors, fields));
  OpenAiRequest request;
  std::vector<std::string> unknown_options;
  ChatPrompt prompt;
  ReadMessages(fields, &prompt, &request.ignored);
  prompt.add_generation_prompt = fields.Bool("add_generation_prompt").value_or(true);
  ReadShared(fields, &request, &unknown_options);
  ReadChatLimits(fields, &request.input);
  ReadChatLogprobs(fields, &request.input.sampling);
  fields.Refuse(kRefusedInChat);
  request.input.prompt = std::move(prompt);
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
  WEFT_RETURN_IF_ERROR(ReadModel(doors, fields));
  OpenAiRequest request;
  GenerateInput& input = request.input;
  if (const boost::json::value* prompt = fields.Value("prompt")) {
    fields.Fail(ReadPrompt(*prompt, false, &input));
  } else {
    fields.Fail("prompt", "is required");
  }
  ReadShared(fields, &request, &request.ignored);
  input.max_tokens = ReadTokenCount(fields, "max_tokens").value_or(kCompletionTokensDefault);
  input.echo_prompt = fields.Bool("echo").value_or(false);
  const std::optional<int64_t> logprobs = fields.Integer("logprobs", 0, kTopLogprobsMax);
  input.sampling.logprobs = logprobs.has_value();
  input.sampling.top_logprobs = static_cast<uint32_t>(logprobs.value_or(0));
  if (input.echo_prompt && logprobs.has_value()) {
    fields.Fail("echo", "with logprobs is not supported: the prompt's are not computed");
  }
  fields.Refuse(kRefusedInCompletions);
  FieldReader* const readers[] = {&fields};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, door, readers, &request.ignored));
  FillFormat(doors, request_id, /*chat=*/false, &request);
  return request;
}

}  // namespace weft::router
