// GenerateBatch through a real channel, with answers that the test writes: events of several
// requests mixed, failures that stay with their request, and a client that leaves.

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"
#include "router/doors/grpc/service.h"
#include "router/errors.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

using weft::v1::GenerateBatchRequest;
using weft::v1::GenerateBatchResponse;

struct Batch {
  explicit Batch(int requests, uint32_t choices = 1, const AdmissionLimits& limits = {})
      : intake(limits), doors(&intake, &probe, {}) {
    testing::KeepGrpcThreads();
    auto started = GrpcServer::Start({}, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
    stub = weft::v1::TextGeneration::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials()));
    intake.SetScript({});
    for (int i = 0; i < requests; ++i) {
      weft::v1::GenerateRequest* const one = batch.add_requests();
      one->set_text(absl::StrCat("prompt ", i));
      one->mutable_sampling()->set_n(choices);
    }
  }
  ~Batch() { server->Stop(absl::ZeroDuration()); }

  void Begin() { stream = stub->GenerateBatch(&context, batch); }
  GenerateBatchResponse Next() {
    GenerateBatchResponse response;
    REQUIRE(stream->Read(&response));
    return response;
  }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<weft::v1::TextGeneration::Stub> stub;
  GenerateBatchRequest batch;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<GenerateBatchResponse>> stream;
};

TEST_CASE("Events of a batch come as they are written, each with its request's index",
          "[router][grpc][batch]") {
  Batch fixture(3);
  fixture.Begin();
  for (const uint32_t index : {2u, 0u, 1u}) {
    CAPTURE(index);
    fixture.intake.WaitRequest(index)->Send(
        {Started(), Token(10 + index, "x"), Finished(FinishReason::kLength, 1)});
    const GenerateBatchResponse response = fixture.Next();
    CHECK(response.request_index() == index);
    CHECK(response.response().prompt_info().prompt_tokens() > 0);
    CHECK(response.response().output().token_ids(0) == 10 + index);
    CHECK(response.response().finish_info().output_tokens() == 1);
  }
  GenerateBatchResponse more;
  CHECK_FALSE(fixture.stream->Read(&more));
  CHECK(fixture.stream->Finish().ok());
}

TEST_CASE("A request of a batch that fails takes its own choices with it and nothing else",
          "[router][grpc][batch]") {
  Batch fixture(2, /*choices=*/2);
  fixture.Begin();
  // Answers 0 and 1 are the first request's.
  fixture.intake.WaitRequest(3);
  fixture.intake.WaitRequest(1)->Send({FailedEvent{absl::InternalError("broke")}});
  const GenerateBatchResponse failed = fixture.Next();
  CHECK(failed.request_index() == 0);
  CHECK(failed.error().code() == grpc::StatusCode::INTERNAL);
  CHECK(failed.error().message() == "broke");
  CHECK(fixture.intake.WaitRequest(0)->WaitCancelled() == CancelReason::kClientGone);
  for (const size_t answer : {2, 3}) {
    CHECK_FALSE(fixture.intake.WaitRequest(answer)->cancelled());
    fixture.intake.WaitRequest(answer)->Send(
        {Started(), Token(7, "y"), Finished(FinishReason::kLength, 1)});
    const GenerateBatchResponse response = fixture.Next();
    CHECK(response.request_index() == 1);
    CHECK(response.response().finish_info().index() == answer - 2);
  }
  CHECK(fixture.stream->Finish().ok());
}

TEST_CASE("The texts of a batch count each with its own request", "[router][grpc][batch]") {
  Batch fixture(3);
  constexpr size_t kBytes = 100'000;
  for (auto& one : *fixture.batch.mutable_requests()) one.set_text(std::string(kBytes, 'x'));
  fixture.Begin();
  fixture.intake.WaitRequest(2);
  const size_t message = fixture.batch.ByteSizeLong();
  CHECK(fixture.intake.admission().bytes() == message + 2 * kBytes);
  const auto end = [&](size_t index) {
    fixture.intake.WaitRequest(index)->Send(
        {Started(), Token(7, "y"), Finished(FinishReason::kLength, 1)});
    fixture.Next();
  };
  for (const size_t index : {0, 1, 2}) end(index);
  CHECK(fixture.stream->Finish().ok());
}

TEST_CASE("Requests of a batch that find no room are refused one by one", "[router][grpc][batch]") {
  AdmissionLimits limits;
  limits.running_max = 1;
  limits.queue.queue_requests_max = 1;
  Batch fixture(4, 1, limits);
  fixture.Begin();
  for (const size_t i : {0, 1}) {
    fixture.intake.WaitRequest(i)->Send(
        {Started(), Token(7, "y"), Finished(FinishReason::kLength, 1)});
  }
  int served = 0;
  std::vector<uint32_t> refused;
  for (int i = 0; i < 4; ++i) {
    const GenerateBatchResponse response = fixture.Next();
    served += response.response().has_finish_info() ? 1 : 0;
    if (!response.has_error()) continue;
    refused.push_back(response.request_index());
    CHECK(response.error().code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    google::rpc::Status details;
    REQUIRE(details.ParseFromString(response.error().status_details()));
    google::rpc::RetryInfo retry;
    CHECK(details.details(0).UnpackTo(&retry));
  }
  CHECK(served == 2);
  CHECK(refused == std::vector<uint32_t>{2, 3});
  CHECK(fixture.stream->Finish().ok());
}

TEST_CASE("A client that leaves cancels all requests of its batch", "[router][grpc][batch]") {
  Batch fixture(3);
  fixture.Begin();
  fixture.intake.WaitRequest(2)->Send({Started(), Token(7, "y")});
  fixture.Next();
  fixture.context.TryCancel();
  for (const size_t i : {0, 1, 2}) {
    CHECK(fixture.intake.WaitRequest(i)->WaitCancelled() == CancelReason::kClientGone);
  }
  CHECK(fixture.stream->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace weft::router
