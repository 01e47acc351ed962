// OpenAI's HTTP API: a thin translator between its JSON and GenerateInput. The handlers run on
// io_context threads and keep no state.

#pragma once

#include <string>

#include "boost/json/object.hpp"
#include "router/doors/door_context.h"
#include "router/doors/http/generation_route.h"
#include "router/doors/http/router.h"

namespace weft::router {

// What `body` asks for, as a chat or as a completion; or the refusal, which is counted. `door` is
// where ignored fields are counted.
GenerationOrReply ReadOpenAiGeneration(const DoorContext& doors, bool chat,
                                       const boost::json::object& body,
                                       const std::string& request_id, Door door);

// POST /v1/chat/completions, /v1/completions, /detokenize; GET /v1/models, /v1/models/{id}; POST of
// what other kinds of models do (embeddings, ranks, scores), refused. `doors` must outlive the
// router.
void AddOpenAiRoutes(DoorContext* doors, HttpRouter* router);

}  // namespace weft::router
