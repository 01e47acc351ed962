// A router's claim over real connections: it lasts as long as the connection answers.

#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "router/shards/http2_session.h"
#include "shard/control/step_service.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/control/executor_rig.h"
#include "tests/support/grpc_threads.h"
#include "weft/shard/v1/shard.grpc.pb.h"

namespace weft::shard {
namespace {

constexpr uint64_t kFirst = 11;
constexpr uint64_t kSecond = 12;
constexpr int64_t kLongUs = 30'000'000;

v1::HoldRequest Claim(uint64_t router_id) {
  v1::HoldRequest request;
  request.set_router_id(router_id);
  return request;
}

// A shard on a socket of its own, whose pings are quick.
class Shard {
 public:
  Shard() {
    testing::KeepGrpcThreads();
    ListenOptions options;
    options.socket = folder_.path() + "/shard.sock";
    options.ping_interval = absl::Milliseconds(100);
    options.ping_timeout = absl::Milliseconds(300);
    server_ = *ShardServer::Start(options, *rig_.executor, nullptr);
    stub_ = v1::ShardService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }
  ~Shard() { server_.reset(); }

  // Asks over a connection; each question is a round trip, so that waiting for an answer needs no
  // sleep.
  uint64_t Holder() {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::InfoResponse response;
    REQUIRE(stub_->Info(&context, v1::InfoRequest(), &response).ok());
    return response.holder_router_id();
  }
  void WaitHolder(uint64_t expected) {
    const int64_t end_us = MonotonicClock().NowUs() + kLongUs;
    while (Holder() != expected) REQUIRE(MonotonicClock().NowUs() < end_us);
  }

  const std::string& address() const { return server_->address(); }

 private:
  ExecutorRig rig_;
  test::TempDir folder_;
  std::unique_ptr<ShardServer> server_;
  std::unique_ptr<v1::ShardService::Stub> stub_;
};

// A router that claims the shard and then does nothing any more, as if it were stopped: it reads
// nothing and answers no ping, and its connection stays open.
class FrozenRouter {
 public:
  FrozenRouter(const std::string& address, uint64_t router_id)
      : session_([](router::Http2StreamId, absl::Status, std::string) {}) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    const std::string path = address.substr(std::strlen("unix:"));
    path.copy(to.sun_path, sizeof(to.sun_path) - 1);
    REQUIRE(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    const auto claim = std::make_shared<const std::string>(Claim(router_id).SerializeAsString());
    REQUIRE(session_.Start("/weft.shard.v1.ShardService/Hold", claim, kLongUs) > 0);
    std::string out;
    REQUIRE(session_.Output(&out).ok());
    REQUIRE(send(fd_, out.data(), out.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(out.size()));
  }
  ~FrozenRouter() { close(fd_); }

 private:
  router::Http2Session session_;
  int fd_ = -1;
};

// A router whose connection lives, as gRPC's client keeps it.
class LiveRouter {
 public:
  LiveRouter(const std::string& address, uint64_t router_id) : request_(Claim(router_id)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::ShardService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    context_.set_wait_for_ready(true);
    stub_->async()->Hold(&context_, &request_, &response_, [this](grpc::Status status) {
      status_ = status;
      done_.Notify();
    });
  }
  ~LiveRouter() {
    context_.TryCancel();
    done_.WaitForNotification();
  }
  bool ended() const { return done_.HasBeenNotified(); }
  const grpc::Status& Wait() {
    done_.WaitForNotification();
    return status_;
  }

 private:
  v1::HoldRequest request_;
  v1::HoldResponse response_;
  std::unique_ptr<v1::ShardService::Stub> stub_;
  grpc::ClientContext context_;
  absl::Notification done_;
  grpc::Status status_;
};

TEST_CASE("A claim ends at once with its connection", "[shard][service][hold]") {
  Shard shard;
  {
    FrozenRouter first(shard.address(), kFirst);
    shard.WaitHolder(kFirst);
    LiveRouter second(shard.address(), kSecond);
    CHECK(second.Wait().error_code() == grpc::StatusCode::ALREADY_EXISTS);
    CHECK(shard.Holder() == kFirst);
  }
  shard.WaitHolder(0);
  LiveRouter second(shard.address(), kSecond);
  shard.WaitHolder(kSecond);
}

TEST_CASE("A frozen router loses its claim, and one that answers pings keeps it",
          "[shard][service][hold]") {
  Shard shard;
  FrozenRouter frozen(shard.address(), kFirst);
  shard.WaitHolder(kFirst);
  const int64_t begin_us = MonotonicClock().NowUs();
  shard.WaitHolder(0);
  WARN("the frozen router's claim ended after " << MonotonicClock().NowUs() - begin_us << " us");
  LiveRouter live(shard.address(), kSecond);
  shard.WaitHolder(kSecond);
  // Three times what ended the frozen one.
  const int64_t end_us = MonotonicClock().NowUs() + 1'200'000;
  while (MonotonicClock().NowUs() < end_us) REQUIRE(shard.Holder() == kSecond);
  CHECK(!live.ended());
}

}  // namespace
}  // namespace weft::shard
