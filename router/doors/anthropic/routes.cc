#include "router/doors/anthropic/routes.h"

#include <utility>
#include <vector>

#include "router/doors/anthropic/format.h"
#include "router/doors/anthropic/request.h"
#include "router/doors/http/generation_route.h"
#include "router/doors/http/replies.h"

namespace weft::router {
namespace {

GenerationOrReply Read(const DoorContext& doors, const boost::json::object& body,
                       const std::string& request_id) {
  absl::StatusOr<AnthropicRequest> request = ReadMessagesRequest(doors, body, request_id);
  if (!request.ok()) return RefuseBody(doors, request.status(), AnthropicError);
  std::vector<GenerateInput> inputs;
  inputs.push_back(std::move(request->input));
  return MakeGeneration(std::move(inputs), 1, NewAnthropicFormatter(std::move(request->format)),
                        request->ignored);
}

}  // namespace

void AddAnthropicRoutes(DoorContext* doors, HttpRouter* router) {
  AddGenerationRoute(doors, "/v1/messages", Read, AnthropicError, router);
}

}  // namespace weft::router
