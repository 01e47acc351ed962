// Bodies of OpenAI's routes and of vLLM's beside them: openai/request.cc, messages.cc, tokenize.cc.

#include "common/limits.h"
#include "router/doors/api/bodies.h"
#include "router/doors/openai/messages.h"
#include "router/doors/openai/request.h"
#include "router/doors/openai/tokenize.h"

namespace weft::router::api {
namespace {

constexpr char kTextParts[] =
    R"({"type":"array","items":{"type":"object","properties":{"type":{"const":"text"},)"
    R"("text":{"type":"string"}},"required":["type","text"]}})";

ApiField ToolsField() {
  const std::string function = ObjectSchema(
      {Must(Text("name")), Text("description"), Object("parameters"), Flag("strict", false)});
  return List(
      "tools",
      ObjectSchema({Must(Json("type", R"("const":"function")")), Must(Json("function", function))}),
      kToolsMax);
}

ApiField MessagesField() {
  ApiFields message = {
      Must(Json("role", R"("enum":["system","developer","user","assistant","tool"])")),
      Json("content", absl::StrCat(R"("anyOf":[{"type":"string"},)", kTextParts, "]")),
      Json("tool_calls", R"("type":"array","items":{"type":"object"})"),
      Text("tool_call_id"),
      Text("name"),
      Text("tool_name"),
      Text("reasoning_content"),
      Text("reasoning"),
      Text("thinking")};
  AddRefused(RefusedMessageFields(), &message);
  ApiField field = List("messages", ObjectSchema(message), kChatMessagesMax);
  field.schema += R"(,"minItems":1)";
  return Must(field);
}

ApiFields SharedFields() {
  ApiFields options = {Flag("include_usage", false), Flag("continuous_usage_stats", false)};
  AddRefused(RefusedStreamOptions(), &options);
  ApiFields fields = SamplingFields();
  AddFields({Text("model"), Whole("n", 1, kChoicesMax, 1), Flag("stream", false),
             Json("stream_options", ObjectSchema(options)), Flag("return_token_ids", false),
             ResumeField(), Whole("prompt_logprobs", 0, kTopLogprobsMax), Object("response_format"),
             Ignored("user"), Ignored("metadata"), Ignored("prompt_cache_key"),
             Ignored("safety_identifier"), Whole("min_tokens", 0, kContextTokensMax, 0)},
            &fields);
  return fields;
}

ApiFields ChatFields() {
  ApiFields fields = ConversationFields();
  AddFields(SharedFields(), &fields);
  AddFields({TokenCountField("max_tokens"), TokenCountField("max_completion_tokens"),
             Flag("logprobs", false), Whole("top_logprobs", 0, kTopLogprobsMax, 0),
             Flag("include_reasoning", true)},
            &fields);
  AddRefused(RefusedChatFields(), &fields);
  return fields;
}

ApiFields CompletionFields() {
  const std::string prompt = TextOrIdsSchema();
  ApiFields fields = {Must(
      Json("prompt", absl::StrCat(R"("anyOf":[{)", prompt, R"(},{"type":"array","items":{)", prompt,
                                  R"(},"minItems":1,"maxItems":)", kPromptsMax, "}]")))};
  AddFields(SharedFields(), &fields);
  AddFields(
      {Whole("max_tokens", 0, kContextTokensMax, kCompletionTokensDefault), Flag("echo", false),
       Whole("logprobs", 0, kTopLogprobsMax), Whole("best_of", 1, kChoicesMax)},
      &fields);
  AddRefused(RefusedCompletionFields(), &fields);
  return fields;
}

ApiFields TokenizeFields(ApiFields fields, bool chat) {
  AddFields({Text("model"), Flag("return_token_strs", false)}, &fields);
  for (const auto refused : RefusedTokenizeFields(chat)) AddRefused(refused, &fields);
  return fields;
}

}  // namespace

ApiFields SamplingFields() {
  ApiFields fields = CommonFields();
  AddFields({Real("temperature", {0, kTemperatureMax}), StopField("stop"),
             Flag("include_stop_str_in_output", false),
             Whole("truncate_prompt_tokens", -1, kContextTokensMax), Object("structured_outputs"),
             Json("guided_json", R"("type":["object","boolean","string"])"), Text("guided_regex"),
             Json("guided_choice", R"("type":"array","items":{"type":"string"},"minItems":1)"),
             Text("guided_grammar"), Json("structural_tag", R"("type":["object","string"])")},
            &fields);
  AddRefused(RefusedSamplingFields(), &fields);
  return fields;
}

ApiFields ConversationFields() {
  ApiFields fields = {
      MessagesField(),
      ToolsField(),
      Json("tool_choice",
           R"("anyOf":[{"enum":["auto","none","required"]},{"type":"object"}],"default":"auto")"),
      Flag("parallel_tool_calls", true),
      List("documents", R"("type":"object")", kDocumentsMax),
      Object("chat_template_kwargs"),
      Json("reasoning_effort", R"("enum":["none","minimal","low","medium","high","xhigh","max"])"),
      Flag("add_generation_prompt", true),
      Flag("continue_final_message", false)};
  AddRefused(RefusedConversationFields(), &fields);
  return fields;
}

std::vector<ApiBody> OpenAiBodies() {
  return {{"ChatRequest", ChatFields()},
          {"CompletionRequest", CompletionFields()},
          {"TokenizeText", TokenizeFields({Must(Json("prompt", R"("type":"string","minLength":1)")),
                                           Flag("add_special_tokens", true)},
                                          /*chat=*/false)},
          {"TokenizeChat", TokenizeFields(ConversationFields(), /*chat=*/true)},
          {"DetokenizeRequest",
           {Must(List("tokens", TokenIdSchema(), kContextTokensMax)), Text("model"),
            Flag("skip_special_tokens", false)}}};
}

}  // namespace weft::router::api
