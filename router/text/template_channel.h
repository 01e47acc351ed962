// Messages between the router and a template worker: a length in 4 bytes and so many bytes, over a
// stream socket, and the fields inside. Stateless; the router's side waits no longer than its
// deadline, in poll, and takes no more than it allows. Sizes that come from a worker are not
// believed: it runs a hostile template.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace weft::router {

// Writes one message. DEADLINE_EXCEEDED, or UNAVAILABLE when the other side is gone.
absl::Status SendFrame(int socket, absl::string_view payload, absl::Time deadline);
// Reads one message of at most `bytes_max`. Errors as above; RESOURCE_EXHAUSTED when it is larger.
absl::StatusOr<std::string> ReceiveFrame(int socket, size_t bytes_max, absl::Time deadline);

// Fields of a payload: numbers in 4 bytes, texts with their length before them.
void AppendNumber(std::string* payload, uint32_t value);
void AppendText(std::string* payload, absl::string_view text);

// Takes fields off the front of `*payload`; false when they are not there.
bool TakeNumber(absl::string_view* payload, uint32_t* value);
bool TakeText(absl::string_view* payload, absl::string_view* text);

}  // namespace weft::router
