#include "router/doors/openai/routes.h"

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/generate.h"
#include "router/doors/http/json.h"
#include "router/doors/http/parameters.h"
#include "router/doors/http/replies.h"
#include "router/doors/openai/format.h"
#include "router/doors/openai/request.h"
#include "router/errors.h"

namespace weft::router {
namespace {

constexpr absl::string_view kModelsPath = "/v1/models/";

// An error of the client that no engine sees.
HttpReply Refusal(const Front& front, const absl::Status& status) {
  front.probe().Failed(FailureReason::kValidation);
  return OpenAiError(status);
}

std::shared_ptr<HttpExchange> Complete(Front* front, bool chat, HttpRequest http,
                                       HttpResponder& responder, IoWaker& waker) {
  absl::StatusOr<Admission::Permit> permit = front->Enter(http.tenant, http.body.size());
  if (!permit.ok()) {
    responder.Reply(OpenAiError(permit.status()));
    return nullptr;
  }
  const auto read = [front, chat](HttpRequest request) -> std::variant<ReadGeneration, HttpReply> {
    const absl::StatusOr<boost::json::value> body = ParseBody(request.body);
    if (!body.ok()) return Refusal(*front, body.status());
    return ReadOpenAiGeneration(*front, chat, body->get_object(), request.request_id,
                                Door::kOpenAi);
  };
  return GenerateExchange::Start(*front, std::move(http), *std::move(permit), read, OpenAiError,
                                 responder, waker);
}

void WriteModel(const ModelFacts& model, JsonWriter* json) {
  json->BeginObject().Key("id").String(model.model_name).Key("object").String("model");
  json->Key("created").Signed(model.created_unix_s).Key("owned_by").String("weft");
  json->Key("max_model_len").Unsigned(model.shape.context_tokens).EndObject();
}

HttpReply Models(const Front& front) {
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject().Key("object").String("list").Key("data").BeginArray();
  const ModelFacts model = front.entrance().Model();
  if (!model.model_name.empty()) WriteModel(model, &json);
  json.EndArray().EndObject();
  return reply;
}

// Undoes percent-encoding; what is not a good escape stays as it is.
std::string PercentDecode(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) &&
        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      out += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

HttpReply OneModel(const Front& front, const HttpRequest& http) {
  const absl::Status known =
      front.CheckModel(PercentDecode(absl::StripPrefix(http.path, kModelsPath)));
  if (!known.ok()) return OpenAiError(known);
  HttpReply reply;
  JsonWriter json(&reply.body);
  WriteModel(front.entrance().Model(), &json);
  return reply;
}

}  // namespace

std::variant<ReadGeneration, HttpReply> ReadOpenAiGeneration(const Front& front, bool chat,
                                                             const boost::json::object& body,
                                                             const std::string& request_id,
                                                             Door door) {
  absl::StatusOr<OpenAiRequest> request =
      chat ? ReadChatRequest(front, body, request_id, door)
           : ReadCompletionRequest(front, body, request_id, door);
  if (!request.ok()) return Refusal(front, request.status());
  ReadGeneration generation;
  AddIgnoredHeader(request->ignored, &generation.headers);
  generation.input = std::move(request->input);
  generation.formatter = NewOpenAiFormatter(std::move(request->format));
  return generation;
}

void AddOpenAiRoutes(Front* front, HttpRouter* router) {
  const HttpGate gate = KeyGate(front);
  const auto complete = [&](std::string path, bool chat) {
    router->Add(
        HttpMethod::kPost, std::move(path),
        [front, chat](HttpRequest request, HttpResponder& responder, IoWaker& waker) {
          return Complete(front, chat, std::move(request), responder, waker);
        },
        gate);
  };
  complete("/v1/chat/completions", true);
  complete("/v1/completions", false);
  router->Add(
      HttpMethod::kGet, "/v1/models",
      [front](HttpRequest, HttpResponder& responder, IoWaker&) {
        responder.Reply(Models(*front));
        return std::shared_ptr<HttpExchange>();
      },
      gate);
  router->Add(
      HttpMethod::kGet, "/v1/models/*",
      [front](HttpRequest request, HttpResponder& responder, IoWaker&) {
        responder.Reply(OneModel(*front, request));
        return std::shared_ptr<HttpExchange>();
      },
      gate);
}

}  // namespace weft::router
