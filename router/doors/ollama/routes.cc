#include "router/doors/ollama/routes.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "boost/json/value.hpp"
#include "common/limits.h"
#include "common/status.h"
#include "router/doors/chat_json.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/generation_route.h"
#include "router/doors/http/grammar.h"
#include "router/doors/http/json.h"
#include "router/doors/http/parameters.h"
#include "router/doors/http/replies.h"
#include "router/doors/ollama/format.h"
#include "router/doors/openai/messages.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// Fields and options that nobody serves.
constexpr RefusedField kRefused[] = {{"images", "[]"},      {"suffix", "\"\""},
                                     {"template", "\"\""},  {"context", "[]"},
                                     {"logprobs", "false"}, {"top_logprobs", "0"}};
constexpr RefusedField kRefusedOptions[] = {
    {"mirostat", "0"}, {"tfs_z", "1"}, {"repeat_last_n", "-1"}, {"penalize_newline", "true"}};
// How a model is loaded is said at the server's start.
constexpr absl::string_view kLoadOptions[] = {"numa",     "num_ctx",   "num_batch", "num_gpu",
                                              "main_gpu", "low_vram",  "use_mmap",  "use_mlock",
                                              "num_keep", "num_thread"};

void ReadOptions(const DoorContext& doors, FieldReader& options, GenerateInput* input) {
  ReadCommonParameters(doors.entrance().Model().sampling_defaults, options, input);
  input->sampling.temperature =
      options.Float("temperature", {0, kTemperatureMax}).value_or(input->sampling.temperature);
  if (const auto penalty = options.Float("repeat_penalty", kRepetitionPenaltyRange)) {
    input->sampling.repetition_penalty = *penalty;
  }
  ReadStop(options, "stop", input);
  // Below 0: as many as fit.
  const std::optional<int64_t> count = options.Integer("num_predict", -2, kContextTokensMax);
  if (count == 0) options.Fail("num_predict", "must not be 0");
  if (count.value_or(0) > 0) input->max_tokens = static_cast<uint32_t>(*count);
  for (const absl::string_view name : kLoadOptions) options.Accept(name);
  options.Refuse(kRefusedOptions);
}

void ReadFormat(FieldReader& fields, GenerateInput* input) {
  const boost::json::value* format = fields.Value("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    ReadResponseFormat({{"type", "json_object"}}, "format", fields, input);
  } else if (format->is_object()) {
    ReadResponseFormat({{"type", "json_schema"}, {"schema", *format}}, "format", fields, input);
  } else {
    fields.Fail("format", "must be \"json\" or a JSON schema");
  }
}

// True, false, or how much.
void ReadThink(FieldReader& fields, ChatPrompt* prompt) {
  const boost::json::value* think = fields.Value("think");
  if (think == nullptr) return;
  if (!prompt->template_kwargs.empty() || !prompt->reasoning_effort.empty()) {
    fields.Fail("think", "stands beside chat_template_kwargs or reasoning_effort; give one");
  } else if (think->is_bool()) {
    prompt->template_kwargs =
        absl::StrCat("{\"enable_thinking\":", think->get_bool() ? "true" : "false", "}");
  } else if (std::optional<std::string> effort = fields.String("think")) {
    fields.Fail(CheckReasoningEffort(*effort, "think"));
    prompt->reasoning_effort = *std::move(effort);
  }
}

// The prompt of /api/generate. False when it is raw: it stands in `input` as it came.
bool ReadPrompt(FieldReader& fields, ChatPrompt* prompt, GenerateInput* input) {
  std::string text = fields.String("prompt").value_or("");
  fields.Fail(CheckPromptText(text, "prompt"));
  std::string system = fields.String("system").value_or("");
  if (fields.Bool("raw").value_or(false)) {
    if (!system.empty()) fields.Fail("system", "stands beside a raw prompt");
    input->prompt = std::move(text);
    return false;
  }
  if (!system.empty()) prompt->messages.emplace_back("system", std::move(system));
  prompt->messages.emplace_back("user", std::move(text));
  fields.Fail(RenameField(CheckChat(*prompt, ""), "prompt"));
  return true;
}

absl::StatusOr<ReadGeneration> ReadBody(const DoorContext& doors, bool chat,
                                        const boost::json::object& body,
                                        const std::string& request_id) {
  FieldReader fields(body);
  OllamaFormat format;
  format.chat = chat;
  format.model = fields.String("model").value_or("");
  format.stream = fields.Bool("stream").value_or(true);
  WEFT_RETURN_IF_ERROR(fields.status());
  WEFT_RETURN_IF_ERROR(doors.CheckModel(absl::StripSuffix(format.model, ":latest")));
  if (format.model.empty()) format.model = doors.entrance().Model().model_name;
  GenerateInput input;
  input.correlation_id = request_id;
  ChatPrompt prompt;
  ToolChoice choice;
  std::vector<std::string> ignored;
  if (chat) ReadChatPrompt(fields, &prompt, &choice, &ignored);
  const bool templated = chat || ReadPrompt(fields, &prompt, &input);
  ReadThink(fields, &prompt);
  ReadFormat(fields, &input);
  const boost::json::object none;
  const boost::json::object* given = fields.Object("options");
  FieldReader options(given == nullptr ? none : *given, "options.");
  ReadOptions(doors, options, &input);
  fields.Fail(options.status());
  fields.Refuse(kRefused);
  fields.Accept("keep_alive");
  if (templated && fields.ok()) ReadParts(doors, fields, std::move(choice), &input);
  if (templated) input.prompt = std::move(prompt);
  format.parts = input.parts;
  FieldReader* const readers[] = {&fields, &options};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, Door::kOpenAi, readers, &ignored));
  std::vector<GenerateInput> inputs;
  inputs.push_back(std::move(input));
  return MakeGeneration(std::move(inputs), 1, NewOllamaFormatter(std::move(format)), ignored);
}

HttpReply Tags(const DoorContext& doors) {
  const absl::StatusOr<ModelFacts> model = doors.ServedModel();
  if (!model.ok()) return TgiError(model.status());
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject().Key("models").BeginArray().BeginObject();
  json.Key("name").String(model->model_name).Key("model").String(model->model_name);
  json.Key("modified_at")
      .String(absl::FormatTime(absl::FromUnixSeconds(model->created_unix_s), absl::UTCTimeZone()));
  json.Key("details").BeginObject().Key("family").String(model->shape.family);
  json.EndObject().EndObject().EndArray().EndObject();
  return reply;
}

}  // namespace

void AddOllamaRoutes(DoorContext* doors, HttpRouter* router) {
  for (const bool chat : {true, false}) {
    const auto read = [chat](const DoorContext& to, const boost::json::object& body,
                             const std::string& request_id) -> GenerationOrReply {
      absl::StatusOr<ReadGeneration> generation = ReadBody(to, chat, body, request_id);
      if (!generation.ok()) return RefuseBody(to, generation.status(), TgiError);
      return *std::move(generation);
    };
    AddGenerationRoute(doors, chat ? "/api/chat" : "/api/generate", read, TgiError, router);
  }
  router->Add(
      HttpMethod::kGet, "/api/tags",
      [doors](HttpRequest, HttpResponder& responder, IoWaker&) {
        responder.Reply(Tags(*doors));
        return std::shared_ptr<HttpExchange>();
      },
      KeyGate(doors));
}

absl::Span<const RefusedField> RefusedOllamaFields() { return kRefused; }
absl::Span<const RefusedField> RefusedOllamaOptions() { return kRefusedOptions; }
absl::Span<const absl::string_view> IgnoredOllamaOptions() { return kLoadOptions; }

}  // namespace weft::router
