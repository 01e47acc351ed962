// The table of all HTTP routes: the one description of what this server answers, from which
// /openapi.json is made. A new route is a row here, its body a list of fields in *_bodies.cc; a
// test holds rows and fields against a running server, both ways. Constant.

#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/doors/http/message.h"

namespace weft::router::api {

// Whose shape the errors of a route have.
enum class ErrorShape { kTgi, kOpenAi, kAnthropic, kOpenInference };

// What an answer with 200 is.
enum class AnswerKind { kJson, kStream, kJsonOrStream, kJsonOrLines, kText, kEmpty };

// On which port a route is, by default.
enum class Port { kPublic, kAdmin, kBoth };

struct ApiRoute {
  HttpMethod method;
  // As in OpenAPI: "{name}" stands for what HttpRouter has a "*" for.
  absl::string_view path;
  absl::string_view about;
  // Names of bodies (bodies.h), separated by '|'; empty for none, and "*" for any.
  absl::string_view body;
  AnswerKind answer = AnswerKind::kJson;
  ErrorShape errors = ErrorShape::kTgi;
  // A key is asked for where keys are wanted.
  bool key = false;
  Port port = Port::kPublic;
};

absl::Span<const ApiRoute> ApiRoutes();

}  // namespace weft::router::api
