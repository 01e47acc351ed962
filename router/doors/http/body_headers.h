// What a request's head must say of the body that follows: that it is JSON, and not compressed.
// Pure; called by the connection before a byte of the body is read.

#pragma once

#include <optional>

#include "router/doors/http/message.h"
#include "router/doors/http/request_head.h"

namespace weft::router {

// The 415 for a body that no route reads, in words that name the header and the way out; nothing
// when the body may come.
std::optional<HttpReply> CheckBodyHeaders(const RequestHead& head);

}  // namespace weft::router
