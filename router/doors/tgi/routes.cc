#include "router/doors/tgi/routes.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/version.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/generate.h"
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

using GenerationOrReply = std::variant<ReadGeneration, HttpReply>;

// An error of the client that no engine sees.
HttpReply Refusal(const DoorContext& doors, const absl::Status& status) {
  doors.probe().Failed(FailureReason::kValidation);
  return TgiError(status);
}

GenerationOrReply ReadGenerate(const DoorContext& doors, TgiRoute route,
                               const boost::json::object& body, const std::string& request_id) {
  absl::StatusOr<TgiRequest> request = ReadTgiRequest(doors, route, body, request_id);
  if (!request.ok()) return Refusal(doors, request.status());
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

// Makes a generation of a parsed body, or its refusal. Any thread.
using BodyReader = std::function<GenerationOrReply(
    const DoorContext& doors, const boost::json::object& body, const std::string& request_id)>;

std::shared_ptr<HttpExchange> Generate(DoorContext* doors, const BodyReader& read_body,
                                       HttpRequest http, HttpResponder& responder, IoWaker& waker) {
  absl::StatusOr<Admission::Permit> permit = doors->Enter(http.tenant, http.body.size());
  if (!permit.ok()) {
    responder.Reply(TgiError(permit.status()));
    return nullptr;
  }
  const auto read = [doors, read_body](HttpRequest request) -> GenerationOrReply {
    const absl::StatusOr<boost::json::value> body = ParseBody(request.body);
    if (!body.ok()) return Refusal(*doors, body.status());
    return read_body(*doors, body->get_object(), request.request_id);
  };
  return GenerateExchange::Start(*doors, std::move(http), *std::move(permit), read, TgiError,
                                 responder, waker);
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
  json.Key("sha").String(Revision()).Key("docker_label").Null().EndObject();
  return reply;
}

}  // namespace

void AddTgiRoutes(DoorContext* doors, HttpRouter* router) {
  const HttpGate gate = KeyGate(doors);
  const auto add = [&](std::string path, BodyReader read) {
    router->Add(
        HttpMethod::kPost, std::move(path),
        [doors, read = std::move(read)](HttpRequest request, HttpResponder& responder,
                                        IoWaker& waker) {
          return Generate(doors, read, std::move(request), responder, waker);
        },
        gate);
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
