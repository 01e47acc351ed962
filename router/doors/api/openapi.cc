#include "router/doors/api/openapi.h"

#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/version.h"
#include "router/doors/api/bodies.h"
#include "router/doors/api/table.h"
#include "router/doors/http/json.h"

namespace weft::router {
namespace {

using api::AnswerKind;
using api::ApiRoute;
using api::ErrorShape;

constexpr absl::string_view kAbout =
    "A field that is not required may be left out or null. One that is not in this document is "
    "ignored, and named in the header x-weft-ignored-fields. docs/API.md says what each field "
    "does; defaults of sampling that are not here are in /info. Keys are wanted where the server "
    "was started with --api-keys.";

absl::string_view ErrorSchemaName(ErrorShape shape) {
  switch (shape) {
    case ErrorShape::kTgi:
      return "TgiError";
    case ErrorShape::kOpenAi:
      return "OpenAiError";
    case ErrorShape::kAnthropic:
      return "AnthropicError";
    case ErrorShape::kOpenInference:
      break;
  }
  return "OpenInferenceError";
}

absl::string_view PortNames(api::Port port) {
  if (port == api::Port::kBoth) return R"(["public","admin"])";
  return port == api::Port::kAdmin ? R"(["admin"])" : R"(["public"])";
}

constexpr std::pair<absl::string_view, absl::string_view> kErrorSchemas[] = {
    {"TgiError", R"({"type":"object","required":["error","error_type"],"properties":{)"
                 R"("error":{"type":"string"},"error_type":{"type":"string"}}})"},
    {"OpenAiError",
     R"({"type":"object","required":["error"],"properties":{"error":{"type":"object",)"
     R"("required":["message","type","param","code"],"properties":{"message":{"type":"string"},)"
     R"("type":{"type":"string"},"param":{"type":["string","null"]},)"
     R"("code":{"type":["string","null"]}}}}})"},
    {"AnthropicError",
     R"({"type":"object","required":["type","error"],"properties":{"type":{"const":"error"},)"
     R"("error":{"type":"object","required":["type","message"],"properties":{)"
     R"("type":{"type":"string"},"message":{"type":"string"}}}}})"},
    {"OpenInferenceError",
     R"({"type":"object","required":["error"],"properties":{"error":{"type":"string"}}})"}};

std::string Reference(absl::string_view name) {
  return absl::StrCat(R"({"$ref":"#/components/schemas/)", name, "\"}");
}

std::string BodySchema(absl::string_view names) {
  if (names == "*") return "{}";
  const std::vector<absl::string_view> one_of = absl::StrSplit(names, '|');
  if (one_of.size() == 1) return Reference(one_of.front());
  std::string schema = R"({"anyOf":[)";
  for (const absl::string_view name : one_of) {
    absl::StrAppend(&schema, name == one_of.front() ? "" : ",", Reference(name));
  }
  return schema + "]}";
}

void WriteContent(absl::string_view type, absl::string_view schema, JsonWriter* json) {
  json->Key(type).BeginObject().Key("schema").Raw(schema).EndObject();
}

void WriteResponses(const ApiRoute& route, JsonWriter* json) {
  json->Key("responses").BeginObject();
  json->Key("200").BeginObject().Key("description").String("The answer");
  if (route.answer != AnswerKind::kEmpty) {
    json->Key("content").BeginObject();
    if (route.answer == AnswerKind::kText) WriteContent("text/*", R"({"type":"string"})", json);
    if (route.answer != AnswerKind::kText && route.answer != AnswerKind::kStream) {
      WriteContent("application/json", "{}", json);
    }
    if (route.answer == AnswerKind::kStream || route.answer == AnswerKind::kJsonOrStream) {
      WriteContent("text/event-stream", R"({"type":"string"})", json);
    }
    if (route.answer == AnswerKind::kJsonOrLines) {
      WriteContent("application/x-ndjson", R"({"type":"string"})", json);
    }
    json->EndObject();
  }
  json->EndObject();
  json->Key("default").BeginObject().Key("description").String("A refusal or a failure");
  json->Key("content").BeginObject();
  WriteContent("application/json", Reference(ErrorSchemaName(route.errors)), json);
  json->EndObject().EndObject().EndObject();
}

// The names in braces.
void WritePathParameters(absl::string_view path, JsonWriter* json) {
  const size_t open = path.find('{');
  if (open == absl::string_view::npos) return;
  const absl::string_view name = path.substr(open + 1, path.find('}') - open - 1);
  json->Key("parameters").BeginArray().BeginObject().Key("name").String(name);
  json->Key("in").String("path").Key("required").Bool(true);
  json->Key("schema").Raw(R"({"type":"string"})").EndObject().EndArray();
}

void WriteOperation(const ApiRoute& route, JsonWriter* json) {
  json->Key(route.method == HttpMethod::kGet ? "get" : "post").BeginObject();
  json->Key("summary").String(route.about);
  json->Key("x-weft-ports").Raw(PortNames(route.port));
  if (route.key) json->Key("security").Raw(R"([{"bearer":[]},{"header":[]},{}])");
  WritePathParameters(route.path, json);
  if (!route.body.empty()) {
    json->Key("requestBody").BeginObject().Key("required").Bool(true);
    json->Key("content").BeginObject();
    WriteContent("application/json", BodySchema(route.body), json);
    json->EndObject().EndObject();
  }
  WriteResponses(route, json);
  json->EndObject();
}

void WritePaths(JsonWriter* json) {
  // Methods of one path stand together.
  std::map<absl::string_view, std::vector<const ApiRoute*>> by_path;
  for (const ApiRoute& route : api::ApiRoutes()) by_path[route.path].push_back(&route);
  json->Key("paths").BeginObject();
  for (const auto& [path, routes] : by_path) {
    json->Key(path).BeginObject();
    for (const ApiRoute* route : routes) WriteOperation(*route, json);
    json->EndObject();
  }
  json->EndObject();
}

void WriteComponents(JsonWriter* json) {
  json->Key("components").BeginObject().Key("schemas").BeginObject();
  for (const api::ApiBody& body : api::AllBodies()) {
    json->Key(body.name).Raw(absl::StrCat("{", api::ObjectSchema(body.fields), "}"));
  }
  for (const auto& [name, schema] : kErrorSchemas) json->Key(name).Raw(schema);
  json->EndObject();
  json->Key("securitySchemes")
      .Raw(R"({"bearer":{"type":"http","scheme":"bearer"},)"
           R"("header":{"type":"apiKey","in":"header","name":"x-api-key"}})");
  json->EndObject();
}

}  // namespace

std::string OpenApiDocument() {
  std::string document;
  JsonWriter json(&document);
  json.BeginObject().Key("openapi").String("3.1.0").Key("info").BeginObject();
  json.Key("title").String("weft").Key("version").String(Version());
  json.Key("description").String(kAbout).EndObject();
  WritePaths(&json);
  WriteComponents(&json);
  json.EndObject();
  return document;
}

void AddOpenApiRoute(HttpRouter* router) {
  const auto document = std::make_shared<const std::string>(OpenApiDocument());
  router->Add(HttpMethod::kGet, "/openapi.json",
              [document](HttpRequest, HttpResponder& responder, IoWaker&) {
                HttpReply reply;
                reply.body = *document;
                responder.Reply(std::move(reply));
                return std::shared_ptr<HttpExchange>();
              });
}

}  // namespace weft::router
