#include "router/doors/openai/routes.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/json.h"
#include "router/doors/http/percent.h"
#include "router/doors/http/replies.h"
#include "router/doors/openai/format.h"
#include "router/doors/openai/request.h"
#include "router/doors/openai/tokenize.h"
#include "router/errors.h"

namespace weft::router {
namespace {

constexpr absl::string_view kModelsPath = "/v1/models/";

// What models of other kinds do. Clients that try them learn that it is the model's doing.
constexpr const char* kRoutesOfOtherModels[] = {"/v1/embeddings", "/embed",    "/v1/rerank",
                                                "/rerank",        "/v1/score", "/score"};

void WriteModel(const ModelFacts& model, JsonWriter* json) {
  json->BeginObject().Key("id").String(model.model_name).Key("object").String("model");
  json->Key("created").Signed(model.created_unix_s).Key("owned_by").String("weft");
  // vLLM's: clients that count tokens take it for the name of the tokenizer.
  json->Key("root").String(model.model_name).Key("parent").Null();
  json->Key("max_model_len").Unsigned(model.shape.context_tokens).EndObject();
}

HttpReply Models(const DoorContext& doors) {
  const absl::StatusOr<ModelFacts> model = doors.ServedModel();
  if (!model.ok()) return OpenAiError(model.status());
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject().Key("object").String("list").Key("data").BeginArray();
  WriteModel(*model, &json);
  json.EndArray().EndObject();
  return reply;
}

HttpReply OneModel(const DoorContext& doors, const HttpRequest& http) {
  const absl::Status known =
      doors.CheckModel(PercentDecode(absl::StripPrefix(http.path, kModelsPath)));
  const absl::StatusOr<ModelFacts> model = doors.ServedModel();
  if (!model.ok()) return OpenAiError(model.status());
  if (!known.ok()) return OpenAiError(known);
  HttpReply reply;
  JsonWriter json(&reply.body);
  WriteModel(*model, &json);
  return reply;
}

HttpReply OfOtherModels(const DoorContext& doors, const HttpRequest& http) {
  return RefuseBody(doors,
                    NotSupportedByModelError(absl::StrCat(
                        http.path, " is not served: `", doors.entrance().Model().model_name,
                        "` is a decoder, which generates text and neither embeds nor ranks it")),
                    OpenAiError);
}

}  // namespace

GenerationOrReply ReadOpenAiGeneration(const DoorContext& doors, bool chat,
                                       const boost::json::object& body,
                                       const std::string& request_id, Door door) {
  absl::StatusOr<OpenAiRequest> request =
      chat ? ReadChatRequest(doors, body, request_id, door)
           : ReadCompletionRequest(doors, body, request_id, door);
  if (!request.ok()) return RefuseBody(doors, request.status(), OpenAiError);
  const uint32_t choices = request->format.best_of;
  return MakeGeneration(std::move(request->inputs), choices,
                        NewOpenAiFormatter(std::move(request->format)), request->ignored);
}

void AddOpenAiRoutes(DoorContext* doors, HttpRouter* router) {
  const HttpGate gate = KeyGate(doors);
  const auto complete = [&](std::string path, bool chat) {
    const auto read = [chat](const DoorContext& to, const boost::json::object& body,
                             const std::string& request_id) {
      return ReadOpenAiGeneration(to, chat, body, request_id, Door::kOpenAi);
    };
    AddGenerationRoute(doors, std::move(path), read, OpenAiError, router);
  };
  complete("/v1/chat/completions", true);
  complete("/v1/completions", false);
  AddDetokenizeRoute(doors, router);
  for (const char* path : kRoutesOfOtherModels) {
    router->Add(
        HttpMethod::kPost, path,
        [doors](HttpRequest request, HttpResponder& responder, IoWaker&) {
          responder.Reply(OfOtherModels(*doors, request));
          return std::shared_ptr<HttpExchange>();
        },
        gate);
  }
  router->Add(
      HttpMethod::kGet, "/v1/models",
      [doors](HttpRequest, HttpResponder& responder, IoWaker&) {
        responder.Reply(Models(*doors));
        return std::shared_ptr<HttpExchange>();
      },
      gate);
  router->Add(
      HttpMethod::kGet, "/v1/models/*",
      [doors](HttpRequest request, HttpResponder& responder, IoWaker&) {
        responder.Reply(OneModel(*doors, request));
        return std::shared_ptr<HttpExchange>();
      },
      gate);
}

}  // namespace weft::router
