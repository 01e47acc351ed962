// Server-sent events as the doors use them: one `data:` line an event; a comment only in a silence
// that a proxy might take for a dead stream (benchmark clients parse every line as JSON). Pure
// functions.

#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "router/doors/http/message.h"

namespace weft::router {

// The head of a stream's response: neither a cache nor a proxy may hold events back.
inline HttpReply SseReply() {
  HttpReply reply;
  reply.content_type = "text/event-stream";
  reply.headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
  return reply;
}

// An event is SseBegin, one line of JSON, SseEnd: nothing is copied twice.
inline void SseBegin(std::string* out) { out->append("data: "); }
// The same of an event that has a name.
inline void SseBegin(absl::string_view name, std::string* out) {
  absl::StrAppend(out, "event: ", name, "\n");
  SseBegin(out);
}
inline void SseEnd(std::string* out) { out->append("\n\n"); }
// Says that the stream lives; readers skip it.
inline void SseComment(std::string* out) { out->append(": waiting\n\n"); }
// The end of OpenAI's streams.
inline void SseDone(std::string* out) { out->append("data: [DONE]\n\n"); }

}  // namespace weft::router
