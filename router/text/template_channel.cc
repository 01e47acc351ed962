#include "router/text/template_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"

namespace weft::router {
namespace {

absl::Status Gone() { return absl::UnavailableError("the other side is gone"); }

// Waits until the socket is ready for `events`.
absl::Status Wait(int socket, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    // Rounded up, so that a remainder of microseconds does not poll without waiting.
    const int64_t left_ms = deadline == absl::InfiniteFuture()
                                ? -1
                                : std::min<int64_t>(absl::ToInt64Milliseconds(left) + 1, 60'000);
    pollfd entry = {socket, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left_ms));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Gone();
  }
}

absl::Status ReceiveAll(int socket, char* data, size_t bytes, absl::Time deadline) {
  while (bytes > 0) {
    WEFT_RETURN_IF_ERROR(Wait(socket, POLLIN, deadline));
    const ssize_t got = recv(socket, data, bytes, MSG_DONTWAIT);
    if (got == 0) return Gone();
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return Gone();
    }
    data += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status SendAll(int socket, absl::string_view data, absl::Time deadline) {
  while (!data.empty()) {
    const ssize_t sent = send(socket, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      data.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return Gone();
    WEFT_RETURN_IF_ERROR(Wait(socket, POLLOUT, deadline));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SendFrame(int socket, absl::string_view payload, absl::Time deadline) {
  if (payload.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::ResourceExhaustedError("a message of more than 4 GiB");
  }
  std::string head;
  AppendNumber(&head, static_cast<uint32_t>(payload.size()));
  // Short messages go in one piece: two would wake the other side twice.
  constexpr size_t kShortBytes = 64u << 10;
  if (payload.size() <= kShortBytes) {
    head.append(payload.data(), payload.size());
    return SendAll(socket, head, deadline);
  }
  WEFT_RETURN_IF_ERROR(SendAll(socket, head, deadline));
  return SendAll(socket, payload, deadline);
}

absl::StatusOr<std::string> ReceiveFrame(int socket, size_t bytes_max, absl::Time deadline) {
  char head[4];
  WEFT_RETURN_IF_ERROR(ReceiveAll(socket, head, sizeof(head), deadline));
  uint32_t bytes = 0;
  std::memcpy(&bytes, head, sizeof(bytes));
  if (bytes > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a message of ", bytes, " bytes; at most ", bytes_max, " are taken"));
  }
  std::string payload(bytes, '\0');
  WEFT_RETURN_IF_ERROR(ReceiveAll(socket, payload.data(), payload.size(), deadline));
  return payload;
}

void AppendNumber(std::string* payload, uint32_t value) {
  payload->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void AppendText(std::string* payload, absl::string_view text) {
  AppendNumber(payload, static_cast<uint32_t>(text.size()));
  payload->append(text.data(), text.size());
}

bool TakeNumber(absl::string_view* payload, uint32_t* value) {
  if (payload->size() < sizeof(*value)) return false;
  std::memcpy(value, payload->data(), sizeof(*value));
  payload->remove_prefix(sizeof(*value));
  return true;
}

bool TakeText(absl::string_view* payload, absl::string_view* text) {
  uint32_t bytes = 0;
  if (!TakeNumber(payload, &bytes) || payload->size() < bytes) return false;
  *text = payload->substr(0, bytes);
  payload->remove_prefix(bytes);
  return true;
}

}  // namespace weft::router
