// What an answer of a hub means for the pull: go on, try again and when, or give up and why, with
// the way out. Pure.

#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "deploy/launcher/hub/model_id.h"

namespace weft::hub {

// Names in lower case.
using Headers = std::map<std::string, std::string>;
// The value of header `name`; empty when there is none.
absl::string_view HeaderOr(const Headers& headers, const std::string& name);

// How long the server asks to be left alone: Retry-After in seconds or as a date, or the `t` of a
// RateLimit header; at most kAskedWaitMax. Nothing when it does not ask.
inline constexpr absl::Duration kAskedWaitMax = absl::Minutes(10);
absl::optional<absl::Duration> AskedWait(const Headers& headers, absl::Time now);

// Whether the same request may succeed later: 408, 425, 429, 5xx.
bool IsPassing(int status);
bool IsRedirect(int status);

// How long to wait before try `failures` + 1 when the server says nothing: 0.5 s doubled each time
// up to 30 s, times `random` in 0.5 .. 1.
absl::Duration BackOff(uint32_t failures, double random);

// Who asked for what, for words.
struct Asked {
  ModelId id;
  // Without a path: the list of files.
  std::string path;
  std::string endpoint;
  // Whose answer it is.
  std::string host;
  bool with_token = false;
};

// An answer that is neither 2xx nor a redirect, in words that name the way out. UNAVAILABLE where
// IsPassing, else UNAUTHENTICATED, PERMISSION_DENIED, NOT_FOUND or FAILED_PRECONDITION. `body` is
// the beginning of its body.
absl::Status RefusalOf(int status, const Headers& headers, absl::string_view body,
                       const Asked& asked);

// "bytes 5-9/100" as from, to (behind the last byte) and all; `all` is 0 where it is unknown.
struct ContentRange {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t all = 0;
};
absl::optional<ContentRange> ParseContentRange(absl::string_view text);

}  // namespace weft::hub
