// Error bodies of the HTTP doors, one shape per family of routes, from an absl::Status. Pure
// functions.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/doors/http/message.h"

namespace weft::router {

// {"error": text, "error_type": word}. Codes are TGI's: 422 validation, 424 generation, 429
// overloaded; the rest as HttpCode().
HttpReply TgiError(const absl::Status& status);
// The body of it, for a stream that has begun.
std::string TgiErrorBody(const absl::Status& status);

// {"error": {"message", "type", "param", "code"}} with HttpCode().
HttpReply OpenAiError(const absl::Status& status);
std::string OpenAiErrorBody(const absl::Status& status);
// Its `code`, a stable word; empty for null.
std::string OpenAiErrorCode(const absl::Status& status);

// {"type": "error", "error": {"type", "message"}} with HttpCode(). There is no place for the field:
// the message begins with it.
HttpReply AnthropicError(const absl::Status& status);
std::string AnthropicErrorBody(const absl::Status& status);

// For requests that reached no handler: Anthropic's shape at /v1/messages, OpenAI's below /v1/
// and where vLLM has paths of its own, TGI's elsewhere.
HttpReply TransportError(absl::string_view path, int code, absl::string_view message);
HttpReply TransportError(absl::string_view path, const absl::Status& status);

// Text of the status line, for example "Not Found".
absl::string_view HttpReason(int code);

}  // namespace weft::router
