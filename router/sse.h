// Server-sent events as the doors use them: one `data:` line an event, no comments, no pings
// (benchmark clients parse every line as JSON). Pure functions.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace weft::router {

inline constexpr absl::string_view kSseContentType = "text/event-stream";

// An event is SseBegin, one line of JSON, SseEnd: nothing is copied twice.
inline void SseBegin(std::string* out) { out->append("data: "); }
inline void SseEnd(std::string* out) { out->append("\n\n"); }
// The end of OpenAI's streams.
inline void SseDone(std::string* out) { out->append("data: [DONE]\n\n"); }

}  // namespace weft::router
