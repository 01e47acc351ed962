#include "router/doors/responses/routes.h"

#include <utility>
#include <vector>

#include "router/doors/http/generation_route.h"
#include "router/doors/http/replies.h"
#include "router/doors/responses/format.h"
#include "router/doors/responses/request.h"

namespace weft::router {
namespace {

GenerationOrReply Read(const DoorContext& doors, const boost::json::object& body,
                       const std::string& request_id) {
  absl::StatusOr<ResponsesRequest> request = ReadResponsesRequest(doors, body, request_id);
  if (!request.ok()) return RefuseBody(doors, request.status(), OpenAiError);
  std::vector<GenerateInput> inputs;
  inputs.push_back(std::move(request->input));
  return MakeGeneration(std::move(inputs), 1, NewResponsesFormatter(std::move(request->format)),
                        request->ignored);
}

}  // namespace

void AddResponsesRoutes(DoorContext* doors, HttpRouter* router) {
  AddGenerationRoute(doors, "/v1/responses", Read, OpenAiError, router);
}

}  // namespace weft::router
