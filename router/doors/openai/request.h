// Reads the body of /v1/chat/completions and /v1/completions into a GenerateInput and the wishes
// for the answer. /chat_tokenize takes the first body too, /invocations both. Called by the routes,
// on io_context threads and on those of text in; keeps no state and never answers.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "boost/json/object.hpp"
#include "router/doors/door_context.h"
#include "router/doors/http/fields.h"
#include "router/doors/openai/format.h"
#include "router/request.h"

namespace weft::router {

// OpenAI's default limit on new tokens of /v1/completions.
inline constexpr uint32_t kCompletionTokensDefault = 16;

struct OpenAiRequest {
  // One a prompt, at least one.
  std::vector<GenerateInput> inputs;
  OpenAiFormat format;
  std::vector<std::string> ignored;
};

// How tokens are chosen, and where an answer stops: what all routes of OpenAI's read alike. Refuses
// what none of them serves.
void ReadSamplingFields(const DoorContext& doors, FieldReader& fields, GenerateInput* input);

// `request_id` is the client's own name for the request; empty = none. `door` is where ignored
// fields are counted. NOT_FOUND for another model's name.
absl::StatusOr<OpenAiRequest> ReadChatRequest(const DoorContext& doors,
                                              const boost::json::object& body,
                                              const std::string& request_id, Door door);
absl::StatusOr<OpenAiRequest> ReadCompletionRequest(const DoorContext& doors,
                                                    const boost::json::object& body,
                                                    const std::string& request_id, Door door);

// Fields that are known and not served, for the description of the API: anywhere, in chats and in
// completions.
absl::Span<const RefusedField> RefusedSamplingFields();
absl::Span<const RefusedField> RefusedChatFields();
absl::Span<const RefusedField> RefusedCompletionFields();
absl::Span<const RefusedField> RefusedStreamOptions();

}  // namespace weft::router
