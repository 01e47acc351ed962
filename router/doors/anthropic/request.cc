#include "router/doors/anthropic/request.h"

#include <optional>
#include <utility>

#include "common/limits.h"
#include "common/status.h"
#include "router/doors/anthropic/blocks.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/parameters.h"

namespace weft::router {
namespace {

// Fields of Anthropic's that are served elsewhere or by nobody.
constexpr RefusedField kRefused[] = {{"container", ""},
                                     {"mcp_servers", "[]"},
                                     {"context_management", ""},
                                     {"output_config", "{}"},
                                     {"output_format", ""},
                                     {"inference_geo", ""},
                                     {"n", "1"},
                                     {"logprobs", "false"},
                                     {"service_tier", "\"auto\"|\"standard_only\""}};

// The template's own switch, which the families that think have in common.
void ReadThinking(FieldReader& fields, ChatPrompt* prompt, std::vector<std::string>* unknown) {
  const boost::json::object* object = fields.Object("thinking");
  if (object == nullptr) return;
  FieldReader thinking(*object, "thinking.");
  const std::string type = thinking.String("type").value_or("");
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    thinking.Fail("type", "must be enabled, adaptive or disabled");
  }
  // How long the model thinks is its own choice.
  thinking.Accept("budget_tokens");
  thinking.Accept("display");
  fields.Fail(thinking.status());
  thinking.AddUnknown(unknown);
  prompt->template_kwargs =
      type == "disabled" ? R"({"enable_thinking":false})" : R"({"enable_thinking":true})";
}

}  // namespace

absl::StatusOr<AnthropicRequest> ReadMessagesRequest(const DoorContext& doors, MessagesUse use,
                                                     const boost::json::object& body,
                                                     const std::string& request_id) {
  FieldReader fields(body);
  WEFT_RETURN_IF_ERROR(ReadModelName(doors, fields));
  AnthropicRequest request;
  GenerateInput& input = request.input;
  ChatPrompt prompt;
  ToolChoice choice;
  ReadMessagesPrompt(fields, &prompt, &choice, &request.ignored);
  ReadThinking(fields, &prompt, &request.ignored);
  ReadCommonParameters(doors.entrance().Model().sampling_defaults, fields, &input);
  input.sampling.temperature =
      fields.Float("temperature", {0, kTemperatureMax}).value_or(input.sampling.temperature);
  ReadStop(fields, "stop_sequences", &input);
  input.max_tokens = ReadTokenCount(fields, "max_tokens");
  if (!input.max_tokens.has_value() && use == MessagesUse::kGenerate) {
    fields.Fail("max_tokens", "is required");
  }
  request.format.stream = fields.Bool("stream").value_or(false);
  // It says who asks, not what.
  fields.Accept("metadata");
  fields.Refuse(kRefused);
  if (fields.ok()) ReadParts(doors, fields, std::move(choice), &input);
  request.format.parts = input.parts;
  input.prompt = std::move(prompt);
  FieldReader* const readers[] = {&fields};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, Door::kOpenAi, readers, &request.ignored));
  input.correlation_id = request_id;
  request.format.request_id = request_id;
  request.format.model = doors.entrance().Model().model_name;
  return request;
}

absl::Span<const RefusedField> RefusedAnthropicFields() { return kRefused; }

}  // namespace weft::router
