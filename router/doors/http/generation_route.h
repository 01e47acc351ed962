// Routes that read a JSON body and generate: what those of TGI, OpenAI and Anthropic have in common
// between a request's head and its GenerateExchange. Filled once at start; the handlers run on
// io_context threads and keep no state.

#pragma once

#include <functional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "boost/json/object.hpp"
#include "router/doors/door_context.h"
#include "router/doors/http/generate.h"
#include "router/doors/http/message.h"
#include "router/doors/http/router.h"

namespace weft::router {

using GenerationOrReply = std::variant<ReadGeneration, HttpReply>;
// Words an error for a family of routes (replies.h).
using ErrorReply = HttpReply (*)(const absl::Status& status);
// Makes a generation of a parsed body, or its refusal. Any thread.
using BodyReader = std::function<GenerationOrReply(
    const DoorContext& doors, const boost::json::object& body, const std::string& request_id)>;

// The reply to an error of the client that no engine sees; counts it.
HttpReply RefuseBody(const DoorContext& doors, const absl::Status& status, ErrorReply error);

// Adds POST `path`, which asks for a key where keys are wanted. A request is let in before its body
// is read. `doors` must outlive the router.
void AddGenerationRoute(DoorContext* doors, std::string path, BodyReader read, ErrorReply error,
                        HttpRouter* router);

}  // namespace weft::router
