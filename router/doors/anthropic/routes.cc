#include "router/doors/anthropic/routes.h"

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "router/doors/anthropic/format.h"
#include "router/doors/anthropic/request.h"
#include "router/doors/http/call.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/generation_route.h"
#include "router/doors/http/json.h"
#include "router/doors/http/replies.h"

namespace weft::router {
namespace {

GenerationOrReply Read(const DoorContext& doors, const boost::json::object& body,
                       const std::string& request_id) {
  absl::StatusOr<AnthropicRequest> request =
      ReadMessagesRequest(doors, MessagesUse::kGenerate, body, request_id);
  if (!request.ok()) return RefuseBody(doors, request.status(), AnthropicError);
  std::vector<GenerateInput> inputs;
  inputs.push_back(std::move(request->input));
  return MakeGeneration(std::move(inputs), 1, NewAnthropicFormatter(std::move(request->format)),
                        request->ignored);
}

// The tokens of the prompt that the same body would have at /v1/messages.
void CountTokens(DoorContext* doors, const boost::json::object& body, const std::string& request_id,
                 Admission::Permit permit, const std::shared_ptr<HttpCall>& call) {
  absl::StatusOr<AnthropicRequest> request =
      ReadMessagesRequest(*doors, MessagesUse::kCount, body, request_id);
  if (!request.ok()) return call->Done(AnthropicError(request.status()));
  HttpHeaders headers;
  AddIgnoredHeader(request->ignored, &headers);
  auto done = [call, headers](const absl::StatusOr<TokenizeResult>& result) {
    HttpReply reply;
    if (result.ok()) {
      JsonWriter json(&reply.body);
      json.BeginObject().Key("input_tokens").Unsigned(result->ids.size()).EndObject();
    } else {
      reply = AnthropicError(NamedForAnthropic(result.status()));
    }
    reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
    call->Done(std::move(reply));
  };
  doors->entrance().Tokenize(std::get<ChatPrompt>(std::move(request->input.prompt)),
                             /*add_special_tokens=*/false, std::move(permit), call->text_call(),
                             std::move(done));
}

}  // namespace

void AddAnthropicRoutes(DoorContext* doors, HttpRouter* router) {
  AddGenerationRoute(doors, "/v1/messages", Read, AnthropicError, router);
  AddTextRoute(doors, "/v1/messages/count_tokens", CountTokens, AnthropicError, router);
}

}  // namespace weft::router
