#include "router/doors/ops/open_inference_routes.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/strip.h"
#include "common/version.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/json.h"
#include "router/doors/http/percent.h"
#include "router/doors/open_inference.h"
#include "router/errors.h"

namespace weft::router {
namespace {

constexpr absl::string_view kModels = "/v2/models/";
constexpr absl::string_view kVersions = "/versions/";

HttpReply Error(int code, absl::string_view message) {
  HttpReply reply;
  reply.status = code;
  JsonWriter(&reply.body).BeginObject().Key("error").String(message).EndObject();
  return reply;
}

HttpReply Error(const absl::Status& status) {
  HttpReply reply = Error(HttpCode(status), status.message());
  if (reply.status == 503) reply.headers.emplace_back("retry-after", "1");
  return reply;
}

// 200, or 503 with the way to ask again: {"KEY": true}.
HttpReply Yes(absl::string_view key, bool yes) {
  HttpReply reply;
  reply.status = yes ? 200 : 503;
  if (!yes) reply.headers.emplace_back("retry-after", "1");
  JsonWriter(&reply.body).BeginObject().Key(key).Bool(yes).EndObject();
  return reply;
}

HttpReply Live(const DoorContext& doors, const HttpRequest& /*http*/) {
  return Yes("live", IsLive(doors));
}

HttpReply Ready(const DoorContext& doors, const HttpRequest& /*http*/) {
  return Yes("ready", IsReady(doors));
}

HttpReply Server(const DoorContext& /*doors*/, const HttpRequest& /*http*/) {
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject().Key("name").String("weft").Key("version").String(Version());
  json.Key("extensions").BeginArray().EndArray().EndObject();
  return reply;
}

// Of NAME or NAME/versions/VERSION; the name may have percent-encoding and slashes.
absl::Status CheckPath(const DoorContext& doors, absl::string_view path) {
  absl::string_view version;
  const size_t at = path.rfind(kVersions);
  if (at != absl::string_view::npos) {
    version = path.substr(at + kVersions.size());
    path = path.substr(0, at);
    if (version.empty()) return absl::NotFoundError("the version is missing");
  }
  return CheckOpenInferenceModel(doors, PercentDecode(path), version);
}

HttpReply ModelReady(const DoorContext& doors, const HttpRequest& http) {
  const absl::string_view path = absl::StripSuffix(absl::StripPrefix(http.path, kModels), "/ready");
  const absl::Status known = CheckPath(doors, path);
  return known.ok() ? Ready(doors, http) : Error(known);
}

void WriteTensor(absl::string_view list, const OpenInferenceTensor& tensor, JsonWriter* json) {
  json->Key(list).BeginArray().BeginObject();
  json->Key("name").String(tensor.name).Key("datatype").String(tensor.datatype);
  json->Key("shape").BeginArray().Signed(tensor.shape).EndArray().EndObject().EndArray();
}

HttpReply Model(const DoorContext& doors, const HttpRequest& http) {
  const absl::StatusOr<ModelFacts> model = doors.ServedModel();
  if (!model.ok()) return Error(model.status());
  const absl::Status known = CheckPath(doors, absl::StripPrefix(http.path, kModels));
  if (!known.ok()) return Error(known);
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject().Key("name").String(model->model_name);
  json.Key("versions").BeginArray().String(kOpenInferenceVersion).EndArray();
  json.Key("platform").String(kOpenInferencePlatform);
  WriteTensor("inputs", kOpenInferenceInput, &json);
  WriteTensor("outputs", kOpenInferenceOutput, &json);
  json.EndObject();
  return reply;
}

HttpReply Infer(const DoorContext& /*doors*/, const HttpRequest& /*http*/) {
  return Error(501, kNoOpenInference);
}

}  // namespace

void AddOpenInferenceRoutes(DoorContext* doors, HttpRouter* router) {
  using Make = HttpReply (*)(const DoorContext&, const HttpRequest&);
  const auto add = [&](HttpMethod method, std::string path, Make make, HttpGate gate) {
    router->Add(
        method, std::move(path),
        [doors, make](HttpRequest request, HttpResponder& responder, IoWaker&) {
          responder.Reply(make(*doors, request));
          return std::shared_ptr<HttpExchange>();
        },
        std::move(gate));
  };
  add(HttpMethod::kGet, "/v2", Server, nullptr);
  add(HttpMethod::kGet, "/v2/health/live", Live, nullptr);
  add(HttpMethod::kGet, "/v2/health/ready", Ready, nullptr);
  add(HttpMethod::kPost, "/v2/models/*/infer", Infer, KeyGate(doors));
  add(HttpMethod::kGet, "/v2/models/*/ready", ModelReady, nullptr);
  add(HttpMethod::kGet, "/v2/models/*", Model, KeyGate(doors));
}

}  // namespace weft::router
