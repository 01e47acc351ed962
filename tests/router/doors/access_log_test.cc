// The access log: a line for every request and call, also for those that are refused before anybody
// knows what they are.

#include "router/doors/access_log.h"

#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "router/doors/grpc/service.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/keys.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

// Takes the place of the process's log while it lives. Outlives the threads that log.
class LogLines {
 public:
  LogLines() : sink_(std::make_shared<Sink>()), before_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>("test", sink_);
    logger->set_level(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
  }
  ~LogLines() { spdlog::set_default_logger(before_); }

  // Waits up to 10 s for `count` lines that have all of `words`; these, or what there is.
  std::vector<std::string> Wait(size_t count, const std::vector<std::string>& words) {
    std::vector<std::string> found;
    absl::MutexLock lock(&sink_->lines_mutex);
    const auto there = [&] {
      sink_->lines_mutex.AssertHeld();
      found.clear();
      for (const std::string& line : sink_->lines) {
        bool all = true;
        for (const std::string& word : words) all &= absl::StrContains(line, word);
        if (all) found.push_back(line);
      }
      return found.size() >= count;
    };
    sink_->lines_mutex.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(10));
    return found;
  }
  // That there is one such line.
  bool One(const std::vector<std::string>& words) { return Wait(1, words).size() == 1; }

 private:
  struct Sink : spdlog::sinks::base_sink<std::mutex> {
    absl::Mutex lines_mutex;
    std::vector<std::string> lines ABSL_GUARDED_BY(lines_mutex);

    void sink_it_(const spdlog::details::log_msg& message) override {
      absl::MutexLock lock(&lines_mutex);
      lines.push_back(
          absl::StrCat(spdlog::level::to_string_view(message.level).data(), " ",
                       absl::string_view(message.payload.data(), message.payload.size()), " "));
    }
    void flush_() override {}
  };

  const std::shared_ptr<Sink> sink_;
  const std::shared_ptr<spdlog::logger> before_;
};

// A gRPC server with a fake intake behind it, and a client.
struct GrpcDoor {
  explicit GrpcDoor(const GrpcServerOptions& options = {}) : doors(&intake, &probe, {}) {
    testing::KeepGrpcThreads();
    server = GrpcServer::Start(options, &doors).value();
    channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()),
                                  grpc::InsecureChannelCredentials());
    stub = weft::v1::TextGeneration::NewStub(channel);
  }
  ~GrpcDoor() { server->Stop(absl::ZeroDuration()); }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<weft::v1::TextGeneration::Stub> stub;
};

// A stream of three tokens, of which the client has seen the first two.
struct BrokenStream {
  explicit BrokenStream(const HttpServerOptions& options = {}) : fixture(options) {
    fixture.intake.SetScript({});
    client = std::make_unique<RawClient>(fixture.port(), 4096);
    client->Send(PostText("/v1/completions", R"({"prompt":"Hi","stream":true})"));
    request = fixture.intake.WaitRequest(0);
    request->Send({Started(7), Token(1, "a"), Token(2, "b")});
    client->ReadHead();
    client->ReadChunk();
    request->EndCancelledWith(7, 3);
  }

  LogLines lines;
  DoorsFixture fixture;
  std::unique_ptr<RawClient> client;
  std::shared_ptr<FakeRequest> request;
};

}  // namespace

TEST_CASE("A request that is refused before it is complete has its line", "[router][log]") {
  LogLines lines;
  HttpServerOptions options;
  options.limits.body_bytes_max = 1000;
  options.limits.header_timeout_us = 60'000;
  DoorsFixture fixture(options);
  const std::string big(2000, 'x');
  CHECK(fixture.Post("/generate", big).status == 413);
  CHECK(lines.One({"info request ", " door=http ", " route=/generate ", " status=413 ",
                   " client=127.0.0.1:", " correlation_id="}));
  CHECK(fixture.Post("/nothing/here", big).status == 413);
  CHECK(lines.One({" route=- ", " status=413 "}));
  CHECK(Fetch(fixture.port(), GetText("/health", "x-big: " + std::string(20'000, 'h') + "\r\n"))
            .status == 431);
  CHECK(lines.One({" route=- ", " status=431 "}));
  CHECK(Fetch(fixture.port(), "GARBAGE\r\n\r\n").status == 400);
  CHECK(lines.One({" route=- ", " status=400 "}));
  CHECK(Fetch(fixture.port(), "GET / HTTP/1.1\r\n").status == 408);
  CHECK(lines.One({" route=- ", " status=408 "}));
  CHECK(Fetch(fixture.port(),
              "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n"
              "content-length: 2\r\n\r\n{}")
            .status == 415);
  CHECK(lines.One({" route=/v1/completions ", " status=415 "}));
  // What was read to its end has one line as before.
  CHECK(fixture.Get("/nothing").status == 404);
  CHECK(lines.One({" route=other ", " status=404 "}));
  fixture.server->Stop();
  CHECK(lines.Wait(7, {"request "}).size() == 7);
}

TEST_CASE("Every line of a request whose key was accepted names the tenant", "[router][log]") {
  LogLines lines;
  TestKeys keys;
  TenantLimits limits;
  limits.requests_max = 1;
  limits.priority_max = 5;
  const std::string key = KeyHeader(keys.Add("a", limits));
  HttpServerOptions options;
  options.limits.body_timeout_us = 60'000;
  DoorsFixture fixture(options, keys.Load());
  const auto post = [&](const std::string& path, const std::string& body) {
    return Fetch(fixture.port(), PostText(path, body, key)).status;
  };
  CHECK(post("/tokenize", R"({"inputs":"Hi"})") == 200);
  CHECK(lines.One({" tenant=a ", " route=/tokenize ", " status=200 "}));
  CHECK(post("/generate", "{") == 422);
  CHECK(lines.One({" tenant=a ", " route=/generate ", " status=422 "}));
  CHECK(Fetch(fixture.port(),
              "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n" + key + "\r\n{")
            .status == 408);
  CHECK(lines.One({" tenant=a ", " route=/v1/completions ", " status=408 "}));
  fixture.intake.SetScript({});
  RawClient running(fixture.port());
  running.Send(PostText("/generate", R"({"inputs":"Hi"})", key));
  REQUIRE(fixture.intake.WaitRequest(0) != nullptr);
  CHECK(post("/generate", R"({"inputs":"Hi"})") == 429);
  CHECK(lines.One({" tenant=a ", " status=429 "}));
  CHECK(fixture.Post("/generate", "{}").status == 401);
  CHECK(lines.One({" route=/generate ", " status=401 "}));
  CHECK_FALSE(absl::StrContains(lines.Wait(1, {" status=401 "})[0], " tenant="));
}

TEST_CASE("The line of a stream that its client left says how far it came", "[router][log]") {
  BrokenStream stream;
  stream.client->Close();
  CHECK(stream.request->WaitCancelled() == CancelReason::kClientGone);
  CHECK(stream.lines.One({" route=/v1/completions ", " status=200 ", " prompt_tokens=7 ",
                          " output_tokens=3 ", " validation_ms=1", " queue_ms=2",
                          " first_token_ms=", " cause=client ", " tenant=anonymous "}));
  stream.fixture.server->Stop();
  CHECK(stream.lines.Wait(1, {"request "}).size() == 1);
}

TEST_CASE("A reader that the kernel gives up is a slow reader", "[router][log]") {
  CHECK(HttpLimits().unacknowledged_us() > HttpLimits().reader_window_us);
  HttpServerOptions options;
  options.limits.unacknowledged_timeout_us = 200'000;
  BrokenStream stream(options);
  const std::string text(256u << 10, 'x');
  for (int i = 0; i < 64 && !stream.request->cancelled(); ++i)
    stream.request->Send({Token(3, text)});
  CHECK(stream.request->WaitCancelled() == CancelReason::kSlowReader);
  CHECK(stream.lines.One({" output_tokens=3 ", " cause=slow_reader "}));
}

TEST_CASE("The line of a request that was left before its first token has its tenant",
          "[router][log]") {
  LogLines lines;
  DoorsFixture fixture;
  fixture.intake.SetScript({});
  RawClient client(fixture.port());
  client.Send(PostText("/generate", R"({"inputs":"Hi"})"));
  const auto request = fixture.intake.WaitRequest(0);
  client.Close();
  CHECK(request->WaitCancelled() == CancelReason::kClientGone);
  CHECK(lines.One({" tenant=anonymous ", " id=req-1 ", " cause=client "}));
}

TEST_CASE("A line that comes after the HTTP server's end still names its route", "[router][log]") {
  LogLines log;
  absl::Notification left;
  Probe probe;
  FakeEntrance intake;
  DoorContext doors(&intake, &probe, {});
  // What reads long bodies is busy, and keeps the request for longer than there are routes.
  REQUIRE(intake.Run(0, [&] { left.WaitForNotification(); }));
  {
    HttpRouter routes;
    HttpRouter admin_routes;
    AddOpenAiRoutes(&doors, &routes);
    auto server = HttpServer::Start({}, &routes, &admin_routes, &probe);
    REQUIRE(server.ok());
    RawClient client((*server)->port());
    client.Send(PostText("/v1/completions", absl::StrCat(R"({"model":"fake/model","prompt":")",
                                                         std::string(kLongBodyBytes, 'x'), "\"}")));
    // Each answer gives the server time to read the whole body.
    for (int i = 0; i < 10'000 && intake.admission().waiting() == 0; ++i) {
      Fetch((*server)->port(), GetText("/"));
    }
    REQUIRE(intake.admission().waiting() == 1);
    (*server)->Stop();
  }
  left.Notify();
  CHECK(log.One({"door=http", "route=/v1/completions "}));
}

TEST_CASE("Every gRPC call has its line", "[router][log]") {
  LogLines lines;
  GrpcDoor door;
  const auto call = [&door](auto method, const auto& request, auto response) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    return (door.stub.get()->*method)(&context, request, &response).error_code();
  };
  using Stub = weft::v1::TextGeneration::Stub;
  weft::v1::TokenizeRequest tokenize;
  tokenize.set_text("Hi");
  CHECK(call(&Stub::Tokenize, tokenize, weft::v1::TokenizeResponse()) == grpc::StatusCode::OK);
  CHECK(lines.One({"info request ", " door=grpc ", " route=Tokenize ", " status=OK ",
                   " tenant=anonymous ", " client=127.0.0.1:", " traceparent=00-0af7"}));
  CHECK(call(&Stub::Tokenize, weft::v1::TokenizeRequest(), weft::v1::TokenizeResponse()) ==
        grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(lines.One({" route=Tokenize ", " status=INVALID_ARGUMENT "}));
  weft::v1::DetokenizeRequest detokenize;
  detokenize.add_ids(72);
  CHECK(call(&Stub::Detokenize, detokenize, weft::v1::DetokenizeResponse()) ==
        grpc::StatusCode::OK);
  CHECK(lines.One({"info request ", " route=Detokenize ", " status=OK "}));
  weft::v1::CancelRequest cancel;
  cancel.set_request_id("nobody");
  CHECK(call(&Stub::Cancel, cancel, weft::v1::CancelResponse()) == grpc::StatusCode::OK);
  CHECK(lines.One({"info request ", " route=Cancel ", " status=OK "}));
  CHECK(call(&Stub::GetModel, weft::v1::GetModelRequest(), weft::v1::GetModelResponse()) ==
        grpc::StatusCode::OK);
  CHECK(lines.One({"debug request ", " route=GetModel ", " status=OK "}));
  // Of a method that does not exist, with a trace context that is none.
  grpc::internal::RpcMethod nothing("/nobody.Knows/This", grpc::internal::RpcMethod::NORMAL_RPC);
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "00-x\"y");
  weft::v1::CancelResponse response;
  CHECK(grpc::internal::BlockingUnaryCall<weft::v1::CancelRequest, weft::v1::CancelResponse>(
            door.channel.get(), nothing, &context, cancel, &response)
            .error_code() == grpc::StatusCode::UNIMPLEMENTED);
  CHECK(lines.One(
      {"info request ", " route=other ", " status=UNIMPLEMENTED ", " client=127.0.0.1:"}));
  door.server->Stop(absl::ZeroDuration());
  CHECK(lines.Wait(6, {"request "}).size() == 6);
  CHECK(lines.Wait(5, {" traceparent="}).size() == 5);
}

TEST_CASE("A gRPC call too many has its line", "[router][log]") {
  LogLines lines;
  GrpcServerOptions options;
  options.calls_max = 1;
  GrpcDoor door(options);
  door.intake.SetScript({});
  weft::v1::GenerateRequest request;
  request.set_text("Hi");
  grpc::ClientContext running_context;
  const auto running = door.stub->Generate(&running_context, request);
  REQUIRE(door.intake.WaitRequest(0) != nullptr);
  grpc::ClientContext context;
  const auto refused = door.stub->Generate(&context, request);
  weft::v1::GenerateResponse response;
  CHECK_FALSE(refused->Read(&response));
  CHECK(refused->Finish().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(lines.One({"info request ", " door=grpc ", " route=Generate ",
                   " status=RESOURCE_EXHAUSTED ", " client=127.0.0.1:"}));
  running_context.TryCancel();
  (void)running->Finish();
}

}  // namespace weft::router
