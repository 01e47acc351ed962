#include "router/doors/tgi/routes.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/version.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/generation_route.h"
#include "router/doors/http/json.h"
#include "router/doors/http/parameters.h"
#include "router/doors/http/replies.h"
#include "router/doors/openai/routes.h"
#include "router/doors/tgi/format.h"
#include "router/doors/tgi/request.h"
#include "router/doors/tgi/tokenize.h"
#include "router/errors.h"

namespace weft::router {
namespace {

GenerationOrReply ReadGenerate(const DoorContext& doors, TgiRoute route,
                               const boost::json::object& body, const std::string& request_id) {
  absl::StatusOr<TgiRequest> request = ReadTgiRequest(doors, route, body, request_id);
  if (!request.ok()) return RefuseBody(doors, request.status(), TgiError);
  const uint32_t best_of = request->format.best_of;
  return MakeGeneration({std::move(request->input)}, best_of,
                        NewTgiFormatter(std::move(request->format)), request->ignored);
}

// SageMaker sends bodies of every kind to one route. What a body is shows by the field that its
// kind cannot do without, looked for in TGI's order; one that has none of them is read as TGI's
// own, which says what is missing.
GenerationOrReply ReadInvocation(const DoorContext& doors, const boost::json::object& body,
                                 const std::string& request_id) {
  const bool chat = HasMember(body, "messages");
  if (!HasMember(body, "inputs") && (chat || HasMember(body, "prompt"))) {
    return ReadOpenAiGeneration(doors, chat, body, request_id, Door::kTgi);
  }
  return ReadGenerate(doors, TgiRoute::kRoot, body, request_id);
}

HttpReply Health(const DoorContext& doors) {
  HttpReply reply;
  const ServerState state = doors.Status().state;
  if (state == ServerState::kReady || state == ServerState::kRecovering) {
    reply.content_type = "";
    return reply;
  }
  reply.status = 503;
  reply.body = "{\"error\":\"unhealthy\",\"error_type\":\"healthcheck\"}";
  reply.headers.emplace_back("retry-after", "1");
  return reply;
}

// What requests that sample and do not say how get (--generation-config).
void WriteSamplingDefaults(const SamplingParams& defaults, JsonWriter* json) {
  json->Key("sampling_defaults").BeginObject().Key("temperature").Float(defaults.temperature);
  json->Key("top_k").Unsigned(defaults.top_k).Key("top_p").Float(defaults.top_p);
  json->Key("min_p").Float(defaults.min_p).Key("typical_p").Float(defaults.typical_p);
  json->Key("repetition_penalty").Float(defaults.repetition_penalty).EndObject();
}

HttpReply Info(const DoorContext& doors) {
  const absl::StatusOr<ModelFacts> served = doors.ServedModel();
  if (!served.ok()) return TgiError(served.status());
  const ModelFacts& model = *served;
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject().Key("model_id").String(model.model_name);
  json.Key("model_sha").Null().Key("model_pipeline_tag").String("text-generation");
  json.Key("model_dtype")
      .String(model.shape.dtype)
      .Key("model_device_type")
      .String(model.shape.device);
  json.Key("model_family")
      .String(model.shape.family)
      .Key("parameters")
      .Unsigned(model.shape.parameters);
  json.Key("shards").Unsigned(model.shards).Key("vocab_size").Unsigned(model.shape.vocab_size);
  json.Key("max_concurrent_requests").Unsigned(model.requests_max);
  json.Key("max_best_of").Unsigned(1).Key("max_stop_sequences").Unsigned(kStopSequencesMax);
  json.Key("max_input_tokens")
      .Unsigned(model.shape.request_tokens_max > 0 ? model.shape.request_tokens_max - 1 : 0);
  json.Key("max_total_tokens").Unsigned(model.shape.request_tokens_max);
  json.Key("max_top_n_tokens").Unsigned(kTopLogprobsMax).Key("max_client_batch_size").Unsigned(1);
  json.Key("validation_workers").Unsigned(doors.options().text_threads);
  json.Key("router").String("weft-router").Key("version").String(Version());
  WriteSamplingDefaults(model.sampling_defaults, &json);
  json.Key("sha").String(Revision()).Key("docker_label").Null().EndObject();
  return reply;
}

}  // namespace

void AddTgiRoutes(DoorContext* doors, HttpRouter* router) {
  const HttpGate gate = KeyGate(doors);
  const auto add = [&](const char* path, BodyReader read) {
    AddGenerationRoute(doors, path, std::move(read), TgiError, router);
  };
  const auto generate = [](TgiRoute route) -> BodyReader {
    return [route](const DoorContext& to, const boost::json::object& body,
                   const std::string& request_id) {
      return ReadGenerate(to, route, body, request_id);
    };
  };
  add("/", generate(TgiRoute::kRoot));
  add("/generate", generate(TgiRoute::kGenerate));
  add("/generate_stream", generate(TgiRoute::kGenerateStream));
  add("/invocations", ReadInvocation);
  AddTokenizeRoutes(doors, router);
  for (const char* path : {"/", "/health", "/ping"}) {
    router->Add(HttpMethod::kGet, path, [doors](HttpRequest, HttpResponder& responder, IoWaker&) {
      responder.Reply(Health(*doors));
      return std::shared_ptr<HttpExchange>();
    });
  }
  router->Add(HttpMethod::kGet, "/info", [doors](HttpRequest, HttpResponder& responder, IoWaker&) {
    responder.Reply(Info(*doors));
    return std::shared_ptr<HttpExchange>();
  });
}

}  // namespace weft::router
