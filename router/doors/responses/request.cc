#include "router/doors/responses/request.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/flat_tools.h"
#include "router/doors/http/grammar.h"
#include "router/doors/http/parameters.h"
#include "router/doors/openai/request.h"
#include "router/doors/openai/tool_choice.h"
#include "router/doors/responses/echo.h"
#include "router/doors/responses/items.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// OpenAI's bounds of `metadata`.
constexpr size_t kMetadataMax = 16;
constexpr size_t kMetadataKeyBytesMax = 64;
constexpr size_t kMetadataValueBytesMax = 512;

// What needs an answer that was kept, or what OpenAI runs; and fields of chats, which whoever sends
// them here counts on.
constexpr RefusedField kRefused[] = {{"previous_response_id", ""},
                                     {"prompt_logprobs", ""},
                                     {"conversation", ""},
                                     {"background", "false"},
                                     {"prompt", ""},
                                     {"max_tool_calls", ""},
                                     {"context_management", "[]"},
                                     {"access_programs", "{}"},
                                     {"image", "{}"},
                                     {"prompt_cache_options", "{}"},
                                     {"truncation", "\"disabled\""},
                                     {"messages", ""},
                                     {"chat_template", ""},
                                     {"max_tokens", ""},
                                     {"max_completion_tokens", ""},
                                     {"response_format", R"({"type":"text"})"},
                                     {"reasoning_effort", ""},
                                     {"logprobs", "false"},
                                     {"n", "1"},
                                     {"best_of", "1"},
                                     {"echo", "false"},
                                     {"documents", "[]"},
                                     {"add_generation_prompt", "true"},
                                     {"continue_final_message", "false"},
                                     {"return_token_ids", "false"},
                                     {"resume", ""}};

constexpr RefusedField kRefusedStreamOptions[] = {{"include_obfuscation", "false"}};
constexpr RefusedField kRefusedInText[] = {{"verbosity", "\"medium\""}};
// All reasoning is given, where others give a summary.
constexpr RefusedField kRefusedInReasoning[] = {{"summary", "\"auto\""},
                                                {"generate_summary", "\"auto\""},
                                                {"context", "\"auto\"|\"all_turns\""},
                                                {"mode", "\"standard\""}};
constexpr RefusedField kRefusedInTool[] = {{"allowed_callers", R"(["direct"])"},
                                           {"async", "false"},
                                           {"defer_loading", "false"},
                                           {"output_schema", ""}};

constexpr FlatToolForm kToolForm = {"function",   /*type_optional=*/false,
                                    "parameters", /*schema_required=*/false,
                                    {},           kRefusedInTool};

// The object under `name`, read by `read` with a reader of its own.
template <typename Read>
void ReadObject(FieldReader& fields, const char* name, std::vector<std::string>* unknown,
                Read read) {
  const boost::json::object* object = fields.Object(name);
  if (object == nullptr) return;
  FieldReader inner(*object, absl::StrCat(name, "."));
  read(inner);
  fields.Fail(inner.status());
  inner.AddUnknown(unknown);
}

void ReadStream(FieldReader& fields, ResponsesRequest* request) {
  request->format.stream = fields.Bool("stream").value_or(false);
  ReadObject(fields, "stream_options", &request->ignored, [&](FieldReader& options) {
    options.Refuse(kRefusedStreamOptions);
    if (!request->format.stream) fields.Fail("stream_options", "is only allowed with stream true");
  });
}

// Log-probabilities are asked for by name, or by how many alternatives they are to have.
void ReadLogprobs(FieldReader& fields, ResponsesRequest* request) {
  bool named = false;
  if (const boost::json::array* include = fields.Array("include")) {
    for (const boost::json::value& one : *include) {
      const boost::json::string* name = one.if_string();
      named |= name != nullptr && *name == "message.output_text.logprobs";
      // Reasoning comes as text, and may be given back so.
      if (name == nullptr ||
          (*name != "message.output_text.logprobs" && *name != "reasoning.encrypted_content")) {
        fields.Fail("include",
                    "must hold nothing but message.output_text.logprobs and "
                    "reasoning.encrypted_content");
      }
    }
  }
  SamplingParams& sampling = request->input.sampling;
  sampling.top_logprobs =
      static_cast<uint32_t>(fields.Integer("top_logprobs", 0, kTopLogprobsMax).value_or(0));
  sampling.logprobs = request->format.logprobs = named || sampling.top_logprobs > 0;
}

void ReadTextAndReasoning(FieldReader& fields, ResponsesRequest* request, ChatPrompt* prompt) {
  ReadObject(fields, "text", &request->ignored, [&](FieldReader& text) {
    text.Refuse(kRefusedInText);
    if (const boost::json::value* format = text.Value("format")) {
      ReadResponseFormat(*format, "text.format", text, &request->input);
    }
  });
  ReadVllmGrammar(fields, &request->input);
  ReadObject(fields, "reasoning", &request->ignored, [prompt](FieldReader& reasoning) {
    reasoning.Refuse(kRefusedInReasoning);
    if (std::optional<std::string> effort = reasoning.String("effort")) {
      reasoning.Fail(CheckReasoningEffort(*effort, "reasoning.effort"));
      prompt->reasoning_effort = *std::move(effort);
    }
  });
  request->format.reasoning = fields.Bool("include_reasoning").value_or(true);
  if (const boost::json::value* kwargs = fields.Value("chat_template_kwargs")) {
    absl::StatusOr<std::string> text = ReadTemplateKwargs(*kwargs, "chat_template_kwargs");
    fields.Fail(text.status());
    prompt->template_kwargs = std::move(text).value_or("");
  }
}

// What comes back with the answer and has no effect on it.
void ReadLabels(FieldReader& fields) {
  for (const char* name : {"user", "prompt_cache_key", "safety_identifier"}) fields.String(name);
  // An answer is never kept; clients ask for it unless told otherwise.
  fields.Bool("store");
  const boost::json::object* metadata = fields.Object("metadata");
  if (metadata == nullptr) return;
  bool good = metadata->size() <= kMetadataMax;
  for (const auto& member : *metadata) {
    const boost::json::string* text = member.value().if_string();
    good = good && member.key().size() <= kMetadataKeyBytesMax && text != nullptr &&
           text->size() <= kMetadataValueBytesMax;
  }
  if (good) return;
  fields.Fail("metadata", absl::StrCat("must hold at most ", kMetadataMax, " strings of at most ",
                                       kMetadataValueBytesMax, " bytes, with names of at most ",
                                       kMetadataKeyBytesMax));
}

}  // namespace

absl::StatusOr<ResponsesRequest> ReadResponsesRequest(const DoorContext& doors,
                                                      const boost::json::object& body,
                                                      const std::string& request_id) {
  FieldReader fields(body);
  WEFT_RETURN_IF_ERROR(ReadModelName(doors, fields));
  ResponsesRequest request;
  GenerateInput& input = request.input;
  ChatPrompt prompt;
  // First, so that a field which needs an earlier answer is named before what is missing without
  // it.
  fields.Refuse(kRefused);
  ReadResponsesInput(fields, &prompt, &request.ignored);
  ToolList tools = ReadFlatTools(fields, kToolForm, &request.ignored);
  ToolChoice choice = ReadToolChoice(fields, ToolShape::kFlat, &request.ignored);
  OfferTools(std::move(tools), &choice, &prompt);
  ReadSamplingFields(doors, fields, &input);
  input.max_tokens = ReadTokenCount(fields, "max_output_tokens");
  ReadMinTokens(fields, "min_tokens", &input);
  ReadLogprobs(fields, &request);
  ReadStream(fields, &request);
  ReadTextAndReasoning(fields, &request, &prompt);
  ReadLabels(fields);
  if (fields.ok()) fields.Fail(RenameField(CheckChat(prompt, ""), "input"));
  const std::string effort = prompt.reasoning_effort;
  const bool parallel_calls = choice.parallel_calls;
  if (fields.ok()) ReadParts(doors, fields, std::move(choice), &input);
  input.prompt = std::move(prompt);
  FieldReader* const readers[] = {&fields};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, Door::kOpenAi, readers, &request.ignored));
  input.correlation_id = request_id;
  ResponsesFormat& format = request.format;
  format.parts = input.parts;
  format.request_id = request_id;
  format.model = doors.entrance().Model().model_name;
  format.created_unix_s = absl::ToUnixSeconds(absl::Now());
  format.echo = EchoOfRequest(body, input, parallel_calls, effort);
  return request;
}

absl::Span<const RefusedField> RefusedResponsesFields() { return kRefused; }
absl::Span<const RefusedField> RefusedResponsesTool() { return kRefusedInTool; }
absl::Span<const RefusedField> RefusedResponsesText() { return kRefusedInText; }
absl::Span<const RefusedField> RefusedResponsesReasoning() { return kRefusedInReasoning; }
absl::Span<const RefusedField> RefusedResponsesStreamOptions() { return kRefusedStreamOptions; }

}  // namespace weft::router
