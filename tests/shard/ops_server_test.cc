// The shard's /metrics over real sockets.

#include "shard/ops_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/metrics.h"

namespace weft::shard {
namespace {

// As much thread-local memory as a build with CUDA has, and more than a library's small stacks: it
// lies on every thread's stack, so that a thread of 100 KiB cannot start in this program.
thread_local char libraries_memory[128 << 10];

uint16_t PortOf(const OpsServer& server) {
  const std::string address = server.address();
  int port = 0;
  REQUIRE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  return static_cast<uint16_t>(port);
}

class Client {
 public:
  explicit Client(const OpsServer& server) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(PortOf(server));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    // A server that answers nobody any more fails a test and does not hold it up for ever.
    const timeval patience{20, 0};
    REQUIRE(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
  }
  ~Client() { close(fd_); }

  // Only `bytes` so far; false when the server has closed.
  bool Send(const std::string& bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // All that comes until the server closes.
  std::string Answer() {
    std::string all;
    char buffer[4096];
    while (true) {
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got <= 0) return all;
      all.append(buffer, static_cast<size_t>(got));
    }
  }
  std::string Ask(const std::string& request) {
    Send(request);
    return Answer();
  }

 private:
  const int fd_;
};

std::unique_ptr<OpsServer> Serve(absl::Duration client_timeout = absl::Seconds(60),
                                 std::function<ShardHealth()> health = nullptr) {
  OpsServerOptions options;
  options.client_timeout = client_timeout;
  options.health = std::move(health);
  auto server = OpsServer::Start(options);
  INFO(server.status().ToString());
  REQUIRE(server.ok());
  return *std::move(server);
}

std::string Get(const OpsServer& server, const std::string& target) {
  return Client(server).Ask(absl::StrCat("GET ", target, " HTTP/1.1\r\nhost: x\r\n\r\n"));
}

}  // namespace

TEST_CASE("A shard's metrics are served where thread-local memory is large", "[shard][metrics]") {
  libraries_memory[sizeof(libraries_memory) - 1] = 1;
  GaugeFamily("weft_shard_test_value", "A value").Add({}).Set(7);
  const auto server = Serve();
  for (int i = 0; i < 3; ++i) {
    const std::string answer = Get(*server, "/metrics");
    CHECK(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n"));
    CHECK(absl::StrContains(answer, "text/plain; version=0.0.4"));
    CHECK(absl::StrContains(answer, "\nweft_shard_test_value 7\n"));
  }
  CHECK(absl::StartsWith(Get(*server, "/metrics?collect=all"), "HTTP/1.1 200 OK\r\n"));
}

TEST_CASE("All but GET of a known path is not found", "[shard][metrics]") {
  const auto server = Serve();
  CHECK(absl::StartsWith(Get(*server, "/"), "HTTP/1.1 404 Not Found\r\n"));
  CHECK(absl::StartsWith(Get(*server, "/metrics/"), "HTTP/1.1 404 Not Found\r\n"));
  CHECK(absl::StartsWith(
      Client(*server).Ask("POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"),
      "HTTP/1.1 404 Not Found\r\n"));
}

TEST_CASE("A head that is none, or too long, is refused", "[shard][metrics]") {
  const auto server = Serve();
  CHECK(absl::StartsWith(Client(*server).Ask("hello\r\n\r\n"), "HTTP/1.1 400 "));
  CHECK(absl::StartsWith(Client(*server).Ask(absl::StrCat(
                             "GET /metrics HTTP/1.1\r\nx: ", std::string(20'000, 'x'), "\r\n\r\n")),
                         "HTTP/1.1 400 "));
  CHECK(absl::StartsWith(Get(*server, "/metrics"), "HTTP/1.1 200 OK\r\n"));
}

TEST_CASE(
    "Clients that say nothing are left at their deadline, and delay nobody until they are many",
    "[shard][metrics]") {
  const auto patient = Serve();
  Client silent(*patient);
  Client half(*patient);
  REQUIRE(half.Send("GET /metr"));
  CHECK(absl::StartsWith(Get(*patient, "/metrics"), "HTTP/1.1 200 OK\r\n"));

  const auto server = Serve(absl::Milliseconds(50));
  std::vector<std::unique_ptr<Client>> many;
  for (int i = 0; i < 40; ++i) many.push_back(std::make_unique<Client>(*server));
  CHECK(absl::StartsWith(Get(*server, "/metrics"), "HTTP/1.1 200 OK\r\n"));
  for (const auto& client : many) CHECK(client->Answer().empty());
}

TEST_CASE("Probes are told how the shard is", "[shard][metrics]") {
  ShardHealth health{true, false, false, "loading 40 %"};
  const auto server = Serve(absl::Seconds(60), [&] { return health; });
  const auto status = [&](const char* path) { return Get(*server, path).substr(9, 3); };
  CHECK(status("/livez") == "200");
  CHECK(status("/startupz") == "503");
  CHECK(status("/readyz") == "503");
  CHECK(absl::EndsWith(Get(*server, "/startupz"), "\r\n\r\nloading 40 %\n"));
  health = {true, true, true, "ready"};
  CHECK(status("/startupz") == "200");
  CHECK(status("/readyz") == "200");
  // Nothing is sent to a shard that hangs.
  health = {false, true, true, "the device thread shows no life"};
  CHECK(status("/livez") == "503");
  CHECK(status("/readyz") == "503");
}

TEST_CASE("A server ends while a client says nothing", "[shard][metrics]") {
  auto server = Serve();
  Client silent(*server);
  server.reset();
  CHECK(silent.Answer().empty());
}

TEST_CASE("What is wrong with a metrics address is said with the way out", "[shard][metrics]") {
  const auto server = Serve();
  const auto error = [](const std::string& host, uint32_t port) {
    OpsServerOptions options;
    options.host = host;
    options.port = port;
    return std::string(OpsServer::Start(options).status().message());
  };
  const std::string taken = error("127.0.0.1", PortOf(*server));
  INFO(taken);
  CHECK(absl::StartsWith(
      taken, absl::StrCat("--metrics-port: cannot listen on 127.0.0.1:", PortOf(*server), ": ")));
  CHECK(absl::StrContains(taken, "0 for a free one"));
  CHECK(absl::StartsWith(error("gpu-7", 0), "--metrics-host: \"gpu-7\" is not an IP address"));
  // 192.0.2.0/24 is reserved for documentation: no machine has it.
  CHECK(absl::StrContains(error("192.0.2.1", 0), "give --metrics-host an address of this machine"));
  CHECK(error("localhost", 0).empty());
}

}  // namespace weft::shard
