// The gRPC door through a real channel: events, errors with details, cancellation, deadlines,
// health.

#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "router/doors/grpc/service.h"
#include "router/errors.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

using weft::v1::GenerateRequest;
using weft::v1::GenerateResponse;

struct GrpcFixture {
  explicit GrpcFixture(DoorOptions options = {}, GrpcServerOptions grpc_options = {})
      : doors(&intake, &probe, std::move(options)) {
    testing::KeepGrpcThreads();
    auto started = GrpcServer::Start(grpc_options, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
    channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()),
                                  grpc::InsecureChannelCredentials());
    stub = weft::v1::TextGeneration::NewStub(channel);
  }
  ~GrpcFixture() { server->Stop(absl::ZeroDuration()); }

  // All messages of a stream, and how it ended.
  grpc::Status Generate(const GenerateRequest& request, std::vector<GenerateResponse>* responses) {
    grpc::ClientContext context;
    auto reader = stub->Generate(&context, request);
    GenerateResponse response;
    while (reader->Read(&response)) responses->push_back(response);
    return reader->Finish();
  }
  grpc::Status Generate(const GenerateRequest& request) {
    std::vector<GenerateResponse> responses;
    return Generate(request, &responses);
  }

  // Calls any method with raw bytes.
  grpc::Status Raw(const char* method, const std::string& bytes, std::string* answer) {
    grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC);
    grpc::ClientContext context;
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel.get(), rpc, &context, request, &response);
    std::vector<grpc::Slice> slices;
    if (status.ok() && response.Dump(&slices).ok()) {
      for (const grpc::Slice& one : slices) {
        answer->append(reinterpret_cast<const char*>(one.begin()), one.size());
      }
    }
    return status;
  }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<weft::v1::TextGeneration::Stub> stub;
};

GenerateRequest TextRequest(const std::string& text = "Hi") {
  GenerateRequest request;
  request.set_text(text);
  return request;
}

// The first detail of type T.
template <typename T>
std::optional<T> Detail(const grpc::Status& status) {
  google::rpc::Status all;
  if (!all.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& any : all.details()) {
    T one;
    if (any.UnpackTo(&one)) return one;
  }
  return std::nullopt;
}

std::string Violation(const grpc::Status& status) {
  const auto bad = Detail<google::rpc::BadRequest>(status);
  if (!bad.has_value() || bad->field_violations_size() != 1) return "";
  return bad->field_violations(0).field();
}

TEST_CASE("Generate streams a message a token, the prompt's facts with the first",
          "[router][grpc]") {
  GrpcFixture fixture;
  Script script = HelloScript();
  script[0] = {Started(/*prompt_tokens=*/20, /*cached_tokens=*/16)};
  fixture.intake.SetScript(script);
  std::vector<GenerateResponse> responses;
  const grpc::Status status = fixture.Generate(TextRequest(), &responses);
  REQUIRE(status.ok());
  REQUIRE(responses.size() == 2);
  CHECK(responses[0].prompt_info().prompt_tokens() == 20);
  CHECK(responses[0].prompt_info().cached_tokens() == 16);
  CHECK(responses[0].prompt_info().seed() == 42);
  CHECK(responses[0].prompt_info().fingerprint() == "weft-V");
  CHECK(responses[0].prompt_info().resume_match() == weft::v1::RESUME_MATCH_UNSPECIFIED);
  CHECK(responses[0].output().text() == "Hello");
  CHECK(responses[0].output().token_ids(0) == 10);
  CHECK_FALSE(responses[0].has_finish_info());
  CHECK_FALSE(responses[1].has_prompt_info());
  CHECK(responses[1].output().text() == " world");
  CHECK(responses[1].finish_info().reason() == weft::v1::FINISH_REASON_LENGTH);
  CHECK(responses[1].finish_info().output_tokens() == 2);
}

TEST_CASE("A resumed Generate goes on, and says how far its tokens are to be trusted",
          "[router][grpc]") {
  GrpcFixture fixture;
  for (const bool exact : {true, false}) {
    StartedEvent head = Started();
    head.head.resumed.emplace().tokens = 2;
    head.head.resumed->exact = exact;
    fixture.intake.SetScript({{head, Token(10, "Hello"), Finished(FinishReason::kLength, 3)}});
    GenerateRequest request = TextRequest();
    request.mutable_resume()->add_output_ids(5);
    request.mutable_resume()->add_output_ids(9);
    request.mutable_resume()->set_seed(~uint64_t{0});
    request.mutable_resume()->set_fingerprint("f");
    std::vector<GenerateResponse> responses;
    REQUIRE(fixture.Generate(request, &responses).ok());
    REQUIRE(responses.size() == 1);
    CHECK(responses[0].prompt_info().resume_match() ==
          (exact ? weft::v1::RESUME_MATCH_EXACT : weft::v1::RESUME_MATCH_INEXACT));
    CHECK(responses[0].finish_info().output_tokens() == 3);
    const GenerateInput& input = fixture.intake.WaitRequest(exact ? 0 : 1)->input();
    REQUIRE(input.resume.has_value());
    CHECK(input.resume->output_ids == std::vector<TokenId>{5, 9});
    CHECK(input.resume->fingerprint == "f");
    CHECK(input.seed == ~uint64_t{0});
  }
}

TEST_CASE("A Generate that cannot be resumed names the field", "[router][grpc]") {
  GrpcFixture fixture;
  const auto refused = [&](const GenerateRequest& request, const std::string& field) {
    const grpc::Status status = fixture.Generate(request);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(Violation(status) == field);
  };
  GenerateRequest good = TextRequest();
  good.mutable_resume()->add_output_ids(5);
  refused(good, "resume.seed");
  good.mutable_resume()->set_seed(1);
  GenerateRequest bad = good;
  bad.mutable_sampling()->set_seed(2);
  refused(bad, "resume.seed");
  bad = good;
  bad.mutable_resume()->add_output_ids(1u << 20);
  refused(bad, "resume.output_ids");
  bad = good;
  bad.mutable_resume()->set_fingerprint(std::string(129, 'f'));
  refused(bad, "resume.fingerprint");
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Every parameter of Generate reaches the engine", "[router][grpc]") {
  GrpcFixture fixture;
  fixture.intake.SetScript({{Started(), TokenWithLogprob(5, "x", -0.5f, {{5, -0.5f, "x"}})},
                            {Finished(FinishReason::kStopSequence, 1, "tail")}});
  GenerateRequest request;
  request.set_request_id("my-id");
  request.set_model("fake/model");
  auto* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("x");
  auto* sampling = request.mutable_sampling();
  sampling->set_temperature(0.5f);
  sampling->set_top_k(3);
  sampling->set_top_p(0.9f);
  sampling->set_min_p(0.1f);
  sampling->set_typical_p(0.8f);
  sampling->set_seed(7);
  sampling->set_n(1);
  auto* decoding = request.mutable_decoding();
  decoding->set_repetition_penalty(1.5f);
  decoding->set_presence_penalty(-1);
  decoding->set_frequency_penalty(1);
  for (const uint32_t id : {9, 2}) {
    auto* bias = decoding->add_logit_bias();
    bias->set_id(id);
    bias->set_bias(1);
  }
  auto* stopping = request.mutable_stopping();
  stopping->set_max_tokens(4);
  stopping->add_stop_sequences("end");
  stopping->set_include_stop_sequence(true);
  stopping->set_ignore_eos(true);
  request.mutable_response()->set_logprobs(true);
  request.mutable_response()->set_top_logprobs(1);
  request.mutable_response()->set_omit_token_ids(true);
  request.mutable_response()->set_echo_prompt(true);
  request.mutable_response()->set_prompt_logprobs(20);
  request.set_truncate_prompt_tokens(6);
  request.set_priority(-3);
  request.set_add_special_tokens(false);
  std::vector<GenerateResponse> responses;
  REQUIRE(fixture.Generate(request, &responses).ok());
  REQUIRE(!responses.empty());  // the end may come with the token
  CHECK(responses[0].output().token_ids().empty());
  CHECK(responses[0].output().details(0).logprob() == -0.5f);
  CHECK(responses[0].output().details(0).top(0).id() == 5);
  CHECK(absl::EndsWith(responses.back().output().text(), "tail"));
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  CHECK(input.correlation_id == "my-id");
  CHECK(std::get<ChatPrompt>(input.prompt).messages[0].content == "x");
  CHECK(std::get<ChatPrompt>(input.prompt).add_generation_prompt);
  CHECK(input.sampling.temperature == 0.5f);
  CHECK(input.sampling.top_k == 3);
  CHECK(input.sampling.logit_bias.front().first == 2);
  CHECK(input.sampling.repetition_penalty == 1.5f);
  CHECK(input.seed == 7u);
  CHECK(input.max_tokens == 4u);
  CHECK(input.stop_sequences == std::vector<std::string>{"end"});
  CHECK(input.include_stop_sequence);
  CHECK(input.ignore_eos);
  CHECK(input.echo_prompt);
  CHECK(input.prompt_logprobs == 20u);
  CHECK(input.truncate_prompt_tokens == 6u);
  CHECK(input.priority == -3);
  CHECK_FALSE(input.add_special_tokens);
}

TEST_CASE("Bad fields of Generate are INVALID_ARGUMENT with the field's path", "[router][grpc]") {
  GrpcFixture fixture;
  const auto violation = [&](auto change) {
    GenerateRequest request = TextRequest();
    change(&request);
    const grpc::Status status = fixture.Generate(request);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    return Violation(status);
  };
  using R = GenerateRequest*;
  CHECK(violation([](R r) { r->clear_text(); }) == "prompt");
  CHECK(violation([](R r) { r->set_text(""); }) == "text");
  CHECK(violation([](R r) { r->mutable_token_ids(); }) == "token_ids");
  CHECK(violation([](R r) { r->mutable_token_ids()->add_ids(1u << 20); }) == "token_ids");
  CHECK(violation([](R r) { r->mutable_chat(); }) == "chat.messages");
  CHECK(violation([](R r) { r->mutable_chat()->add_messages(); }) == "chat.messages[0].role");
  CHECK(violation([](R r) { r->set_request_id("a b"); }) == "request_id");
  CHECK(violation([](R r) { r->mutable_sampling()->set_temperature(-1); }) ==
        "sampling.temperature");
  CHECK(violation([](R r) { r->mutable_sampling()->set_temperature(NAN); }) ==
        "sampling.temperature");
  CHECK(violation([](R r) { r->mutable_sampling()->set_top_p(0); }) == "sampling.top_p");
  CHECK(violation([](R r) { r->mutable_sampling()->set_min_p(2); }) == "sampling.min_p");
  CHECK(violation([](R r) { r->mutable_sampling()->set_typical_p(0); }) == "sampling.typical_p");
  CHECK(violation([](R r) { r->mutable_sampling()->set_top_k(1u << 21); }) == "sampling.top_k");
  CHECK(violation([](R r) { r->mutable_sampling()->set_n(129); }) == "sampling.n");
  CHECK(violation([](R r) { r->mutable_sampling()->set_n(0); }) == "sampling.n");
  CHECK(violation([](R r) { r->mutable_decoding()->set_repetition_penalty(0); }) ==
        "decoding.repetition_penalty");
  CHECK(violation([](R r) { r->mutable_decoding()->set_repetition_penalty(1e-37f); }) ==
        "decoding.repetition_penalty");
  CHECK(violation([](R r) { r->mutable_decoding()->set_presence_penalty(3); }) ==
        "decoding.presence_penalty");
  CHECK(violation([](R r) { r->mutable_decoding()->set_frequency_penalty(-3); }) ==
        "decoding.frequency_penalty");
  CHECK(violation([](R r) { r->mutable_decoding()->add_logit_bias()->set_bias(101); }) ==
        "decoding.logit_bias");
  CHECK(violation([](R r) {
          r->mutable_decoding()->add_logit_bias();
          r->mutable_decoding()->add_logit_bias();
        }) == "decoding.logit_bias");
  CHECK(violation([](R r) { r->mutable_stopping()->set_max_tokens(0); }) == "stopping.max_tokens");
  CHECK(violation([](R r) { r->mutable_stopping()->add_stop_sequences(""); }) ==
        "stopping.stop_sequences");
  CHECK(violation([](R r) { r->mutable_response()->set_prompt_logprobs(21); }) ==
        "response.prompt_logprobs");
  CHECK(violation([](R r) {
          r->mutable_response()->set_prompt_logprobs(0);
          r->mutable_resume();
        }) == "response.prompt_logprobs");
  CHECK(violation([](R r) { r->mutable_response()->set_top_logprobs(21); }) ==
        "response.top_logprobs");
  CHECK(violation([](R r) { r->mutable_response()->set_top_logprobs(1); }) ==
        "response.top_logprobs");
  CHECK(violation([](R r) { r->set_truncate_prompt_tokens(0); }) == "truncate_prompt_tokens");
  CHECK(violation([](R r) { r->set_priority(101); }) == "priority");
  GenerateRequest other = TextRequest();
  other.set_model("gpt-4");
  CHECK(fixture.Generate(other).error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Messages that do not parse or hold text that is not UTF-8 are INVALID_ARGUMENT",
          "[router][grpc]") {
  GrpcFixture fixture;
  std::string answer;
  for (const char* method : {"Generate", "Tokenize", "Cancel"}) {
    // Field 1 or 3 as a string of one byte 0xff; and a truncated message.
    const std::string name = absl::StrCat("/weft.v1.TextGeneration/", method);
    const char tag = method[0] == 'G' ? '\x1a' : '\x0a';
    for (const std::string& bytes : {std::string{tag, '\x01', '\xff'}, std::string{tag, '\x05'}}) {
      const grpc::Status status = fixture.Raw(name.c_str(), bytes, &answer);
      CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
      CHECK(Violation(status) == "request");
    }
  }
}

TEST_CASE("Errors of the engine carry details", "[router][grpc]") {
  GrpcFixture fixture;
  fixture.intake.SetScript({{FailedEvent{FieldError("max_tokens", "too many")}}});
  grpc::Status status = fixture.Generate(TextRequest());
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(Violation(status) == "stopping.max_tokens");
  fixture.intake.SetScript({{FailedEvent{FieldError("prompt", "too long")}}});
  CHECK(Violation(fixture.Generate(TextRequest())) == "text");
  fixture.intake.SetScript(
      {{FailedEvent{OverloadedError("QUEUE_FULL", "full", absl::Milliseconds(1500))}}});
  status = fixture.Generate(TextRequest());
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto retry = Detail<google::rpc::RetryInfo>(status);
  REQUIRE(retry.has_value());
  CHECK(retry->retry_delay().seconds() == 1);
  CHECK(retry->retry_delay().nanos() == 500'000'000);
  const auto info = Detail<google::rpc::ErrorInfo>(status);
  REQUIRE(info.has_value());
  CHECK(info->reason() == "QUEUE_FULL");
  fixture.intake.SetStatus({ServerState::kLoading, 10, "", 0});
  status = fixture.Generate(TextRequest());
  CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(Detail<google::rpc::RetryInfo>(status).has_value());
}

TEST_CASE("Initial metadata comes with the first message and holds the request id",
          "[router][grpc]") {
  GrpcFixture fixture;
  GenerateRequest request = TextRequest();
  request.set_request_id("abc");
  grpc::ClientContext context;
  auto reader = fixture.stub->Generate(&context, request);
  GenerateResponse response;
  REQUIRE(reader->Read(&response));
  const auto& metadata = context.GetServerInitialMetadata();
  REQUIRE(metadata.count("x-request-id") == 1);
  CHECK(std::string(metadata.find("x-request-id")->second.data(), 3) == "abc");
  while (reader->Read(&response)) {
  }
  CHECK(reader->Finish().ok());
}

TEST_CASE("A good traceparent comes back with the initial metadata, another does not",
          "[router][grpc]") {
  GrpcFixture fixture;
  const std::string good = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
  const auto returned = [](const grpc::ClientContext& context) {
    const auto& metadata = context.GetServerInitialMetadata();
    const auto it = metadata.find("traceparent");
    return it == metadata.end() ? "" : std::string(it->second.data(), it->second.size());
  };
  for (const std::string& sent : {good, std::string("00-x\"y-01")}) {
    CAPTURE(sent);
    grpc::ClientContext stream, unary;
    stream.AddMetadata("traceparent", sent);
    unary.AddMetadata("traceparent", sent);
    auto reader = fixture.stub->Generate(&stream, TextRequest());
    GenerateResponse response;
    while (reader->Read(&response)) {
    }
    CHECK(reader->Finish().ok());
    CHECK(returned(stream) == (sent == good ? good : ""));
    weft::v1::GetModelResponse model;
    CHECK(fixture.stub->GetModel(&unary, {}, &model).ok());
    CHECK(returned(unary) == (sent == good ? good : ""));
  }
}

TEST_CASE("A dropped stream cancels its request", "[router][grpc]") {
  GrpcFixture fixture;
  fixture.intake.SetScript({});
  grpc::ClientContext context;
  auto reader = fixture.stub->Generate(&context, TextRequest());
  const auto request = fixture.intake.WaitRequest(0);
  REQUIRE(request != nullptr);
  request->Send({Started(), Token(1, "x")});
  GenerateResponse response;
  CHECK(reader->Read(&response));
  context.TryCancel();
  CHECK(request->WaitCancelled() == CancelReason::kClientGone);
  CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("A deadline reaches the engine and cancels when it passes", "[router][grpc]") {
  GrpcFixture fixture;
  fixture.intake.SetScript({});
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  auto reader = fixture.stub->Generate(&context, TextRequest());
  const auto request = fixture.intake.WaitRequest(0);
  REQUIRE(request != nullptr);
  CHECK(request->input().deadline_us > 0);
  CHECK(reader->Finish().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  REQUIRE(request->WaitCancelled().has_value());
}

TEST_CASE("A gRPC client that does not read is cancelled as a slow reader", "[router][grpc]") {
  DoorOptions options;
  options.slow_reader_timeout_us = 100'000;
  GrpcServerOptions grpc_options;
  grpc_options.watch_interval_us = 20'000;
  GrpcFixture fixture(options, grpc_options);
  fixture.intake.SetScript({});
  grpc::ClientContext context;
  auto reader = fixture.stub->Generate(&context, TextRequest());
  const auto request = fixture.intake.WaitRequest(0);
  REQUIRE(request != nullptr);
  request->Send({Started()});
  const std::string text(256u << 10, 'x');
  for (int i = 0; i < 64 && !request->cancelled(); ++i) request->Send({Token(1, text)});
  CHECK(request->WaitCancelled() == CancelReason::kSlowReader);
}

TEST_CASE("Unknown field numbers are ignored openly, and refused when the server is strict",
          "[router][grpc]") {
  GenerateRequest request = TextRequest();
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(33, 1);
  request.mutable_sampling()
      ->GetReflection()
      ->MutableUnknownFields(request.mutable_sampling())
      ->AddVarint(12, 1);
  GrpcFixture fixture;
  grpc::ClientContext context;
  auto reader = fixture.stub->Generate(&context, request);
  GenerateResponse response;
  while (reader->Read(&response)) {
  }
  CHECK(reader->Finish().ok());
  const auto& metadata = context.GetServerInitialMetadata();
  REQUIRE(metadata.count("x-weft-ignored-fields") == 1);
  const grpc::string_ref value = metadata.find("x-weft-ignored-fields")->second;
  CHECK(std::string(value.data(), value.size()) == "33, sampling.12");
  DoorOptions options;
  options.strict_fields = true;
  GrpcFixture strict(options);
  CHECK(strict.Generate(request).error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("Tokenize, Detokenize, Cancel and GetModel answer", "[router][grpc]") {
  GrpcFixture fixture;
  {
    grpc::ClientContext context;
    weft::v1::TokenizeRequest request;
    request.set_text("ab");
    weft::v1::TokenizeResponse response;
    REQUIRE(fixture.stub->Tokenize(&context, request, &response).ok());
    CHECK(response.ids_size() == 3);
    CHECK(response.tokens(2) == "b");
  }
  {
    grpc::ClientContext context;
    weft::v1::TokenizeResponse response;
    const grpc::Status status = fixture.stub->Tokenize(&context, {}, &response);
    CHECK(Violation(status) == "prompt");
  }
  {
    grpc::ClientContext context;
    weft::v1::DetokenizeRequest request;
    request.add_ids('o');
    request.add_ids('k');
    weft::v1::DetokenizeResponse response;
    REQUIRE(fixture.stub->Detokenize(&context, request, &response).ok());
    CHECK(response.text() == "ok");
  }
  {
    grpc::ClientContext context;
    weft::v1::GetModelResponse response;
    REQUIRE(fixture.stub->GetModel(&context, {}, &response).ok());
    CHECK(response.model() == "fake/model");
    CHECK(response.dtype() == weft::v1::DATA_TYPE_BFLOAT16);
    CHECK(response.shards() == 2);
  }
  fixture.intake.SetScript({});
  grpc::ClientContext stream_context;
  GenerateRequest generate = TextRequest();
  generate.set_request_id("to-be-cancelled");
  auto reader = fixture.stub->Generate(&stream_context, generate);
  REQUIRE(fixture.intake.WaitRequest(0) != nullptr);
  for (const bool found : {true, false}) {
    grpc::ClientContext context;
    weft::v1::CancelRequest request;
    request.set_request_id(found ? "to-be-cancelled" : "nobody");
    weft::v1::CancelResponse response;
    REQUIRE(fixture.stub->Cancel(&context, request, &response).ok());
    CHECK(response.found() == found);
  }
  CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("GetModel is UNAVAILABLE while the model is loading", "[router][grpc]") {
  GrpcFixture fixture;
  fixture.intake.SetStatus({ServerState::kLoading, 40, "", 0});
  grpc::ClientContext context;
  weft::v1::GetModelResponse response;
  const grpc::Status status = fixture.stub->GetModel(&context, {}, &response);
  CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(Detail<google::rpc::ErrorInfo>(status)->reason() == "LOADING");
  CHECK(Detail<google::rpc::RetryInfo>(status)->retry_delay().seconds() == 1);
}

TEST_CASE("A key that comes twice over gRPC is refused", "[router][grpc]") {
  GrpcFixture fixture;
  for (const std::string name : {"authorization", "x-api-key"}) {
    grpc::ClientContext context;
    context.AddMetadata(name, "a");
    context.AddMetadata(name, "b");
    weft::v1::GetModelResponse response;
    const grpc::Status status = fixture.stub->GetModel(&context, {}, &response);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(absl::StrContains(status.error_message(), name));
  }
}

TEST_CASE("Health follows the server's state, by service and as a whole", "[router][grpc]") {
  GrpcServerOptions options;
  options.watch_interval_us = 5'000;
  GrpcFixture fixture({}, options);
  const std::string service = "weft.v1.TextGeneration";
  const std::string named =
      absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
  // HealthCheckResponse.status: 1 = SERVING, 2 = NOT_SERVING.
  const auto becomes = [&](const std::string& wanted) {
    for (const std::string& request : {std::string(), named}) {
      std::string answer;
      for (int i = 0; i < 2000 && answer != wanted; ++i) {
        answer.clear();
        if (!fixture.Raw("/grpc.health.v1.Health/Check", request, &answer).ok()) return false;
      }
      if (answer != wanted) return false;
    }
    return true;
  };
  CHECK(becomes("\x08\x01"));
  fixture.intake.SetStatus({ServerState::kRecovering, 100, "", 0});
  CHECK(becomes("\x08\x02"));
  fixture.intake.SetStatus({ServerState::kReady, 100, "", 0});
  CHECK(becomes("\x08\x01"));
  fixture.doors.StartDrain();
  fixture.server->StartDrain();
  CHECK(becomes("\x08\x02"));
  CHECK(fixture.Generate(TextRequest()).error_code() == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("A gRPC port that is taken is an error", "[router][grpc]") {
  GrpcFixture fixture;
  GrpcServerOptions options;
  options.address = absl::StrCat("127.0.0.1:", fixture.server->port());
  CHECK_FALSE(GrpcServer::Start(options, &fixture.doors).ok());
}

TEST_CASE("Many gRPC streams run at the same time", "[router][grpc]") {
  GrpcFixture fixture;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<GenerateResponse>>> readers;
  for (int i = 0; i < 64; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(fixture.stub->Generate(contexts.back().get(), TextRequest()));
  }
  for (auto& reader : readers) {
    GenerateResponse response;
    std::string text;
    while (reader->Read(&response)) text += response.output().text();
    CHECK(reader->Finish().ok());
    CHECK(text == "Hello world");
  }
}

}  // namespace
}  // namespace weft::router
