#include "router/shards/client_http2.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "router/shards/connect_reason.h"

namespace weft::router {
namespace {

constexpr int64_t kBackoffFirstUs = 10'000;
constexpr int64_t kBackoffMaxUs = 200'000;
// Time for connect and the peer's settings; a loaded machine needs some.
constexpr int64_t kHandshakeUs = 2'000'000;
constexpr int64_t kKeepaliveUs = 10'000'000;
constexpr size_t kReadBytes = 64u << 10;
// Unsent bytes of two steps to a rank, and some.
constexpr size_t kOutputBytesMax = 3 * kShardMessageBytesMax;

absl::Status ConnectionError(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace

Http2ShardClient::Http2ShardClient(Rank rank, std::string name, const LocalAddress& address,
                                   ShardReplySink sink, Poller* poller, const Clock* clock,
                                   Http2StreamId worn_at)
    : rank_(rank),
      name_(std::move(name)),
      address_(address),
      sink_(std::move(sink)),
      poller_(poller),
      clock_(clock),
      worn_at_(worn_at),
      paths_(CallPaths()),
      broken_(absl::UnavailableError("not connected yet")),
      input_(kReadBytes),
      backoff_us_(kBackoffFirstUs) {
  poller_->Add(this);
}

Http2ShardClient::~Http2ShardClient() {
  poller_->Remove(this);
  if (fd_ >= 0) close(fd_);
  const absl::Status why = absl::CancelledError("the client is going away");
  for (auto& [id, call] : calls_) Finish(call, why, "");
  for (PendingCall& call : waiting_) Finish(call, why, "");
}

void Http2ShardClient::Call(ShardCall call, const SharedBytes& request, ShardCallTag tag,
                            int64_t timeout_us, bool wait_for_ready) {
  PendingCall pending;
  pending.reply.rank = rank_;
  pending.reply.call = call;
  pending.reply.tag = tag;
  pending.request = request;
  pending.start_us = clock_->NowUs();
  pending.deadline_us = pending.start_us + timeout_us;
  pending.wait_for_ready = wait_for_ready;
  if (ready()) {
    const int64_t now_us = pending.start_us;
    Start(std::move(pending), now_us);
    if (ready()) Flush(now_us);
  } else if (wait_for_ready || renewing_) {
    waiting_.push_back(std::move(pending));
  } else {
    Finish(pending, broken_, "");
  }
}

// -- Connection ----------------------------------------------------------------------------------

short Http2ShardClient::events() const {
  return connecting_ || output_at_ < output_.size() ? POLLIN | POLLOUT : POLLIN;
}

int64_t Http2ShardClient::timer_us() const {
  int64_t first_us = due_us_;
  for (const auto& [id, call] : calls_) first_us = std::min(first_us, call.deadline_us);
  for (const PendingCall& call : waiting_) first_us = std::min(first_us, call.deadline_us);
  return first_us;
}

void Http2ShardClient::OnTimer(int64_t now_us) {
  Expire(now_us);
  if (now_us < due_us_) return;
  if (fd_ < 0) {
    Connect(now_us);
  } else if (!ready()) {
    Break(absl::UnavailableError("the shard did not answer the connection"), now_us);
  } else if (pinged_) {
    Break(absl::UnavailableError("no sign of life on the connection"), now_us);
  } else {
    pinged_ = true;
    due_us_ = now_us + kKeepaliveUs;
    session_->Ping();
    Flush(now_us);
  }
}

void Http2ShardClient::Connect(int64_t now_us) {
  fd_ = socket(address_.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return Break(ConnectionError("socket", errno), now_us);
  due_us_ = now_us + kHandshakeUs;
  const auto* address = reinterpret_cast<const sockaddr*>(&address_.bytes);
  if (connect(fd_, address, address_.size) == 0) return OnConnected(now_us);
  connecting_ = errno == EINPROGRESS;
  // A full backlog of a Unix socket is EAGAIN: tried again like any other failure.
  if (!connecting_) Break(ConnectionError("cannot connect", errno), now_us);
}

bool Http2ShardClient::Idle() const {
  return std::all_of(calls_.begin(), calls_.end(),
                     [](const auto& entry) { return entry.second.reply.call == ShardCall::kHold; });
}

void Http2ShardClient::Renew(int64_t now_us) {
  // A claim goes on over the new connection; it may be made twice, as no step may.
  for (auto& [id, call] : std::exchange(calls_, {})) waiting_.push_back(std::move(call));
  CloseConnection();
  renewing_ = true;
  Connect(now_us);
}

void Http2ShardClient::CloseConnection() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  connecting_ = false;
  renewing_ = false;
  pinged_ = false;
  output_.clear();
  output_at_ = 0;
  session_.reset();
}

void Http2ShardClient::OnConnected(int64_t now_us) {
  connecting_ = false;
  ++connections_;
  session_ = std::make_unique<Http2Session>(
      [this](Http2StreamId id, absl::Status status, std::string body) {
        auto node = calls_.extract(id);
        if (!node.empty()) Finish(node.mapped(), std::move(status), std::move(body));
      },
      worn_at_);
  Flush(now_us);
}

void Http2ShardClient::Break(const absl::Status& why, int64_t now_us) {
  CloseConnection();
  broken_ = why;
  due_us_ = now_us + backoff_us_;
  backoff_us_ = std::min(2 * backoff_us_, kBackoffMaxUs);
  auto calls = std::exchange(calls_, {});
  for (auto& [id, call] : calls) Finish(call, why, "");
  const auto first_lost =
      std::stable_partition(waiting_.begin(), waiting_.end(),
                            [](const PendingCall& call) { return call.wait_for_ready; });
  for (auto it = first_lost; it != waiting_.end(); ++it) Finish(*it, why, "");
  waiting_.erase(first_lost, waiting_.end());
}

void Http2ShardClient::OnReady(short events, int64_t now_us) {
  if (connecting_) {
    int error = 0;
    socklen_t size = sizeof(error);
    WEFT_CHECK_EQ(getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    if (error != 0) return Break(ConnectionError("cannot connect", error), now_us);
    return OnConnected(now_us);
  }
  if ((events & ~POLLOUT) != 0) Read(now_us);
  if (session_ != nullptr) Flush(now_us);
}

void Http2ShardClient::Read(int64_t now_us) {
  const bool was_ready = ready();
  ssize_t count = 0;
  do {
    count = recv(fd_, input_.data(), input_.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;  // perhaps after a full read
    if (count == 0) return Break(absl::UnavailableError("the shard closed the connection"), now_us);
    if (count < 0) return Break(ConnectionError("connection lost", errno), now_us);
    const absl::Status status = session_->Receive({input_.data(), static_cast<size_t>(count)});
    if (!status.ok()) return Break(status, now_us);
    if (ready()) due_us_ = now_us + kKeepaliveUs;  // until then the hand-shake's limit holds
    pinged_ = false;
  } while (static_cast<size_t>(count) == input_.size());
  if (session_->worn() && Idle()) return Renew(now_us);
  if (was_ready || !ready()) return;
  renewing_ = false;
  backoff_us_ = kBackoffFirstUs;
  for (PendingCall& call : std::exchange(waiting_, {})) {
    if (ready()) {
      Start(std::move(call), now_us);
    } else {
      waiting_.push_back(std::move(call));
    }
  }
}

void Http2ShardClient::Flush(int64_t now_us) {
  if (const absl::Status status = session_->Output(&output_); !status.ok()) {
    return Break(status, now_us);
  }
  while (output_at_ < output_.size()) {
    const ssize_t count =
        send(fd_, output_.data() + output_at_, output_.size() - output_at_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;  // the poller says when
    if (count < 0) return Break(ConnectionError("connection lost", errno), now_us);
    output_at_ += static_cast<size_t>(count);
  }
  if (output_at_ == output_.size()) {
    output_.clear();
    output_at_ = 0;
  } else if (output_.size() - output_at_ > kOutputBytesMax) {
    Break(absl::UnavailableError("the shard does not read what it is sent"), now_us);
  }
}

// -- Calls ---------------------------------------------------------------------------------------

void Http2ShardClient::Start(PendingCall call, int64_t now_us) {
  const std::string& path = paths_[static_cast<size_t>(call.reply.call)];
  const int64_t timeout_us = std::max<int64_t>(call.deadline_us - now_us, 1);
  const Http2StreamId id = session_->Start(path, call.request, timeout_us);
  if (id == 0) {
    const absl::Status why = absl::UnavailableError("the connection takes no calls any more");
    Finish(call, why, "");
    return Break(why, now_us);
  }
  calls_.emplace(id, std::move(call));
}

void Http2ShardClient::Finish(PendingCall& call, absl::Status status, std::string body) {
  call.reply.status = std::move(status);
  call.reply.body = std::move(body);
  call.reply.call_us = clock_->NowUs() - call.start_us;
  sink_(std::move(call.reply));
}

void Http2ShardClient::Expire(int64_t now_us) {
  const absl::Status late = absl::DeadlineExceededError("no answer in time");
  std::vector<Http2StreamId> expired;
  for (auto& [id, call] : calls_) {
    if (now_us < call.deadline_us) continue;
    Finish(call, late, "");
    expired.push_back(id);
  }
  for (const Http2StreamId id : expired) {
    calls_.erase(id);
    session_->Cancel(id);
  }
  const auto first_late =
      std::stable_partition(waiting_.begin(), waiting_.end(),
                            [&](const PendingCall& call) { return now_us < call.deadline_us; });
  const ShardRoute route = is_local() ? ShardRoute::kUnixSocket : ShardRoute::kLoopback;
  const absl::Status unconnected =
      absl::DeadlineExceededError(NoConnection(route, name_, broken_.message()));
  for (auto it = first_late; it != waiting_.end(); ++it) Finish(*it, unconnected, "");
  waiting_.erase(first_late, waiting_.end());
  if (!expired.empty() && session_ != nullptr) Flush(now_us);
}

}  // namespace weft::router
