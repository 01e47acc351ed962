#include "shard/comm/mesh_meeting.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/log.h"
#include "common/status.h"
#include "shard/comm/local_communicator.h"
#include "shard/comm/mesh_communicator.h"

namespace weft::shard {
namespace {

constexpr uint32_t kMagic = 0x6d746677;
constexpr uint32_t kVersion = 1;
// For a newcomer to say who it is.
constexpr absl::Duration kHelloTimeout = absl::Seconds(5);
// Newcomers that have not said it yet; the oldest goes for another one.
constexpr size_t kStrangersMax = 2 * 64;

using Secret = std::array<uint8_t, 16>;

// An endpoint as it travels: the address as text, with zeros behind it.
struct WireEndpoint {
  char host[60];
  uint32_t port;
};

// The first bytes on every connection, from the rank that made it. All hosts of a group have one
// build, and so one byte order and one layout.
struct Hello {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  Secret secret{};
  uint64_t epoch = 0;
  uint32_t rank = 0;
  uint32_t world = 0;
  int64_t capacity_floats = 0;
  WireEndpoint listens{};
};

WireEndpoint ToWire(const TcpEndpoint& endpoint) {
  WireEndpoint wire{};
  endpoint.host.copy(wire.host, sizeof(wire.host) - 1);
  wire.port = endpoint.port;
  return wire;
}

TcpEndpoint FromWire(const WireEndpoint& wire) {
  return {std::string(wire.host, strnlen(wire.host, sizeof(wire.host))), wire.port};
}

// Takes the same time wherever the two differ.
bool Equal(const Secret& a, const Secret& b) {
  uint8_t differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ |= a[i] ^ b[i];
  return differ == 0;
}

struct Token {
  Secret secret{};
  TcpEndpoint first;
};

std::string ToText(const Token& token) {
  return absl::StrCat(kMeshTokenPrefix,
                      absl::BytesToHexString(absl::string_view(
                          reinterpret_cast<const char*>(token.secret.data()), token.secret.size())),
                      " ", token.first.host, " ", token.first.port);
}

absl::StatusOr<Token> ParseToken(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Token token;
  if (!absl::StartsWith(text, kMeshTokenPrefix)) {
    return absl::FailedPreconditionError(
        "rank 0 meets the others on its own host: give every shard --comm-host, or none");
  }
  if (words.size() != 4 || words[1].size() != 2 * token.secret.size() ||
      words[1].find_first_not_of("0123456789abcdef") != std::string::npos ||
      words[2].size() >= sizeof(WireEndpoint::host) ||
      !absl::SimpleAtoi(words[3], &token.first.port)) {
    return absl::InvalidArgumentError("token: names no rank that listens");
  }
  const std::string secret = absl::HexStringToBytes(words[1]);
  std::memcpy(token.secret.data(), secret.data(), token.secret.size());
  token.first.host = words[2];
  return token;
}

// One rank's way into one epoch.
class Joining {
 public:
  Joining(const MeetCall& call, const MeshMeetingOptions& options, const Token& token,
          TcpSocket listener, std::function<bool()> aborted)
      : call_(call),
        token_(token),
        listener_(std::move(listener)),
        patience_{call.deadline, call.heartbeat, std::move(aborted)},
        peers_(call.world),
        hellos_(call.world) {
    own_.secret = token.secret;
    own_.epoch = call.epoch;
    own_.rank = call.rank;
    own_.world = call.world;
    own_.capacity_floats = options.capacity_floats;
    own_.listens = ToWire({options.host, PortOf(listener_)});
  }

  // The connections to all ranks, by rank; that of the own rank is not open.
  absl::StatusOr<std::vector<TcpSocket>> Run() {
    std::vector<WireEndpoint> table(call_.world);
    const size_t table_bytes = table.size() * sizeof(WireEndpoint);
    if (call_.rank == 0) {
      WEFT_RETURN_IF_ERROR(AcceptFrom(1));
      for (Rank rank = 1; rank < call_.world; ++rank) table[rank] = hellos_[rank].listens;
      for (Rank rank = 1; rank < call_.world; ++rank) {
        WEFT_RETURN_IF_ERROR(WriteAll(peers_[rank], table.data(), table_bytes, patience_));
      }
    } else {
      WEFT_RETURN_IF_ERROR(ConnectTo(0, token_.first));
      WEFT_RETURN_IF_ERROR(
          Annotate(ReadAll(peers_[0], table.data(), table_bytes, patience_),
                   absl::StrCat("rank ", call_.rank, " waits for the others at rank 0")));
      for (Rank rank = 1; rank < call_.rank; ++rank) {
        WEFT_RETURN_IF_ERROR(ConnectTo(rank, FromWire(table[rank])));
      }
      WEFT_RETURN_IF_ERROR(AcceptFrom(call_.rank + 1));
    }
    return std::move(peers_);
  }

 private:
  struct Stranger {
    TcpSocket socket;
    absl::Time until;
    Hello hello;
    size_t bytes = 0;
  };

  absl::Status ConnectTo(Rank rank, const TcpEndpoint& to) {
    const std::string what = absl::StrCat("rank ", call_.rank, " to rank ", rank);
    absl::StatusOr<TcpSocket> socket = ConnectTcp(to, patience_);
    if (!socket.ok()) return Annotate(socket.status(), what);
    peers_[rank] = *std::move(socket);
    return Annotate(WriteAll(peers_[rank], &own_, sizeof(own_), patience_), what);
  }

  // Until all ranks from `first` on have come.
  absl::Status AcceptFrom(Rank first) {
    std::vector<Stranger> strangers;
    for (;;) {
      const std::vector<Rank> missing = Missing(first);
      if (missing.empty()) return absl::OkStatus();
      if (TcpSocket socket = AcceptTcp(listener_); socket.open()) {
        if (strangers.size() == kStrangersMax) strangers.erase(strangers.begin());
        strangers.push_back({std::move(socket), absl::Now() + kHelloTimeout, Hello{}, 0});
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(const bool moved, Hear(strangers, first));
      if (moved) continue;
      WEFT_RETURN_IF_ERROR(
          patience_.Check(absl::StrCat("rank ", call_.rank, " waited for rank ",
                                       absl::StrJoin(missing, ", "), " of epoch ", call_.epoch)));
      AwaitAny(strangers);
    }
  }

  // Until somebody comes or says something, a slice at most.
  void AwaitAny(const std::vector<Stranger>& strangers) const {
    std::vector<int> readable = {listener_.fd()};
    for (const Stranger& one : strangers) readable.push_back(one.socket.fd());
    AwaitReadable(readable);
  }

  std::vector<Rank> Missing(Rank first) const {
    std::vector<Rank> missing;
    for (Rank rank = first; rank < call_.world; ++rank) {
      if (!peers_[rank].open()) missing.push_back(rank);
    }
    return missing;
  }

  // Reads what newcomers say and lets in who belongs here; whether anything came.
  absl::StatusOr<bool> Hear(std::vector<Stranger>& strangers, Rank first) {
    bool moved = false;
    for (size_t i = 0; i < strangers.size();) {
      Stranger& one = strangers[i];
      const int64_t read = ReadSome(one.socket, reinterpret_cast<char*>(&one.hello) + one.bytes,
                                    sizeof(Hello) - one.bytes);
      if (read > 0) {
        one.bytes += static_cast<size_t>(read);
        moved = true;
      }
      const bool whole = one.bytes == sizeof(Hello);
      if (whole) WEFT_RETURN_IF_ERROR(Admit(one, first));
      if (whole || read < 0 || absl::Now() >= one.until) {
        strangers.erase(strangers.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    return moved;
  }

  // Who does not know the secret, or speaks of another epoch, is not heard.
  absl::Status Admit(Stranger& one, Rank first) {
    const Hello& hello = one.hello;
    if (hello.magic != kMagic || hello.version != kVersion || !Equal(hello.secret, own_.secret) ||
        hello.epoch != own_.epoch || hello.world != own_.world || hello.rank < first ||
        hello.rank >= own_.world || peers_[hello.rank].open()) {
      WEFT_LOG_WARN("a connection that is not of this group was closed epoch={}", call_.epoch);
      return absl::OkStatus();
    }
    if (hello.capacity_floats != own_.capacity_floats) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", hello.rank, " adds up to ", hello.capacity_floats, " values at once, rank ",
          call_.rank, " ", own_.capacity_floats, ": their --step-tokens-max or models differ"));
    }
    hellos_[hello.rank] = hello;
    peers_[hello.rank] = std::move(one.socket);
    return absl::OkStatus();
  }

  const MeetCall& call_;
  const Token& token_;
  const TcpSocket listener_;
  const Patience patience_;
  Hello own_;
  std::vector<TcpSocket> peers_;
  std::vector<Hello> hellos_;
};

class MeshMeeting : public GroupMeeting {
 public:
  explicit MeshMeeting(MeshMeetingOptions options) : options_(std::move(options)) {}

  absl::StatusOr<std::string> Offer(Epoch epoch, uint32_t world) override {
    if (world == 1) return "alone";
    Token token;
    if (getrandom(token.secret.data(), token.secret.size(), 0) !=
        static_cast<ssize_t>(token.secret.size())) {
      return absl::InternalError("the kernel gives no random bytes");
    }
    WEFT_ASSIGN_OR_RETURN(TcpSocket listener, ListenTcp(options_.host, options_.ports));
    token.first = {options_.host, PortOf(listener)};
    const std::lock_guard<std::mutex> lock(mutex_);
    if (offered_epoch_ < epoch) {
      listener_ = std::move(listener);
      offered_epoch_ = epoch;
    }
    return ToText(token);
  }

  void Withdraw(Epoch epoch) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (offered_epoch_ <= epoch) listener_.reset();
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Meet(const MeetCall& call) override {
    if (call.world == 1) return MakeLocalCommunicator(options_.capacity_floats);
    WEFT_ASSIGN_OR_RETURN(const Token token, ParseToken(call.token));
    WEFT_ASSIGN_OR_RETURN(TcpSocket listener, TakeListener(call));
    Joining joining(call, options_, token, std::move(listener),
                    [this, epoch = call.epoch] { return Aborted(epoch); });
    WEFT_ASSIGN_OR_RETURN(std::vector<TcpSocket> peers, joining.Run());
    auto made = std::make_unique<MeshCommunicator>(
        MeshOptions{call.epoch, call.rank, call.world, options_.capacity_floats, call.peer_timeout,
                    call.heartbeat},
        std::move(peers));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (aborted_epoch_ >= call.epoch) return absl::AbortedError("the epoch is ending");
      meeting_ = made.get();
    }
    const absl::Status met = made->Meet(call.deadline - absl::Now());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      meeting_ = nullptr;
    }
    WEFT_RETURN_IF_ERROR(met);
    return made;
  }

  void Abort(Epoch epoch) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_epoch_ = std::max(aborted_epoch_, epoch);
    if (meeting_ != nullptr) meeting_->Abort();
  }

 private:
  // Rank 0's of its offer; the others listen from here on, where a rank is above them.
  absl::StatusOr<TcpSocket> TakeListener(const MeetCall& call) {
    if (call.rank != 0) return ListenTcp(options_.host, options_.ports);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (offered_epoch_ != call.epoch || !listener_.has_value()) {
      return absl::AbortedError(absl::StrCat("the offer of epoch ", call.epoch, " is gone"));
    }
    TcpSocket listener = *std::move(listener_);
    listener_.reset();
    return listener;
  }

  bool Aborted(Epoch epoch) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return aborted_epoch_ >= epoch;
  }

  const MeshMeetingOptions options_;
  std::mutex mutex_;
  std::optional<TcpSocket> listener_;
  Epoch offered_epoch_ = 0;
  // In its first collective, which shows that all ranks are there. Null otherwise.
  MeshCommunicator* meeting_ = nullptr;
  Epoch aborted_epoch_ = 0;
};

}  // namespace

std::unique_ptr<GroupMeeting> MakeMeshMeeting(MeshMeetingOptions options) {
  return std::make_unique<MeshMeeting>(std::move(options));
}

}  // namespace weft::shard
