// Reads the body of /v1/messages, and of its counting of tokens, into a GenerateInput and the
// wishes for the answer. Called by the route, on io_context threads and on those of text in; keeps
// no state and never answers.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "boost/json/object.hpp"
#include "router/doors/anthropic/format.h"
#include "router/doors/door_context.h"
#include "router/doors/http/fields.h"
#include "router/request.h"

namespace weft::router {

struct AnthropicRequest {
  GenerateInput input;
  AnthropicFormat format;
  std::vector<std::string> ignored;
};

// Tokens that are only counted need no limit on those of the answer.
enum class MessagesUse : uint8_t { kGenerate, kCount };

// `request_id` is the client's own name for the request. NOT_FOUND for another model's name.
absl::StatusOr<AnthropicRequest> ReadMessagesRequest(const DoorContext& doors, MessagesUse use,
                                                     const boost::json::object& body,
                                                     const std::string& request_id);

// Fields that are known and not served, for the description of the API.
absl::Span<const RefusedField> RefusedAnthropicFields();

}  // namespace weft::router
