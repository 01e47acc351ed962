// Reads the body of TGI's generating routes into a GenerateInput and the wishes for the answer.
// Called by the routes, on io_context threads and on those of text in; keeps no state and never
// answers.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "boost/json/object.hpp"
#include "router/doors/door_context.h"
#include "router/doors/http/fields.h"
#include "router/doors/tgi/format.h"
#include "router/request.h"

namespace weft::router {

// What a body means differs by where it was sent.
enum class TgiRoute { kRoot, kGenerate, kGenerateStream };

struct TgiRequest {
  GenerateInput input;
  TgiFormat format;
  std::vector<std::string> ignored;
};

// `request_id` is the client's own name for the request; empty = none.
absl::StatusOr<TgiRequest> ReadTgiRequest(const DoorContext& doors, TgiRoute route,
                                          const boost::json::object& body,
                                          const std::string& request_id);

// Fields that are known and not served, for the description of the API: of `parameters`, and beside
// it.
absl::Span<const RefusedField> RefusedTgiParameters();
absl::Span<const RefusedField> RefusedTgiFields();

}  // namespace weft::router
