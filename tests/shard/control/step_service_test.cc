// The shard's gRPC door over real sockets with a real client stub.

#include "shard/control/step_service.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "shard/control/handshake_faults.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/control/executor_rig.h"
#include "tests/support/grpc_threads.h"
#include "tests/support/test_certificate.h"
#include "weft/shard/v1/shard.grpc.pb.h"

namespace weft::shard {
namespace {

class Client {
 public:
  explicit Client(const std::string& address,
                  const std::shared_ptr<grpc::ChannelCredentials>& credentials =
                      grpc::InsecureChannelCredentials())
      : stub_(v1::ShardService::NewStub(grpc::CreateChannel(address, credentials))) {
    testing::KeepGrpcThreads();
  }

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::ShardService::Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Response*),
                    const Request& request, Response* response,
                    absl::Duration timeout = absl::Seconds(60)) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    return (stub_.get()->*method)(&context, request, response);
  }

 private:
  std::unique_ptr<v1::ShardService::Stub> stub_;
};

// Of a router that has the certificate of WriteTestCertificate in `folder`.
std::shared_ptr<grpc::ChannelCredentials> TestCredentials(const test::TempDir& folder) {
  const auto read = [&folder](const char* name) {
    std::ostringstream content;
    content << std::ifstream(folder.path() + "/" + name).rdbuf();
    return content.str();
  };
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = read("ca.pem");
  options.pem_cert_chain = read("cert.pem");
  options.pem_private_key = read("key.pem");
  return grpc::SslCredentials(options);
}

ListenOptions OnSocket(const std::string& path) {
  ListenOptions options;
  options.socket = path;
  return options;
}

ListenOptions OnTcp(const std::string& address) {
  ListenOptions options;
  options.listen = address;
  return options;
}

}  // namespace

TEST_CASE("A client drives a shard through an epoch over its Unix socket", "[shard][service]") {
  test::TempDir folder;
  ExecutorRig rig;
  const auto server =
      ShardServer::Start(OnSocket(folder.path() + "/run/shard.sock"), *rig.executor, nullptr);
  REQUIRE(server.ok());
  struct stat info {};
  REQUIRE(stat((folder.path() + "/run").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  REQUIRE(stat((folder.path() + "/run/shard.sock").c_str(), &info) == 0);
  CHECK((info.st_mode & 0077) == 0);

  Client client((*server)->address());
  using Stub = v1::ShardService::Stub;
  v1::InfoResponse facts;
  REQUIRE(client.Call(&Stub::Info, v1::InfoRequest(), &facts).ok());
  CHECK(facts.state() == v1::SHARD_STATE_LOADING);
  rig.Load();
  REQUIRE(client.Call(&Stub::Info, v1::InfoRequest(), &facts).ok());
  CHECK(facts.state() == v1::SHARD_STATE_READY);

  v1::RendezvousRequest meet;
  meet.set_epoch(1);
  meet.set_router_id(kRouter);
  meet.set_world(1);
  v1::RendezvousResponse token;
  REQUIRE(client.Call(&Stub::Rendezvous, meet, &token).ok());
  v1::JoinGroupRequest join;
  v1::JoinGroupResponse joined;
  join.set_epoch(1);
  join.set_router_id(kRouter + 1);
  join.set_world(1);
  join.set_token(token.token());
  CHECK(client.Call(&Stub::JoinGroup, join, &joined).error_code() ==
        grpc::StatusCode::PERMISSION_DENIED);
  join.set_router_id(kRouter);
  REQUIRE(client.Call(&Stub::JoinGroup, join, &joined).ok());
  v1::WarmupRequest warmup;
  v1::WarmupResponse warm;
  warmup.set_epoch(1);
  warmup.set_router_id(kRouter);
  REQUIRE(client.Call(&Stub::Warmup, warmup, &warm).ok());
  CHECK(warm.kv_blocks(0) == 256);

  std::vector<TokenId> log = {1, 2, 3};
  PendingPrefill prefill;
  MakePrefill(&prefill, 1, 1);
  v1::StepResponse step;
  REQUIRE(client.Call(&Stub::Prefill, prefill.request, &step).ok());
  log.push_back(FakeModelRunner::NextToken(log, 1000));
  REQUIRE(step.ids_size() == 1);
  CHECK(step.ids(0) == log.back());
  v1::DecodeRequest decode;
  SetHeader(decode.mutable_header(), 1, 2);
  REQUIRE(client.Call(&Stub::Decode, decode, &step).ok());
  CHECK(step.ids(0) == FakeModelRunner::NextToken(log, 1000));
  v1::FilterBatchRequest filter;
  SetHeader(filter.mutable_header(), 1, 3, {0});
  REQUIRE(client.Call(&Stub::FilterBatch, filter, &step).ok());
  CHECK(step.ids_size() == 0);
  SetHeader(filter.mutable_header(), 1, 4);
  const grpc::Status bad = client.Call(&Stub::FilterBatch, filter, &step);
  CHECK(bad.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(absl::StrContains(bad.error_message(), "header.drop_slots[0]"));

  v1::LeaveGroupRequest leave;
  v1::LeaveGroupResponse left;
  leave.set_epoch(1);
  leave.set_router_id(kRouter);
  REQUIRE(client.Call(&Stub::LeaveGroup, leave, &left).ok());
  REQUIRE(client.Call(&Stub::Info, v1::InfoRequest(), &facts).ok());
  CHECK(facts.state() == v1::SHARD_STATE_READY);
}

TEST_CASE("Info is answered while a step blocks the device", "[shard][service]") {
  test::TempDir folder;
  absl::Notification release;
  absl::Notification arrived;
  FakeRunnerOptions fake;
  fake.on_run = [&](const StepBatch&) {
    arrived.Notify();
    release.WaitForNotification();
    return absl::OkStatus();
  };
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  const auto server =
      ShardServer::Start(OnSocket(folder.path() + "/shard.sock"), *rig.executor, nullptr);
  REQUIRE(server.ok());
  PendingPrefill step;
  MakePrefill(&step, 1, 1);
  rig.Start(&step);
  arrived.WaitForNotification();
  Client client((*server)->address());
  v1::InfoResponse facts;
  for (int i = 0; i < 10; ++i) {
    REQUIRE(client.Call(&v1::ShardService::Stub::Info, v1::InfoRequest(), &facts).ok());
    CHECK(facts.state() == v1::SHARD_STATE_JOINED);
  }
  release.Notify();
  CHECK(step.Wait().ok());
}

TEST_CASE("Calls over the message limit are refused by the transport", "[shard][service]") {
  test::TempDir folder;
  ExecutorRig rig;
  rig.Load();
  const auto server =
      ShardServer::Start(OnSocket(folder.path() + "/shard.sock"), *rig.executor, nullptr);
  REQUIRE(server.ok());
  Client client((*server)->address());
  v1::JoinGroupRequest join;
  v1::JoinGroupResponse joined;
  join.set_token(std::string(kShardMessageBytesMax + 1, 'x'));
  CHECK(client.Call(&v1::ShardService::Stub::JoinGroup, join, &joined).error_code() ==
        grpc::StatusCode::RESOURCE_EXHAUSTED);
  join.set_token(std::string(kShardMessageBytesMax - 1000, 'x'));
  CHECK(client.Call(&v1::ShardService::Stub::JoinGroup, join, &joined).error_code() ==
        grpc::StatusCode::INVALID_ARGUMENT);
}

// A socket file as a killed process leaves it.
void LeaveSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(fd, 1) == 0);
  close(fd);
  REQUIRE(access(path.c_str(), F_OK) == 0);
}

TEST_CASE("A socket that another shard listens on stays its own", "[shard][service]") {
  test::TempDir folder;
  ExecutorRig rig;
  const std::string path = folder.path() + "/shard.sock";
  auto first = ShardServer::Start(OnSocket(path), *rig.executor, nullptr);
  REQUIRE(first.ok());
  const absl::Status second = ShardServer::Start(OnSocket(path), *rig.executor, nullptr).status();
  CHECK(absl::IsAlreadyExists(second));
  CHECK(absl::StrContains(second.message(), path));
  CHECK(absl::StrContains(second.message(), "another path"));
  Client client((*first)->address());
  v1::InfoResponse facts;
  CHECK(client.Call(&v1::ShardService::Stub::Info, v1::InfoRequest(), &facts).ok());
}

TEST_CASE("A socket left over is replaced, anything else is not", "[shard][service]") {
  test::TempDir folder;
  ExecutorRig rig;
  const std::string path = folder.path() + "/shard.sock";
  {
    LeaveSocket(path);
    auto server = ShardServer::Start(OnSocket(path), *rig.executor, nullptr);
    INFO(server.status().ToString());
    REQUIRE(server.ok());
    Client client((*server)->address());
    v1::InfoResponse facts;
    CHECK(client.Call(&v1::ShardService::Stub::Info, v1::InfoRequest(), &facts).ok());
  }
  CHECK(access(path.c_str(), F_OK) != 0);
  std::ofstream(folder.path() + "/file") << "precious";
  const auto on_file =
      ShardServer::Start(OnSocket(folder.path() + "/file"), *rig.executor, nullptr);
  CHECK(absl::IsInvalidArgument(on_file.status()));
  CHECK(access((folder.path() + "/file").c_str(), F_OK) == 0);
  const auto too_long =
      ShardServer::Start(OnSocket("/tmp/" + std::string(100, 'x')), *rig.executor, nullptr);
  CHECK(absl::StrContains(too_long.status().message(), "at most 99"));
  CHECK(absl::IsInvalidArgument(
      ShardServer::Start(OnSocket("relative.sock"), *rig.executor, nullptr).status()));
  const std::string deep = folder.path() + "/one/two";
  CHECK(ShardServer::Start(OnSocket(deep + "/0.sock"), *rig.executor, nullptr).status().message() ==
        absl::StrCat("--socket: making ", deep,
                     ": No such file or directory; only this last folder is made: mkdir -p ",
                     deep));
  CHECK(absl::IsInvalidArgument(
      ShardServer::Start(ListenOptions{}, *rig.executor, nullptr).status()));
}

TEST_CASE("A wildcard address is served with mutual TLS", "[shard][service]") {
  test::TempDir folder;
  testing::WriteTestCertificate(folder.path() + "/");
  ExecutorRig rig;
  for (const char* wildcard : {"0.0.0.0:0", "[::]:0", "*:0", ":0"}) {
    INFO(wildcard);
    ListenOptions options = OnTcp(wildcard);
    options.tls_cert = folder.path() + "/cert.pem";
    options.tls_key = folder.path() + "/key.pem";
    options.tls_ca = folder.path() + "/ca.pem";
    const auto server = ShardServer::Start(options, *rig.executor, nullptr);
    INFO(server.status().ToString());
    REQUIRE(server.ok());
    const std::string address = (*server)->address();
    const std::string dialled = absl::StrCat("127.0.0.1", address.substr(address.rfind(':')));
    v1::InfoResponse facts;
    CHECK_FALSE(
        Client(dialled)
            .Call(&v1::ShardService::Stub::Info, v1::InfoRequest(), &facts, absl::Milliseconds(200))
            .ok());
    Client client(dialled, TestCredentials(folder));
    CHECK(client.Call(&v1::ShardService::Stub::Info, v1::InfoRequest(), &facts).ok());
  }
}

TEST_CASE("A shard shows a renewed certificate to the next connection", "[shard][service]") {
  test::TempDir folder;
  const std::string cert = folder.path() + "/cert.pem";
  testing::WriteTestCertificate(folder.path() + "/");
  const std::shared_ptr<grpc::ChannelCredentials> old = TestCredentials(folder);
  ExecutorRig rig;
  ListenOptions options = OnTcp("127.0.0.1:0");
  options.tls_cert = cert;
  options.tls_key = folder.path() + "/key.pem";
  options.tls_ca = folder.path() + "/ca.pem";
  const auto server = ShardServer::Start(options, *rig.executor, nullptr);
  REQUIRE(server.ok());
  const auto asks = [&](Client* client, absl::Duration timeout) {
    v1::InfoResponse facts;
    return client->Call(&v1::ShardService::Stub::Info, v1::InfoRequest(), &facts, timeout).ok();
  };
  Client before((*server)->address(), old);
  CHECK(asks(&before, absl::Seconds(60)));

  // Of another authority, so that a client which knows one of them cannot take the other's.
  testing::WriteTestCertificate(folder.path() + "/");
  Client after((*server)->address(), TestCredentials(folder));
  CHECK(asks(&after, absl::Seconds(60)));
  CHECK(asks(&before, absl::Seconds(60)));  // its connection lives on
  {
    // Channels share connections by their arguments.
    grpc::ChannelArguments apart;
    apart.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub =
        v1::ShardService::NewStub(grpc::CreateCustomChannel((*server)->address(), old, apart));
    grpc::ClientContext context;
    v1::InfoResponse facts;
    CHECK(stub->Info(&context, v1::InfoRequest(), &facts).error_code() ==
          grpc::StatusCode::UNAVAILABLE);
  }

  // Half of a renewal: the certificate read before stays.
  const std::shared_ptr<grpc::ChannelCredentials> current = TestCredentials(folder);
  std::ofstream(cert) << "half of a certificate";
  Client meanwhile((*server)->address(), current);
  CHECK(asks(&meanwhile, absl::Seconds(60)));
}

TEST_CASE("A key that no connection can be made with is refused", "[shard][service]") {
  test::TempDir folder;
  ExecutorRig rig;
  ListenOptions options = OnTcp("127.0.0.1:0");
  options.tls_cert = folder.path() + "/cert.pem";
  options.tls_key = folder.path() + "/key.pem";
  options.tls_ca = folder.path() + "/ca.pem";
  for (const char* kind : {"RSA", "secp256k1", "brainpoolP256r1"}) {
    INFO(kind);
    testing::WriteTestCertificate(folder.path(), kind);
    const absl::Status status = ShardServer::Start(options, *rig.executor, nullptr).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StartsWith(status.message(), "--tls-key: " + options.tls_key + ": no connection"));
  }
  for (const char* kind : {"P-256", "P-384", "P-521"}) {
    INFO(kind);
    testing::WriteTestCertificate(folder.path(), kind);
    const auto server = ShardServer::Start(options, *rig.executor, nullptr);
    REQUIRE(server.ok());
    Client client((*server)->address(), TestCredentials(folder));
    v1::InfoResponse facts;
    CHECK(client.Call(&v1::ShardService::Stub::Info, v1::InfoRequest(), &facts).ok());
  }
}

TEST_CASE("A shard's health is what it says at the moment of the question", "[shard][service]") {
  test::TempDir folder;
  ExecutorRig rig;
  std::atomic<bool> serving{false};
  ListenOptions options = OnSocket(folder.path() + "/shard.sock");
  options.serving = [&serving] { return serving.load(); };
  const auto server = ShardServer::Start(options, *rig.executor, nullptr);
  REQUIRE(server.ok());
  using grpc::health::v1::HealthCheckRequest;
  using grpc::health::v1::HealthCheckResponse;
  const auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials()));
  HealthCheckRequest request;
  HealthCheckResponse response;
  const auto check = [&](const std::string& service) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
    request.set_service(service);
    return stub->Check(&context, request, &response).error_code();
  };
  for (const bool now : {false, true, false}) {
    serving.store(now);
    for (const char* service : {"", "weft.shard.v1.ShardService"}) {
      REQUIRE(check(service) == grpc::StatusCode::OK);
      CHECK(response.status() ==
            (now ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING));
    }
  }
  CHECK(check("weft.v1.TextGeneration") == grpc::StatusCode::NOT_FOUND);
  // Clients that would watch ask by Check instead.
  grpc::ClientContext context;
  request.set_service("");
  const auto watch = stub->Watch(&context, request);
  CHECK_FALSE(watch->Read(&response));
  CHECK(watch->Finish().error_code() == grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("TCP is loopback, or mutual TLS, and a wildcard only with that", "[shard][service]") {
  ExecutorRig rig;
  const auto start = [&](const ListenOptions& options) {
    return ShardServer::Start(options, *rig.executor, nullptr);
  };
  for (const char* wildcard : {"0.0.0.0:0", "[::]:0", "*:0", ":0", "0:0", "0x0:0", "[::0]:0",
                               "[::ffff:0.0.0.0]:0", "[0:0:0:0:0:0:0:0]:0"}) {
    const absl::Status status = start(OnTcp(wildcard)).status();
    INFO(wildcard << ": " << status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), "wildcard"));
    CHECK(absl::StrContains(status.message(), "--tls-cert, --tls-key and --tls-ca"));
  }
  for (const char* bad : {"localhost", "localhost:", "localhost:x", "localhost:70000"}) {
    CHECK(absl::IsInvalidArgument(start(OnTcp(bad)).status()));
  }
  // 192.0.2.0/24 is reserved for documentation: no machine has it.
  CHECK(absl::StrContains(start(OnTcp("192.0.2.1:0")).status().message(), "--tls-cert"));
  ListenOptions half = OnTcp("127.0.0.1:0");
  half.tls_cert = "cert.pem";
  CHECK(absl::StrContains(start(half).status().message(), "together"));
  half.tls_key = half.tls_ca = half.tls_cert = "/nowhere/cert.pem";
  CHECK(absl::StartsWith(start(half).status().message(), "--tls-cert: /nowhere/cert.pem: "));

  const auto server = start(OnTcp("127.0.0.1:0"));
  REQUIRE(server.ok());
  CHECK(absl::StartsWith((*server)->address(), "127.0.0.1:"));
  CHECK_FALSE(absl::EndsWith((*server)->address(), ":0"));
  Client client((*server)->address());
  v1::InfoResponse facts;
  CHECK(client.Call(&v1::ShardService::Stub::Info, v1::InfoRequest(), &facts).ok());
  const absl::Status taken = start(OnTcp((*server)->address())).status();
  CHECK(absl::StrContains(taken.message(), "is the port taken"));
}

TEST_CASE("Connections that TLS turns away are told by their reason, once a minute each",
          "[shard][service]") {
  HandshakeFaults faults;
  const auto fault = [](const char* why) {
    return absl::StrCat("Handshake failed with fatal error SSL_ERROR_SSL: error:0A000086:SSL ",
                        "routines::", why, ".");
  };
  const std::string unsigned_one = fault("certificate verify failed");
  const std::string in_clear = fault("wrong version number");
  CHECK(
      absl::StrContains(faults.Judge(unsigned_one, 1), "--tls-ca has not signed its certificate"));
  CHECK(faults.Judge(unsigned_one, HandshakeFaults::kSilenceUs).empty());
  CHECK(absl::StrContains(faults.Judge(in_clear, 2), "it speaks no TLS"));
  CHECK_FALSE(faults.Judge(unsigned_one, 1 + HandshakeFaults::kSilenceUs).empty());
  CHECK(absl::StrContains(faults.Judge(fault("peer did not return a certificate"), 3),
                          "it has no certificate"));
  // What the other side says of this one's certificate, and what is no handshake.
  CHECK(faults.Judge(fault("tlsv1 alert unknown ca"), 4).empty());
  CHECK(faults.Judge("certificate verify failed", 5 + 2 * HandshakeFaults::kSilenceUs).empty());
}

}  // namespace weft::shard
