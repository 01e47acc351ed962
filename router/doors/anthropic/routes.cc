#include "router/doors/anthropic/routes.h"

#include <memory>
#include <utility>
#include <variant>

#include "router/doors/anthropic/format.h"
#include "router/doors/anthropic/request.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/generate.h"
#include "router/doors/http/parameters.h"
#include "router/doors/http/replies.h"

namespace weft::router {
namespace {

std::variant<ReadGeneration, HttpReply> Read(const DoorContext& doors, const HttpRequest& http) {
  const auto refuse = [&doors](const absl::Status& status) {
    doors.probe().Failed(FailureReason::kValidation);
    return AnthropicError(status);
  };
  const absl::StatusOr<boost::json::value> body = ParseBody(http.body);
  if (!body.ok()) return refuse(body.status());
  absl::StatusOr<AnthropicRequest> request =
      ReadMessagesRequest(doors, body->get_object(), http.request_id);
  if (!request.ok()) return refuse(request.status());
  std::vector<GenerateInput> inputs;
  inputs.push_back(std::move(request->input));
  return MakeGeneration(std::move(inputs), 1, NewAnthropicFormatter(std::move(request->format)),
                        request->ignored);
}

}  // namespace

void AddAnthropicRoutes(DoorContext* doors, HttpRouter* router) {
  const auto complete = [doors](HttpRequest http, HttpResponder& responder,
                                IoWaker& waker) -> std::shared_ptr<HttpExchange> {
    absl::StatusOr<Admission::Permit> permit = doors->Enter(http.tenant, http.body.size());
    if (!permit.ok()) {
      responder.Reply(AnthropicError(permit.status()));
      return nullptr;
    }
    const auto read = [doors](const HttpRequest& request) { return Read(*doors, request); };
    return GenerateExchange::Start(*doors, std::move(http), *std::move(permit), read,
                                   AnthropicError, responder, waker);
  };
  router->Add(HttpMethod::kPost, "/v1/messages", complete, KeyGate(doors));
}

}  // namespace weft::router
