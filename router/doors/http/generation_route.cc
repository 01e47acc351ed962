#include "router/doors/http/generation_route.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "boost/json/value.hpp"
#include "router/doors/http/gate.h"
#include "router/doors/http/parameters.h"

namespace weft::router {

HttpReply RefuseBody(const DoorContext& doors, const absl::Status& status, ErrorReply error) {
  doors.probe().Failed(FailureReason::kValidation);
  return error(status);
}

void AddGenerationRoute(DoorContext* doors, std::string path, BodyReader read, ErrorReply error,
                        HttpRouter* router) {
  const auto read_request = [doors, read = std::move(read),
                             error](const HttpRequest& http) -> GenerationOrReply {
    const absl::StatusOr<boost::json::value> body = ParseBody(http.body);
    if (!body.ok()) return RefuseBody(*doors, body.status(), error);
    return read(*doors, body->get_object(), http.request_id);
  };
  const auto generate = [doors, read_request, error](
                            HttpRequest http, HttpResponder& responder,
                            IoWaker& waker) -> std::shared_ptr<HttpExchange> {
    absl::StatusOr<Admission::Permit> permit = doors->Enter(http.tenant, http.body.size());
    if (!permit.ok()) {
      responder.Reply(error(permit.status()));
      return nullptr;
    }
    return GenerateExchange::Start(*doors, std::move(http), *std::move(permit), read_request, error,
                                   responder, waker);
  };
  router->Add(HttpMethod::kPost, std::move(path), generate, KeyGate(doors));
}

}  // namespace weft::router
