// The bodies of Ollama's routes: ollama/routes.cc.

#include "common/limits.h"
#include "router/doors/api/bodies.h"
#include "router/doors/ollama/routes.h"

namespace weft::router::api {
namespace {

ApiField OptionsField() {
  ApiFields options = CommonFields();
  AddFields({Real("temperature", {0, kTemperatureMax}), StopField("stop"),
             Real("repeat_penalty", kRepetitionPenaltyRange),
             Whole("num_predict", -2, kContextTokensMax, -1)},
            &options);
  for (const absl::string_view name : IgnoredOllamaOptions()) options.push_back(Ignored(name));
  AddRefused(RefusedOllamaOptions(), &options);
  return Json("options", ObjectSchema(options));
}

// What both have beside their prompt.
void AddShared(ApiFields* fields) {
  AddFields({Text("model"), Flag("stream", true), Ignored("keep_alive"), OptionsField(),
             Json("format", R"("anyOf":[{"enum":["json",""]},{"type":"object"}])"),
             Json("think",
                  R"("anyOf":[{"type":"boolean"},{"enum":["none","minimal","low","medium","high",)"
                  R"("xhigh","max"]}])")},
            fields);
  AddRefused(RefusedOllamaFields(), fields);
}

}  // namespace

std::vector<ApiBody> OllamaBodies() {
  ApiFields chat = ConversationFields();
  AddShared(&chat);
  ApiFields generate = {Must(Json("prompt", R"("type":"string","minLength":1)")), Text("system"),
                        Flag("raw", false)};
  AddShared(&generate);
  return {{"OllamaChatRequest", std::move(chat)}, {"OllamaGenerateRequest", std::move(generate)}};
}

}  // namespace weft::router::api
