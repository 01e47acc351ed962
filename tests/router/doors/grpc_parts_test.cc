// Content, reasoning and calls of tools that are told apart in the messages of Generate, and
// requests that ask for them in a wrong way.

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"
#include "router/doors/grpc/service.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/support/grpc_threads.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::router {
namespace {

using weft::v1::GenerateRequest;
using weft::v1::GenerateResponse;

constexpr char kTool[] =
    R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}})";
constexpr char kOtherTool[] = R"({"type":"function","function":{"name":"g"}})";
constexpr char kStrictTool[] =
    R"({"type":"function","function":{"name":"s","strict":true,"parameters":{"type":"object"}}})";

// A thought, two words, and two calls, cut where a tokenizer might.
Script CallingScript(FinishReason reason = FinishReason::kEosToken) {
  return {
      {Started()},
      {Token(1, "<think>"), Token(2, "So."), Token(3, "</think>")},
      {Token(4, "Let me"), Token(5, " see."), Token(6, "<tool_call>")},
      {Token(7, "\n{\"name\": \"f\", \"argu"), Token(8, "ments\": {\"a\":")},
      {Token(9, " 1}}\n"), Token(10, "</tool_call>"), Token(11, "<tool_call>")},
      {Token(12, "{\"name\": \"g\", \"arguments\": {}}"), Finished(reason, 12, "</tool_call>")}};
}

// What the messages of one choice are, put together.
struct Whole {
  std::string text, reasoning;
  std::vector<std::string> ids, names, arguments;
  size_t tokens = 0;
  weft::v1::FinishInfo finish;

  void Add(const GenerateResponse& response) {
    text += response.output().text();
    reasoning += response.output().reasoning();
    tokens += static_cast<size_t>(response.output().token_ids_size());
    for (const weft::v1::ToolCallDelta& call : response.output().tool_calls()) {
      // Id and name come once, with the call's first piece.
      const bool begins = call.index() == names.size();
      CHECK(begins == !call.name().empty());
      CHECK(begins == !call.id().empty());
      if (begins) {
        ids.push_back(call.id());
        names.push_back(call.name());
        arguments.emplace_back();
      }
      arguments.at(call.index()) += call.arguments();
    }
    if (response.has_finish_info()) finish = response.finish_info();
  }
};

struct PartsFixture {
  PartsFixture() : doors(&intake, &probe, {}) {
    testing::KeepGrpcThreads();
    auto started = GrpcServer::Start({}, &doors);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
    stub = weft::v1::TextGeneration::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials()));
    intake.SetParsers("hermes", "think");
    intake.SetScript(CallingScript());
  }
  ~PartsFixture() { server->Stop(absl::ZeroDuration()); }

  grpc::Status Generate(const GenerateRequest& request, Whole* whole) const {
    grpc::ClientContext context;
    auto reader = stub->Generate(&context, request);
    GenerateResponse response;
    while (reader->Read(&response)) whole->Add(response);
    return reader->Finish();
  }
  Whole Served(const GenerateRequest& request) const {
    Whole whole;
    const grpc::Status status = Generate(request, &whole);
    INFO(status.error_message());
    REQUIRE(status.ok());
    return whole;
  }
  // The field of a refusal.
  std::string Refused(const GenerateRequest& request) const {
    Whole whole;
    const grpc::Status status = Generate(request, &whole);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    google::rpc::Status all;
    google::rpc::BadRequest bad;
    REQUIRE(all.ParseFromString(status.error_details()));
    REQUIRE(all.details(0).UnpackTo(&bad));
    const std::string field = bad.field_violations(0).field();
    CHECK(absl::StrContains(status.error_message(), absl::StrCat("`", field, "`")));
    return field;
  }
  // What the entrance got of the request before.
  const GenerateInput& LastInput() {
    return intake.WaitRequest(intake.request_count() - 1)->input();
  }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<weft::v1::TextGeneration::Stub> stub;
};

GenerateRequest Chat(bool parts = true,
                     const std::vector<std::string>& tools = {kTool, kOtherTool}) {
  GenerateRequest request;
  weft::v1::ChatMessage* const message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("x");
  for (const std::string& tool : tools) request.mutable_chat()->add_tools(tool);
  request.mutable_response()->set_parts(parts);
  return request;
}

TEST_CASE("Messages have content, reasoning and calls apart, a message a token",
          "[router][grpc][parts]") {
  const PartsFixture fixture;
  const Whole whole = fixture.Served(Chat());
  CHECK(whole.text == "Let me see.");
  CHECK(whole.reasoning == "So.");
  CHECK(whole.names == std::vector<std::string>{"f", "g"});
  CHECK(whole.arguments == std::vector<std::string>{"{\"a\": 1}", "{}"});
  CHECK(absl::StartsWith(whole.ids[0], "call_"));
  CHECK(whole.ids[0] != whole.ids[1]);
  CHECK(whole.tokens == 12);
  CHECK(whole.finish.reason() == weft::v1::FINISH_REASON_TOOL_CALLS);
}

TEST_CASE("Without parts all is text", "[router][grpc][parts]") {
  PartsFixture fixture;
  const Whole whole = fixture.Served(Chat(/*parts=*/false));
  CHECK(absl::StartsWith(whole.text, "<think>So.</think>Let me see.<tool_call>"));
  CHECK(whole.names.empty());
  CHECK(whole.reasoning.empty());
  CHECK(whole.finish.reason() == weft::v1::FINISH_REASON_EOS_TOKEN);
  CHECK(fixture.LastInput().parts == nullptr);
}

TEST_CASE("An answer that calls ends as its text does where it was cut off",
          "[router][grpc][parts]") {
  PartsFixture fixture;
  const std::pair<FinishReason, weft::v1::FinishReason> reasons[] = {
      {FinishReason::kLength, weft::v1::FINISH_REASON_LENGTH},
      {FinishReason::kStopSequence, weft::v1::FINISH_REASON_TOOL_CALLS},
      {FinishReason::kStopToken, weft::v1::FINISH_REASON_TOOL_CALLS}};
  for (const auto& [reason, wire] : reasons) {
    fixture.intake.SetScript(CallingScript(reason));
    CHECK(fixture.Served(Chat()).finish.reason() == wire);
    const Whole plain = fixture.Served(Chat(true, {}));
    CHECK(plain.names.empty());
    CHECK(plain.finish.reason() != weft::v1::FINISH_REASON_TOOL_CALLS);
  }
}

TEST_CASE("The choice of tools decides what is told apart, and what the model is told",
          "[router][grpc][parts]") {
  PartsFixture fixture;
  GenerateRequest request = Chat();
  weft::v1::ChatPrompt& chat = *request.mutable_chat();
  SECTION("none") {
    chat.mutable_tool_choice()->set_mode(weft::v1::TOOL_CHOICE_MODE_NONE);
    CHECK(fixture.Served(request).names.empty());
    CHECK(std::get<ChatPrompt>(fixture.LastInput().prompt).tools.empty());
  }
  SECTION("required: other text is a call that was cut off") {
    chat.mutable_tool_choice()->set_mode(weft::v1::TOOL_CHOICE_MODE_REQUIRED);
    const Whole whole = fixture.Served(request);
    CHECK(whole.text.empty());
    CHECK(whole.names.size() == 2);
    CHECK(fixture.LastInput().parts->calls == PartsSpec::Calls::kRequired);
  }
  SECTION("named") {
    chat.mutable_tool_choice()->set_function("g");
    fixture.Served(request);
    CHECK(fixture.LastInput().parts->calls == PartsSpec::Calls::kNamed);
    CHECK(fixture.LastInput().parts->named == "g");
  }
  SECTION("some of them") {
    chat.mutable_tool_choice()->set_mode(weft::v1::TOOL_CHOICE_MODE_REQUIRED);
    chat.mutable_tool_choice()->add_allowed("g");
    fixture.Served(request);
    REQUIRE(fixture.LastInput().parts->tools.size() == 1);
    CHECK(fixture.LastInput().parts->tools[0].name == "g");
    CHECK(absl::StrContains(std::get<ChatPrompt>(fixture.LastInput().prompt).tools, "\"f\""));
  }
  SECTION("one call") {
    chat.set_parallel_tool_calls(false);
    CHECK(fixture.Served(request).names == std::vector<std::string>{"f"});
  }
  SECTION("no reasoning") {
    request.mutable_response()->set_omit_reasoning(true);
    const Whole whole = fixture.Served(request);
    CHECK(whole.reasoning.empty());
    CHECK(whole.text == "Let me see.");
    CHECK(whole.tokens == 12);
  }
}

TEST_CASE("Calls that have to fit do so without parts, too", "[router][grpc][parts]") {
  PartsFixture fixture;
  const auto held = [&](const GenerateRequest& request) {
    const Whole whole = fixture.Served(request);
    CHECK(absl::StrContains(whole.text, "<tool_call>"));
    const auto& parts = fixture.LastInput().parts;
    REQUIRE(parts != nullptr);
    CHECK_FALSE(parts->told_apart);
    CHECK(parts->HoldsCalls());
  };
  GenerateRequest request = Chat(/*parts=*/false);
  request.mutable_chat()->mutable_tool_choice()->set_mode(weft::v1::TOOL_CHOICE_MODE_REQUIRED);
  held(request);
  request.mutable_chat()->mutable_tool_choice()->set_function("f");
  held(request);
  held(Chat(/*parts=*/false, {kTool, kStrictTool}));
}

TEST_CASE("Choices of one request are told apart each by itself", "[router][grpc][parts]") {
  PartsFixture fixture;
  fixture.intake.SetScript({});
  GenerateRequest request = Chat();
  request.mutable_sampling()->set_n(2);
  grpc::ClientContext context;
  auto reader = fixture.stub->Generate(&context, request);
  const auto first = fixture.intake.WaitRequest(0);
  const auto second = fixture.intake.WaitRequest(1);
  Whole wholes[2];
  GenerateResponse response;
  const auto send = [&](size_t index, const std::vector<ResponseEvent>& events, size_t messages) {
    (index == 0 ? first : second)->Send(events);
    for (size_t i = 0; i < messages; ++i) {
      REQUIRE(reader->Read(&response));
      REQUIRE(response.output().index() == index);
      wholes[index].Add(response);
    }
  };
  send(0, {Started(), Token(1, "<think>")}, 1);
  send(1, {Started(), Token(2, "<tool_call>"), Token(3, "{\"name\": \"g\", ")}, 2);
  send(0, {Token(4, "hm</think>yes"), Finished(FinishReason::kEosToken, 2)}, 1);
  send(1, {Token(5, "\"arguments\": {}}</tool_call>"), Finished(FinishReason::kEosToken, 3)}, 1);
  CHECK_FALSE(reader->Read(&response));
  CHECK(reader->Finish().ok());
  CHECK(wholes[0].reasoning == "hm");
  CHECK(wholes[0].text == "yes");
  CHECK(wholes[0].finish.reason() == weft::v1::FINISH_REASON_EOS_TOKEN);
  CHECK(wholes[1].names == std::vector<std::string>{"g"});
  CHECK(wholes[1].arguments == std::vector<std::string>{"{}"});
  CHECK(wholes[1].finish.reason() == weft::v1::FINISH_REASON_TOOL_CALLS);
}

TEST_CASE("Wrong wishes for tools and parts are refused by name", "[router][grpc][parts]") {
  PartsFixture fixture;
  const auto refused = [&](const std::string& field,
                           const std::function<void(GenerateRequest*)>& change) {
    GenerateRequest request = Chat();
    change(&request);
    CHECK(fixture.Refused(request) == field);
  };
  const auto choice = [](GenerateRequest* request) {
    return request->mutable_chat()->mutable_tool_choice();
  };
  refused("chat.tool_choice", [&](auto* r) { choice(r)->set_function("h"); });
  refused("chat.tool_choice.function", [&](auto* r) { choice(r)->set_function("a b"); });
  refused("chat.tool_choice.function", [&](auto* r) { choice(r)->set_function(""); });
  refused("chat.tool_choice.mode",
          [&](auto* r) { choice(r)->set_mode(static_cast<weft::v1::ToolChoiceMode>(9)); });
  refused("chat.tool_choice.allowed[0]", [&](auto* r) { choice(r)->add_allowed("a b"); });
  refused("chat.tool_choice", [&](auto* r) { choice(r)->add_allowed("h"); });
  refused("chat.tool_choice.allowed", [&](auto* r) {
    choice(r)->set_function("f");
    choice(r)->add_allowed("f");
  });
  refused("chat.tool_choice.allowed", [&](auto* r) {
    choice(r)->set_mode(weft::v1::TOOL_CHOICE_MODE_NONE);
    choice(r)->add_allowed("f");
  });
  refused("chat.tool_choice.allowed", [&](auto* r) {
    for (int i = 0; i < 129; ++i) choice(r)->add_allowed("f");
  });
  refused("chat.tool_choice", [&](auto* r) {
    r->mutable_chat()->clear_tools();
    choice(r)->set_mode(weft::v1::TOOL_CHOICE_MODE_REQUIRED);
  });
  refused("response.echo_prompt", [](auto* r) { r->mutable_response()->set_echo_prompt(true); });
  refused("response.parts", [](auto* r) { r->set_text("x"); });
  refused("response.omit_reasoning", [](auto* r) {
    r->mutable_response()->set_parts(false);
    r->mutable_response()->set_omit_reasoning(true);
  });
  fixture.intake.SetParsers("none", "none");
  refused("chat.tool_choice", [&](auto* r) { choice(r)->set_function("f"); });
  refused("chat.tools", [](auto* r) { r->mutable_chat()->add_tools(kStrictTool); });
  CHECK(fixture.intake.request_count() == 0);
}

}  // namespace
}  // namespace weft::router
