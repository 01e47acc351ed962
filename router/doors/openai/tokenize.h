// vLLM's /tokenize and /detokenize: texts and conversations to token ids and back, with OpenAI's
// shape of errors. They run on io_context threads and those of text in, and keep no state.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "boost/json/object.hpp"
#include "router/doors/door_context.h"
#include "router/doors/http/call.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/router.h"

namespace weft::router {

// A body of /tokenize is vLLM's when it has `prompt` or `messages` and not `inputs`, which is
// TGI's.
bool IsVllmTokenize(const boost::json::object& body);

// Answers such a body, as a TextCallReader: {"count", "max_model_len", "tokens", "token_strs"}.
void VllmTokenize(DoorContext* doors, const boost::json::object& body,
                  const std::string& request_id, Admission::Permit permit,
                  const std::shared_ptr<HttpCall>& call);

// Fields of such a body that are known and not served, for the description of the API.
std::vector<absl::Span<const RefusedField>> RefusedTokenizeFields(bool chat);

// POST /detokenize. `doors` must outlive the router.
void AddDetokenizeRoute(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
