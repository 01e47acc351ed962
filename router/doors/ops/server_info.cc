#include "router/doors/ops/server_info.h"

#include <memory>

#include "common/limits.h"
#include "common/version.h"
#include "router/doors/http/json.h"
#include "router/doors/http/replies.h"

namespace weft::router {
namespace {

void WriteModel(const ModelFacts& model, JsonWriter* json) {
  json->Key("model_path").String(model.model_name);
  json->Key("served_model_name").String(model.model_name);
  json->Key("model_type").String(model.shape.family).Key("is_generation").Bool(true);
  json->Key("has_chat_template").Bool(model.has_chat_template);
  json->Key("tool_call_parser").String(model.tool_parser);
  json->Key("reasoning_parser").String(model.reasoning_parser);
  json->Key("dtype").String(model.shape.dtype).Key("device").String(model.shape.device);
  json->Key("vocab_size").Unsigned(model.shape.vocab_size);
  json->Key("context_length").Unsigned(model.shape.context_tokens);
}

// Groups of shards are what SGLang calls data parallel.
void WriteShards(const ModelFacts& model, JsonWriter* json) {
  json->Key("tp_size").Unsigned(model.shards / model.groups);
  json->Key("dp_size").Unsigned(model.groups);
}

void WriteLimits(const ModelFacts& model, JsonWriter* json) {
  json->Key("max_total_tokens").Unsigned(model.shape.request_tokens_max);
  json->Key("max_concurrent_requests").Unsigned(model.requests_max);
  json->Key("max_choices").Unsigned(kChoicesMax);
  json->Key("max_stop_sequences").Unsigned(kStopSequencesMax);
  json->Key("max_top_logprobs").Unsigned(kTopLogprobsMax);
}

HttpReply ServerInfo(const DoorContext& doors) {
  const absl::StatusOr<ModelFacts> model = doors.ServedModel();
  if (!model.ok()) return TgiError(model.status());
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject();
  WriteModel(*model, &json);
  WriteShards(*model, &json);
  WriteLimits(*model, &json);
  json.Key("version").String(Version()).Key("revision").String(Revision());
  // SGLang's benchmark looks into the first of them for what a speculation accepted.
  json.Key("internal_states").BeginArray().BeginObject();
  json.Key("state").String(ServerStateName(doors.Status().state)).EndObject().EndArray();
  json.EndObject();
  return reply;
}

}  // namespace

void AddServerInfoRoutes(DoorContext* doors, HttpRouter* router) {
  for (const char* path : {"/server_info", "/get_server_info"}) {
    router->Add(HttpMethod::kGet, path, [doors](HttpRequest, HttpResponder& responder, IoWaker&) {
      responder.Reply(ServerInfo(*doors));
      return std::shared_ptr<HttpExchange>();
    });
  }
}

}  // namespace weft::router
