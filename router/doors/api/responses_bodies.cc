// The body of OpenAI's Responses: responses/request.cc.

#include "common/limits.h"
#include "router/doors/api/bodies.h"
#include "router/doors/responses/request.h"

namespace weft::router::api {
namespace {

ApiField ToolsField() {
  ApiFields tool = {Must(Json("type", R"("const":"function")")), Must(Text("name")),
                    Text("description"), Object("parameters"), Flag("strict", false)};
  AddRefused(RefusedResponsesTool(), &tool);
  return List("tools", ObjectSchema(tool), kToolsMax);
}

// An object whose members are `fields`, and others that are known and not served.
ApiField ObjectField(absl::string_view name, ApiFields fields,
                     absl::Span<const RefusedField> refused) {
  AddRefused(refused, &fields);
  return Json(name, ObjectSchema(fields));
}

}  // namespace

std::vector<ApiBody> ResponsesBodies() {
  const std::string items = List("", R"("type":"object")", kChatMessagesMax).schema;
  ApiFields fields = {
      Must(Json("input", absl::StrCat(R"("anyOf":[{"type":"string","minLength":1},{)", items,
                                      R"(,"minItems":1}])"))),
      Text("instructions"),
      Text("model"),
      TokenCountField("max_output_tokens"),
      Whole("min_tokens", 0, kContextTokensMax, 0),
      ToolsField(),
      Json("tool_choice",
           R"("anyOf":[{"enum":["auto","none","required"]},{"type":"object"}],"default":"auto")"),
      Flag("parallel_tool_calls", true),
      ObjectField("text", {Object("format")}, RefusedResponsesText()),
      ObjectField(
          "reasoning",
          {Json("effort", R"("enum":["none","minimal","low","medium","high","xhigh","max"])")},
          RefusedResponsesReasoning()),
      Json("include", R"("type":"array","items":{"enum":["message.output_text.logprobs",)"
                      R"("reasoning.encrypted_content"]})"),
      Whole("top_logprobs", 0, kTopLogprobsMax, 0),
      Flag("stream", false),
      ObjectField("stream_options", {}, RefusedResponsesStreamOptions()),
      Object("chat_template_kwargs"),
      Flag("include_reasoning", true),
      Flag("store", true),
      Json("metadata", R"("type":"object","additionalProperties":{"type":"string"})"),
      Text("user"),
      Text("prompt_cache_key"),
      Text("safety_identifier")};
  AddFields(SamplingFields(), &fields);
  AddRefused(RefusedResponsesFields(), &fields);
  return {{"ResponsesRequest", std::move(fields)}};
}

}  // namespace weft::router::api
