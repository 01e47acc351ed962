// Reads the body of /v1/responses into a GenerateInput and the wishes for the answer. Nothing is
// kept between requests: fields that refer to an earlier answer are refused by name. Called by the
// route, on io_context threads and on those of text in; keeps no state and never answers.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "boost/json/object.hpp"
#include "router/doors/door_context.h"
#include "router/doors/http/fields.h"
#include "router/doors/responses/format.h"
#include "router/request.h"

namespace weft::router {

struct ResponsesRequest {
  GenerateInput input;
  ResponsesFormat format;
  std::vector<std::string> ignored;
};

// `request_id` is the client's own name for the request. NOT_FOUND for another model's name.
absl::StatusOr<ResponsesRequest> ReadResponsesRequest(const DoorContext& doors,
                                                      const boost::json::object& body,
                                                      const std::string& request_id);

// Fields that are known and not served, for the description of the API: of a body, and of what is
// in it.
absl::Span<const RefusedField> RefusedResponsesFields();
absl::Span<const RefusedField> RefusedResponsesTool();
absl::Span<const RefusedField> RefusedResponsesText();
absl::Span<const RefusedField> RefusedResponsesReasoning();
absl::Span<const RefusedField> RefusedResponsesStreamOptions();

}  // namespace weft::router
