// The body of Anthropic's route: anthropic/request.cc, blocks.cc.

#include "common/limits.h"
#include "router/doors/anthropic/request.h"
#include "router/doors/api/bodies.h"

namespace weft::router::api {
namespace {

constexpr char kTextOrBlocks[] =
    R"("anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}])";

ApiField MessagesField() {
  ApiField field = List("messages",
                        ObjectSchema({Must(Json("role", R"("enum":["user","assistant"])")),
                                      Must(Json("content", kTextOrBlocks))}),
                        kChatMessagesMax);
  field.schema += R"(,"minItems":1)";
  return Must(field);
}

ApiField ToolsField() {
  return List("tools",
              ObjectSchema({Must(Text("name")), Must(Object("input_schema")), Text("description"),
                            Json("type", R"("const":"custom")"), Flag("strict", false),
                            Ignored("cache_control")}),
              kToolsMax);
}

}  // namespace

std::vector<ApiBody> AnthropicBodies() {
  ApiFields fields = {
      MessagesField(),
      Text("model"),
      Json("system", kTextOrBlocks),
      ToolsField(),
      Json("tool_choice",
           ObjectSchema({Must(Json("type", R"("enum":["auto","any","tool","none"])")), Text("name"),
                         Flag("disable_parallel_tool_use", false)})),
      Json("thinking",
           ObjectSchema({Must(Json("type", R"("enum":["enabled","adaptive","disabled"])")),
                         Ignored("budget_tokens"), Ignored("display")})),
      Real("temperature", {0, kTemperatureMax}),
      StopField("stop_sequences"),
      Flag("stream", false),
      Ignored("metadata")};
  AddFields(CommonFields(), &fields);
  AddRefused(RefusedAnthropicFields(), &fields);
  ApiFields counted = fields;
  counted.push_back(TokenCountField("max_tokens"));
  fields.push_back(Must(TokenCountField("max_tokens")));
  return {{"MessagesRequest", std::move(fields)}, {"CountTokensRequest", std::move(counted)}};
}

}  // namespace weft::router::api
