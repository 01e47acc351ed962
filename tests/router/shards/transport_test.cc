// The ways to a shard against a gRPC server: every transport keeps the same promises. And the
// engine loop's poller.

#include "router/shards/poller.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "router/shards/client.h"
#include "router/shards/client_http2.h"
#include "tests/router/engine/engine_rig.h"
#include "tests/router/shards/echo_shard.h"
#include "tests/support/test_certificate.h"

namespace weft::router {
namespace {

constexpr int64_t kLongUs = 30'000'000;
constexpr int64_t kShortUs = 100'000;

// A client on a poller that the test's thread serves.
class Caller {
 public:
  explicit Caller(const std::string& address, const ShardTls& tls = {}) : poller_(&clock_) {
    auto client = MakeShardClient(
        /*rank=*/5, address, tls,
        [this](ShardReply reply) {
          {
            absl::MutexLock lock(&mutex_);
            replies_.push_back(std::move(reply));
          }
          poller_.Wake();
        },
        &poller_, &clock_);
    REQUIRE(client.ok());
    client_ = *std::move(client);
  }

  void Start(ShardCall call, std::string request, uint64_t number, int64_t timeout_us = kLongUs,
             bool wait_for_ready = false) {
    client_->Call(call, std::make_shared<const std::string>(std::move(request)), {3, number},
                  timeout_us, wait_for_ready);
  }
  template <typename Done>
  void ServeUntil(Done done) {
    const int64_t end_us = clock_.NowUs() + kLongUs;
    while (!done()) {
      REQUIRE(clock_.NowUs() < end_us);
      poller_.Wait(clock_.NowUs() + 5'000);
    }
  }
  // Serves until so many replies have come, and takes them.
  std::vector<ShardReply> Replies(size_t count) {
    ServeUntil([&] {
      absl::MutexLock lock(&mutex_);
      return replies_.size() >= count;
    });
    absl::MutexLock lock(&mutex_);
    return std::exchange(replies_, {});
  }
  ShardReply Call(ShardCall call, std::string request, int64_t timeout_us = kLongUs,
                  bool wait_for_ready = false) {
    Start(call, std::move(request), ++number_, timeout_us, wait_for_ready);
    std::vector<ShardReply> replies = Replies(1);
    REQUIRE(replies.size() == 1);
    CHECK(replies[0].rank == 5);
    CHECK(replies[0].call == call);
    CHECK(replies[0].tag.epoch == 3);
    CHECK(replies[0].tag.number == number_);
    CHECK(replies[0].call_us >= 0);
    return replies[0];
  }
  ShardClient& client() { return *client_; }
  void Destroy() { client_.reset(); }

 private:
  const Clock& clock_ = MonotonicClock();
  SocketPoller poller_;
  absl::Mutex mutex_;
  std::vector<ShardReply> replies_ ABSL_GUARDED_BY(mutex_);
  uint64_t number_ = 0;
  std::unique_ptr<ShardClient> client_;
};

// A server and what a client needs to reach it.
struct Route {
  explicit Route(const std::string& kind) : mutual_tls(kind == "mutual TLS") {
    if (mutual_tls) {
      testing::WriteTestCertificate(dir.path());
      tls = {dir.path() + "/cert.pem", dir.path() + "/key.pem", dir.path() + "/ca.pem"};
    }
    Serve(kind == "unix" ? absl::StrCat("unix:", dir.path(), "/echo.sock") : "127.0.0.1:0");
  }
  void Serve(const std::string& address) {
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (mutual_tls) {
      const auto read = [](const std::string& path) {
        std::ostringstream content;
        content << std::ifstream(path).rdbuf();
        return content.str();
      };
      grpc::SslServerCredentialsOptions options(
          GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
      options.pem_root_certs = read(tls.ca);
      options.pem_key_cert_pairs.push_back({read(tls.key), read(tls.cert)});
      credentials = grpc::SslServerCredentials(options);
    }
    server = std::make_unique<EchoShard>(address, std::move(credentials));
  }

  test::TempDir dir;
  const bool mutual_tls;
  ShardTls tls;
  std::unique_ptr<EchoShard> server;
};

// -- Every transport -----------------------------------------------------------------------------

TEST_CASE("A shard's answers come back whole, with the caller's tag", "[router][transport]") {
  const Route route(GENERATE("unix", "loopback", "mutual TLS"));
  Caller caller(route.server->address(), route.tls);
  CHECK(caller.Call(ShardCall::kInfo, "hello", kLongUs, /*wait_for_ready=*/true).body == "hello");
  CHECK(caller.client().Connected());
  CHECK(caller.Call(ShardCall::kJoinGroup, "").body.empty());
  // Longer than a frame, than HTTP/2's first window, and as long as allowed.
  for (const size_t bytes : {70'000u, 3'000'000u, static_cast<unsigned>(kShardMessageBytesMax)}) {
    std::string request(bytes, 'x');
    request.back() = 'y';
    const ShardReply reply = caller.Call(ShardCall::kFilterBatch, request);
    CHECK(reply.status.ok());
    CHECK(reply.body == request);
  }
  CHECK(caller.Call(ShardCall::kWarmup, absl::StrCat(kShardMessageBytesMax)).status.ok());
  const ShardReply large = caller.Call(ShardCall::kWarmup, absl::StrCat(kShardMessageBytesMax + 1));
  CHECK(large.status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(caller.Call(ShardCall::kInfo, "still there").body == "still there");
}

TEST_CASE("A shard's error comes back in its words", "[router][transport]") {
  const Route route(GENERATE("unix", "loopback", "mutual TLS"));
  Caller caller(route.server->address(), route.tls);
  const ShardReply reply = caller.Call(ShardCall::kPrefill, "x", kLongUs, true);
  CHECK(reply.status == absl::FailedPreconditionError(kEchoError));
}

TEST_CASE("Many calls in flight each get their own answer", "[router][transport]") {
  const Route route(GENERATE("unix", "loopback", "mutual TLS"));
  Caller caller(route.server->address(), route.tls);
  caller.Call(ShardCall::kInfo, "", kLongUs, true);
  constexpr uint64_t kCalls = 50;
  for (uint64_t i = 0; i < kCalls; ++i) caller.Start(ShardCall::kInfo, absl::StrCat("r", i), i);
  std::vector<bool> seen(kCalls, false);
  for (const ShardReply& reply : caller.Replies(kCalls)) {
    CHECK(reply.body == absl::StrCat("r", reply.tag.number));
    CHECK(!seen[reply.tag.number]);
    seen[reply.tag.number] = true;
  }
}

TEST_CASE("A call that is not answered ends at its deadline and harms no other",
          "[router][transport]") {
  const Route route(GENERATE("unix", "loopback", "mutual TLS"));
  Caller caller(route.server->address(), route.tls);
  caller.Call(ShardCall::kInfo, "", kLongUs, true);
  const ShardReply late = caller.Call(ShardCall::kDecode, "never", kShortUs);
  CHECK(late.status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(late.call_us > kShortUs / 2);  // the shard counts too, by a clock of its own
  CHECK(caller.Call(ShardCall::kInfo, "next").body == "next");
  caller.ServeUntil([&] { return route.server->cancelled() == 1; });
}

TEST_CASE("A server that goes away ends what is in flight, and is found again",
          "[router][transport]") {
  Route route(GENERATE("unix", "loopback", "mutual TLS"));
  const std::string address = route.server->address();
  Caller caller(address, route.tls);
  caller.Call(ShardCall::kInfo, "", kLongUs, true);
  caller.Start(ShardCall::kDecode, "never", 7);
  caller.Start(ShardCall::kInfo, "now", 8);
  CHECK(caller.Replies(1)[0].tag.number == 8);  // so the other is on its way too
  route.server.reset();
  const std::vector<ShardReply> lost = caller.Replies(1);
  CHECK(lost[0].tag.number == 7);
  CHECK(!lost[0].status.ok());
  caller.ServeUntil([&] { return !caller.client().Connected(); });
  CHECK(caller.Call(ShardCall::kInfo, "too early", kShortUs).status.code() ==
        absl::StatusCode::kUnavailable);
  const ShardReply waited = caller.Call(ShardCall::kInfo, "in vain", kShortUs, true);
  CHECK(waited.status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(absl::StrContains(waited.status.message(), absl::StrCat("no connection: ", address)));
  caller.Start(ShardCall::kInfo, "back", 9, kLongUs, /*wait_for_ready=*/true);
  route.Serve(address);
  CHECK(caller.Replies(1)[0].body == "back");
  CHECK(caller.client().Connected());
}

// Serves with the certificates of `server`, calls with those of `client`.
ShardReply CallAcross(const ShardTls& server, const ShardTls& client) {
  Route route("mutual TLS");
  route.server.reset();
  route.tls = server;
  route.Serve("127.0.0.1:0");
  Caller caller(route.server->address(), client);
  // The first attempt to connect may still be under way at the first deadline.
  ShardReply reply;
  for (int attempt = 0; attempt < 20; ++attempt) {
    reply = caller.Call(ShardCall::kInfo, "x", 500'000, /*wait_for_ready=*/true);
    if (absl::StrContains(reply.status.message(), "no connection")) break;
  }
  return reply;
}

TEST_CASE("Certificates that do not fit are named by the calls that wait for a connection",
          "[router][transport]") {
  const Route one("mutual TLS");
  const Route other("mutual TLS");
  // The shard's certificate is signed by another authority than the router knows.
  ShardTls client = one.tls;
  client.ca = other.tls.ca;
  const ShardReply unknown_shard = CallAcross(one.tls, client);
  CAPTURE(unknown_shard.status.ToString());
  CHECK(absl::IsDeadlineExceeded(unknown_shard.status));
  CHECK(absl::StrContains(unknown_shard.status.message(), "certificate verify failed"));
  // The router's certificate is signed by another authority than the shard knows.
  client = other.tls;
  client.ca = one.tls.ca;
  const ShardReply unknown_router = CallAcross(one.tls, client);
  CAPTURE(unknown_router.status.ToString());
  CHECK(absl::IsDeadlineExceeded(unknown_router.status));
  CHECK(absl::StrContains(unknown_router.status.message(), "no connection: "));
}

TEST_CASE("A call in clear that waits in vain for a connection is told the way out",
          "[router][transport]") {
  const auto told = [](const std::string& address) {
    // The first attempt may still be under way at the first deadline.
    std::string message;
    Caller caller(address);
    for (int attempt = 0; attempt < 20 && !absl::StrContains(message, "; "); ++attempt) {
      message = std::string(
          caller.Call(ShardCall::kInfo, "x", kShortUs, /*wait_for_ready=*/true).status.message());
    }
    return message;
  };
  const test::TempDir dir;
  const std::string nobody = absl::StrCat("unix:", dir.path(), "/none.sock");
  CHECK(told(nobody) ==
        absl::StrCat("no connection: ", nobody,
                     ": cannot connect: No such file or directory; no "
                     "shard has made this socket: does it run, and with this --socket?"));
  const Route tls("mutual TLS");
  const std::string secret = told(tls.server->address());
  CAPTURE(secret);
  CHECK(absl::StartsWith(secret, absl::StrCat("no connection: ", tls.server->address(), ": ")));
  CHECK(absl::StrContains(secret, "most likely it wants TLS: give --shard-tls-cert"));
}

TEST_CASE("Renewed certificates are used by the next connection", "[router][transport]") {
  Route route("mutual TLS");
  const std::string address = route.server->address();
  Caller caller(address, route.tls);
  CHECK(caller.Call(ShardCall::kInfo, "old", kLongUs, /*wait_for_ready=*/true).body == "old");
  route.server.reset();
  // Of another authority: what the client read at first fits neither way.
  testing::WriteTestCertificate(route.dir.path());
  route.Serve(address);
  std::string body;
  const int64_t end_us = MonotonicClock().NowUs() + kLongUs;
  while (body.empty() && MonotonicClock().NowUs() < end_us) {
    body = caller.Call(ShardCall::kInfo, "new", 500'000, /*wait_for_ready=*/true).body;
  }
  CHECK(body == "new");
}

TEST_CASE("A client that goes away ends its calls once each", "[router][transport]") {
  const Route route(GENERATE("unix", "loopback", "mutual TLS"));
  Caller caller(route.server->address(), route.tls);
  caller.Call(ShardCall::kInfo, "", kLongUs, true);
  caller.Start(ShardCall::kDecode, "never", 1);
  caller.Start(ShardCall::kDecode, "never", 2);
  caller.Destroy();
  const std::vector<ShardReply> replies = caller.Replies(2);
  REQUIRE(replies.size() == 2);
  CHECK(replies[0].tag.number + replies[1].tag.number == 3);
  for (const ShardReply& reply : replies) {
    CHECK(reply.status.code() == absl::StatusCode::kCancelled);
  }
}

TEST_CASE("A client may go away while its last reply is handed over", "[router][transport]") {
  const Route route("mutual TLS");
  for (int round = 0; round < 200; ++round) {
    Caller caller(route.server->address(), route.tls);
    // The client's end meets the thread that still cleans up after the reply.
    REQUIRE(caller.Call(ShardCall::kInfo, "", kLongUs, true).status.ok());
    caller.Destroy();
  }
}

TEST_CASE("Addresses of shards are refused by name", "[router][transport]") {
  SocketPoller poller(&MonotonicClock());
  const auto error = [&](const std::string& address, const ShardTls& tls = {}) {
    return std::string(MakeShardClient(
                           1, address, tls, [](ShardReply) {}, &poller, &MonotonicClock())
                           .status()
                           .message());
  };
  for (const char* bad :
       {"", "x", "unix:", ":80", "localhost:", "localhost:0", "localhost:65536", "localhost:8x"}) {
    CAPTURE(bad);
    CHECK(absl::StrContains(error(bad), absl::StrCat("shard 1: \"", bad, "\": expected ")));
  }
  CHECK(absl::StrContains(error(absl::StrCat("unix:/", std::string(200, 'p'))), "1 to 107 bytes"));
  CHECK(absl::StrContains(error("gpu-7:80"), "not a loopback address"));
  CHECK(absl::StrContains(error("192.0.2.1:80"), "not a loopback address"));
  CHECK(absl::StrContains(error("gpu-7:80", {"c", "", ""}), "TLS together"));
  CHECK(absl::StrContains(error("localhost:80", {"c", "k", ""}), "TLS together"));
  CHECK(absl::StrContains(error("gpu-7:80", {"/nowhere/c", "k", "a"}), "/nowhere/c"));
  CHECK(error("localhost:80").empty());
  CHECK(error("127.1.2.3:80").empty());
  CHECK(error("[::1]:80").empty());
}

// -- Peers that are no shard ---------------------------------------------------------------------

// Listens on a Unix socket and takes one connection at a time.
class RawPeer {
 public:
  explicit RawPeer(const std::string& path) : listen_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    REQUIRE(bind(listen_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listen_, 4) == 0);
  }
  ~RawPeer() {
    Hang();
    close(listen_);
  }
  bool waiting() const {
    pollfd fd = {listen_, POLLIN, 0};
    return poll(&fd, 1, 0) == 1;
  }
  void Accept() { peer_ = accept(listen_, nullptr, nullptr); }
  void Say(const std::string& bytes) {
    REQUIRE(send(peer_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  void Hang() {
    if (peer_ >= 0) close(std::exchange(peer_, -1));
  }

 private:
  const int listen_;
  int peer_ = -1;
};

// The least that makes a client's connection ready: empty SETTINGS.
const std::string kSettings("\0\0\0\4\0\0\0\0\0", 9);

std::string Frame(char type, std::string payload) {
  std::string frame("\0\0\0\0\0\0\0\0\0", 9);
  frame[2] = static_cast<char>(payload.size());
  frame[3] = type;
  return frame + payload;
}

TEST_CASE("A peer that is no shard is left at once and tried again", "[router][transport]") {
  const test::TempDir dir;
  RawPeer peer(dir.path() + "/raw.sock");
  Caller caller(absl::StrCat("unix:", dir.path(), "/raw.sock"));
  caller.Start(ShardCall::kInfo, "x", 1, 10'000'000, /*wait_for_ready=*/true);
  const std::string goaway = Frame(7, std::string("\0\0\0\0\0\0\0\2", 8) + "enough");
  const auto [name, bytes] = GENERATE_COPY(table<std::string, std::string>(
      {{"HTTP/1.1", "HTTP/1.1 400 Bad Request\r\n\r\n"},
       {"bad SETTINGS", Frame(4, "abc")},
       {"bad SETTINGS later", kSettings + Frame(4, "abc")},
       {"DATA on stream 0", kSettings + Frame(0, "abc")},
       {"a header block that is none", kSettings + Frame(1, "\xff\xff\xff\xff\xff\xff")},
       {"GOAWAY", kSettings + goaway}}));
  CAPTURE(name);
  for (int attempt = 0; attempt < 2; ++attempt) {
    caller.ServeUntil([&] { return peer.waiting(); });
    peer.Accept();
    CHECK(!caller.client().Connected());
    peer.Say(bytes);  // and stays there: the client has to leave by itself
  }
  caller.ServeUntil([&] { return peer.waiting(); });
  CHECK(!caller.client().Connected());
}

TEST_CASE("What a connection broke of is said", "[router][transport]") {
  const test::TempDir dir;
  RawPeer peer(dir.path() + "/raw.sock");
  Caller caller(absl::StrCat("unix:", dir.path(), "/raw.sock"));
  caller.ServeUntil([&] { return peer.waiting(); });
  peer.Accept();
  const auto [bytes, words] = GENERATE(table<std::string, std::string>(
      {{Frame(7, std::string("\0\0\0\0\0\0\0\2", 8) + "enough"), "INTERNAL_ERROR enough"},
       {Frame(4, "abc"), "FRAME_SIZE_ERROR"},
       {"", "connection"}}));
  peer.Say(kSettings);
  caller.ServeUntil([&] { return caller.client().Connected(); });
  caller.Start(ShardCall::kDecode, "x", 1);
  peer.Say(bytes);
  if (bytes.empty()) peer.Hang();
  const ShardReply reply = caller.Replies(1)[0];
  CAPTURE(reply.status.ToString());
  CHECK(reply.status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(reply.status.message(), words));
}

TEST_CASE("A worn connection is replaced between calls, and nobody notices",
          "[router][transport]") {
  const Route route("unix");
  const Clock& clock = MonotonicClock();
  SocketPoller poller(&clock);
  std::vector<ShardReply> replies;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = route.server->address().substr(5);
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  LocalAddress local;
  std::memcpy(&local.bytes, &address, sizeof(address));
  local.size = sizeof(address);
  constexpr Http2StreamId kWornAt = 20;
  Http2ShardClient client(
      0, route.server->address(), local,
      [&](ShardReply reply) { replies.push_back(std::move(reply)); }, &poller, &clock, kWornAt);
  const auto until = [&](auto done) {
    const int64_t end_us = clock.NowUs() + kLongUs;
    while (!done()) {
      REQUIRE(clock.NowUs() < end_us);
      poller.Wait(clock.NowUs() + 5'000);
    }
  };
  until([&] { return client.Connected(); });
  // A claim stays open all the while: it is made anew on each connection.
  client.Call(ShardCall::kHold, std::make_shared<const std::string>("claim"), {1, 0}, kLongUs,
              /*wait_for_ready=*/false);
  constexpr size_t kCalls = 100;
  for (size_t i = 0; i < kCalls; ++i) {
    CHECK(client.Connected());
    client.Call(ShardCall::kInfo, std::make_shared<const std::string>(absl::StrCat(i)), {1, i},
                kLongUs, /*wait_for_ready=*/false);
    until([&] { return replies.size() > i; });
    CHECK(replies[i].status.ok());
    CHECK(replies[i].body == absl::StrCat(i));
  }
  CHECK(client.connections() >= kCalls / kWornAt);
  CHECK(replies.size() == kCalls);
}

// -- Poller --------------------------------------------------------------------------------------

class FakeTarget : public PollTarget {
 public:
  explicit FakeTarget(int fd) : fd_(fd) {}
  int fd() const override { return fd_; }
  short events() const override { return POLLIN; }
  int64_t timer_us() const override { return timer; }
  void OnReady(short, int64_t) override {
    char byte = 0;
    REQUIRE(read(fd_, &byte, 1) == 1);
    ++ready;
    if (on_ready) on_ready();
  }
  void OnTimer(int64_t) override {
    ++timers;
    timer = kNever;
  }

  int ready = 0;
  int timers = 0;
  int64_t timer = kNever;
  std::function<void()> on_ready;

 private:
  const int fd_;
};

TEST_CASE("The poller waits for sockets, timers, other threads and time", "[router][transport]") {
  const Clock& clock = MonotonicClock();
  SocketPoller poller(&clock);
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  FakeTarget target(pair[0]);
  FakeTarget without_socket(-1);
  poller.Add(&target);
  poller.Add(&without_socket);
  const auto forever_us = [&] { return clock.NowUs() + kLongUs; };

  const int64_t until_us = clock.NowUs() + 20'000;
  poller.Wait(until_us);
  CHECK(clock.NowUs() >= until_us);
  CHECK(target.ready + target.timers == 0);

  REQUIRE(write(pair[1], "a", 1) == 1);
  poller.Wait(forever_us());
  CHECK(target.ready == 1);

  without_socket.timer = clock.NowUs() + 10'000;
  poller.Wait(forever_us());
  CHECK(without_socket.timers == 1);

  poller.Wake();  // before the wait: not lost
  poller.Wait(forever_us());
  const Thread waker("waker", [&] { poller.Wake(); });
  poller.Wait(forever_us());  // whichever comes first

  // A target that has something for the loop itself: the wait is over anyway, the next one waits.
  target.on_ready = [&] { poller.Wake(); };
  REQUIRE(write(pair[1], "b", 1) == 1);
  poller.Wait(forever_us());
  CHECK(target.ready == 2);
  const int64_t later_us = clock.NowUs() + 20'000;
  poller.Wait(later_us);
  CHECK(clock.NowUs() >= later_us);

  poller.Remove(&target);
  REQUIRE(write(pair[1], "c", 1) == 1);
  poller.Wait(clock.NowUs() + 5'000);
  CHECK(target.ready == 2);
  close(pair[0]);
  close(pair[1]);
}

}  // namespace
}  // namespace weft::router
