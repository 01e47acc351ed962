// Ollama's HTTP API, as far as it asks for text: POST /api/chat and /api/generate, GET /api/tags
// and /api/version, thin translators between its JSON and GenerateInput. The handlers run on
// io_context threads and keep no state.

#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/doors/door_context.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/router.h"

namespace weft::router {

// `doors` must outlive the router.
void AddOllamaRoutes(DoorContext* doors, HttpRouter* router);

// Fields that are known and not served, and options that have no effect, for the description of the
// API.
absl::Span<const RefusedField> RefusedOllamaFields();
absl::Span<const RefusedField> RefusedOllamaOptions();
absl::Span<const absl::string_view> IgnoredOllamaOptions();

}  // namespace weft::router
