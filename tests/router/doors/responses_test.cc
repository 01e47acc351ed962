// OpenAI's Responses at /v1/responses: what becomes of their items, tools and fields, and answers,
// whole and as events.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "tests/router/doors/doors_fixture.h"
#include "tests/router/doors/parts_script.h"

namespace weft::router {
namespace {

namespace json = boost::json;

constexpr char kPath[] = "/v1/responses";
constexpr char kTools[] =
    R"("tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},)"
    R"("strict":null},{"type":"function","name":"g","parameters":null}])";

std::string With(const std::string& more) {
  return absl::StrCat(R"({"input":"x")", more.empty() ? "" : ",", more, "}");
}

struct ResponsesFixture : DoorsFixture {
  ResponsesFixture() {
    intake.SetParsers("hermes", "think");
    intake.SetScript(CallingScript());
  }
  json::value Ask(const std::string& body) const {
    const RawResponse response = Post(kPath, body);
    INFO(body << "\n" << response.body);
    REQUIRE(response.status == 200);
    return json::parse(response.body);
  }
  std::vector<json::value> Stream(const std::string& more) const {
    const RawResponse response = Post(kPath, With(absl::StrCat(R"("stream":true,)", more)));
    REQUIRE(response.status == 200);
    return EventsOf(response.body);
  }
  // What the last good body became.
  const GenerateInput& Last() { return intake.WaitRequest(intake.request_count() - 1)->input(); }
  const ChatPrompt& Chat() { return std::get<ChatPrompt>(Last().prompt); }
};

// -- Answers -------------------------------------------------------------------------------------

TEST_CASE("A response has its items, its counts and what was asked for", "[router][responses]") {
  ResponsesFixture fixture;
  const json::value body = fixture.Ask(
      With(absl::StrCat(kTools, R"(,"instructions":"Be brief.","temperature":0.5,"store":true,)"
                                R"("metadata":{"a":"b"},"max_output_tokens":99)")));
  CHECK(absl::StartsWith(TextOf(body.at("id")), "resp_"));
  CHECK(body.at("object") == "response");
  CHECK(body.at("status") == "completed");
  CHECK(body.at("completed_at").as_int64() >= body.at("created_at").as_int64());
  CHECK(body.at("error").is_null());
  CHECK(body.at("incomplete_details").is_null());
  const json::array& output = body.at("output").as_array();
  REQUIRE(output.size() == 4);
  CHECK(output[0].at("type") == "reasoning");
  CHECK(output[0].at("content").at(0).at("text") == "So.");
  CHECK(output[0].at("summary").as_array().empty());
  CHECK(output[1].at("type") == "message");
  CHECK(output[1].at("role") == "assistant");
  CHECK(json::serialize(output[1].at("content")) ==
        R"([{"type":"output_text","annotations":[],"logprobs":[],"text":"Let me see."}])");
  CHECK(output[2].at("type") == "function_call");
  CHECK(output[2].at("name") == "f");
  CHECK(output[2].at("arguments") == "{\"a\": 1}");
  CHECK(absl::StartsWith(TextOf(output[2].at("call_id")), "call_"));
  CHECK(output[3].at("arguments") == "{}");
  for (const json::value& item : output) CHECK(item.at("status") == "completed");
  CHECK(json::serialize(body.at("usage")) ==
        R"({"input_tokens":3,"input_tokens_details":{"cached_tokens":1,"cache_write_tokens":0},)"
        R"("output_tokens":12,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":15})");
  CHECK(body.at("instructions") == "Be brief.");
  CHECK(body.at("temperature") == 0.5);
  CHECK(body.at("top_p") == 1);
  CHECK(body.at("max_output_tokens") == 99);
  CHECK(body.at("metadata").at("a") == "b");
  CHECK(body.at("tools").as_array().size() == 2);
  CHECK(body.at("tool_choice") == "auto");
  CHECK(body.at("parallel_tool_calls") == true);
  CHECK(body.at("text").at("format").at("type") == "text");
  CHECK(body.at("reasoning").at("effort").is_null());
  // Nothing is kept.
  CHECK(body.at("store") == false);
  CHECK(body.at("previous_response_id").is_null());
}

TEST_CASE("A response's events tell the whole response", "[router][responses]") {
  ResponsesFixture fixture;
  const std::vector<json::value> events = fixture.Stream(kTools);
  std::vector<std::string> kinds;
  std::vector<std::string> texts(4);
  for (size_t i = 0; i < events.size(); ++i) {
    CHECK(events[i].at("sequence_number") == static_cast<int64_t>(i));
    const std::string kind = TextOf(events[i].at("type"));
    if (events[i].as_object().contains("delta")) {
      texts[static_cast<size_t>(events[i].at("output_index").as_int64())] +=
          TextOf(events[i].at("delta"));
      if (kinds.back() == kind) continue;
    }
    kinds.push_back(kind);
  }
  const std::string call = "response.function_call_arguments.";
  const std::string added = "response.output_item.added", done = "response.output_item.done";
  const std::string part = "response.content_part.";
  CHECK(kinds == std::vector<std::string>{"response.created",
                                          "response.in_progress",  //
                                          added,
                                          part + "added",
                                          "response.reasoning_text.delta",
                                          "response.reasoning_text.done",
                                          part + "done",
                                          done,  //
                                          added,
                                          part + "added",
                                          "response.output_text.delta",
                                          "response.output_text.done",
                                          part + "done",
                                          done,  //
                                          added,
                                          call + "delta",
                                          call + "done",
                                          done,  //
                                          added,
                                          call + "delta",
                                          call + "done",
                                          done,  //
                                          "response.completed"});
  CHECK(texts == std::vector<std::string>{"So.", "Let me see.", "{\"a\": 1}", "{}"});
  const json::value& first = events.front().at("response");
  CHECK(first.at("status") == "in_progress");
  CHECK(first.at("output").as_array().empty());
  CHECK(first.at("usage").is_null());
  const json::value& last = events.back().at("response");
  CHECK(last.at("status") == "completed");
  CHECK(last.at("usage").at("output_tokens") == 12);
  for (const json::value& event : events) {
    if (TextOf(event.at("type")) != done) continue;
    CHECK(event.at("item") ==
          last.at("output").at(static_cast<size_t>(event.at("output_index").as_int64())));
  }
}

TEST_CASE("A response that was cut is incomplete, one without a word has an empty message",
          "[router][responses]") {
  ResponsesFixture fixture;
  fixture.intake.SetScript(
      {{Started(), Token(1, "One"), Finished(FinishReason::kLength, 1, " two")}});
  const json::value cut = fixture.Ask(With(""));
  CHECK(cut.at("status") == "incomplete");
  CHECK(cut.at("incomplete_details").at("reason") == "max_output_tokens");
  CHECK(cut.at("completed_at").is_null());
  CHECK(cut.at("output").at(0).at("status") == "incomplete");
  CHECK(cut.at("output").at(0).at("content").at(0).at("text") == "One two");
  CHECK(fixture.Stream(R"("n":1)").back().at("type") == "response.incomplete");
  fixture.intake.SetScript({{Started(), Finished(FinishReason::kEosToken, 1)}});
  const json::value empty = fixture.Ask(With(""));
  CHECK(empty.at("status") == "completed");
  CHECK(empty.at("output").at(0).at("content").at(0).at("text") == "");
}

TEST_CASE("Reasoning is left out where it is not wanted, and counted", "[router][responses]") {
  ResponsesFixture fixture;
  const json::value body = fixture.Ask(With(R"("include_reasoning":false)"));
  CHECK(body.at("output").at(0).at("type") == "message");
  CHECK(body.at("usage").at("output_tokens_details").at("reasoning_tokens") == 3);
}

TEST_CASE("A response that fails ends its stream with the error", "[router][responses]") {
  ResponsesFixture fixture;
  fixture.intake.SetScript(
      {{Started(), Token(1, "One")}, {FailedEvent{absl::InternalError("lost")}}});
  const std::vector<json::value> events = fixture.Stream(R"("n":1)");
  REQUIRE(events.size() > 2);
  const json::value& error = events[events.size() - 2];
  CHECK(error.at("type") == "error");
  CHECK(error.at("code") == "internal_error");
  CHECK(error.at("message") == "lost");
  CHECK(error.at("param").is_null());
  const json::value& failed = events.back();
  CHECK(failed.at("type") == "response.failed");
  CHECK(failed.at("sequence_number") == static_cast<int64_t>(events.size() - 1));
  CHECK(failed.at("response").at("status") == "failed");
  CHECK(failed.at("response").at("error").at("message") == "lost");
  CHECK(failed.at("response").at("output").at(0).at("status") == "incomplete");
  const RawResponse whole = fixture.Post(kPath, With(""));
  CHECK(whole.status == 500);
  CHECK(json::parse(whole.body).at("error").at("message") == "lost");
}

TEST_CASE("Log-probabilities of a response are those of its text", "[router][responses]") {
  ResponsesFixture fixture;
  fixture.intake.SetScript(
      {{Started(), TokenWithLogprob(1, "<think>", -1), TokenWithLogprob(2, "So.", -2),
        TokenWithLogprob(3, "</think>", -3)},
       {TokenWithLogprob(4, "Yes", -0.5f, {{9, -0.75f, "No"}}), TokenWithLogprob(5, ".", -0.25f),
        Finished(FinishReason::kEosToken, 5)}});
  const std::string want = R"([{"token":"Yes","logprob":-5E-1,"bytes":[89,101,115],"top_logprobs":)"
                           R"([{"token":"No","logprob":-7.5E-1,"bytes":[78,111]}]},)"
                           R"({"token":".","logprob":-2.5E-1,"bytes":[46],"top_logprobs":[]}])";
  const json::value body = fixture.Ask(With(R"("include":["message.output_text.logprobs"])"));
  CHECK(json::serialize(body.at("output").at(1).at("content").at(0).at("logprobs")) == want);
  json::array streamed;
  for (const json::value& event : fixture.Stream(R"("top_logprobs":1)")) {
    if (TextOf(event.at("type")) != "response.output_text.delta") continue;
    for (const json::value& one : event.at("logprobs").as_array()) streamed.push_back(one);
  }
  CHECK(json::serialize(streamed) == want);
  CHECK(fixture.Last().sampling.logprobs);
  CHECK(fixture.Last().sampling.top_logprobs == 1);
}

TEST_CASE("What was asked for is repeated up to a length", "[router][responses]") {
  ResponsesFixture fixture;
  const std::string longest(33u << 10, 'i');
  const json::value body = fixture.Ask(With(absl::StrCat(R"("instructions":")", longest, "\"")));
  CHECK(body.at("instructions").is_null());
  CHECK(fixture.Chat().messages[0].content == longest);
  // A number that no double holds would be no JSON.
  const json::value huge = fixture.Ask(
      With(R"("tools":[{"type":"function","name":"f","parameters":{"maximum":1e999}}])"));
  CHECK(huge.at("tools").as_array().empty());
}

// -- Requests ------------------------------------------------------------------------------------

TEST_CASE("Items become a conversation that templates know", "[router][responses]") {
  ResponsesFixture fixture;
  fixture.Ask(R"({"instructions":"Be brief.","input":[
    {"role":"developer","content":"D"},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"Weather?"},
      {"type":"input_text","text":"Soon."}]},
    {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text",
      "text":"Hm."}],"encrypted_content":null},
    {"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[
      {"type":"output_text","text":"One moment.","annotations":[],"logprobs":[]}]},
    {"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"a\": 1}",
      "status":"completed"},
    {"type":"function_call","call_id":"c2","name":"g","arguments":"","caller":null},
    {"type":"function_call_output","call_id":"c1","output":"21"},
    {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"ok"}]},
    {"role":"assistant","content":"It is 21."},
    {"role":"assistant","content":"Degrees."},
    {"type":"function_call","call_id":"c3","name":"f","arguments":"{}"},
    {"type":"reasoning","id":"rs_2","summary":[{"type":"summary_text","text":"In short."}]},
    {"role":"user","content":"And now?"}]})");
  const std::vector<ChatMessage>& messages = fixture.Chat().messages;
  REQUIRE(messages.size() == 10);
  CHECK(messages[0].role == "system");
  CHECK(messages[0].content == "Be brief.");
  CHECK(messages[1].role == "developer");
  CHECK(messages[2].content_parts == std::vector<std::string>{"Weather?", "Soon."});
  CHECK(messages[3].role == "assistant");
  CHECK(messages[3].reasoning_content == "Hm.");
  CHECK(messages[3].content == "One moment.");
  REQUIRE(messages[3].tool_calls.size() == 2);
  CHECK(messages[3].tool_calls[0].id == "c1");
  CHECK(messages[3].tool_calls[0].arguments == "{\"a\": 1}");
  CHECK(messages[3].tool_calls[1].arguments == "{}");
  CHECK(messages[4].role == "tool");
  CHECK(messages[4].tool_call_id == "c1");
  CHECK(messages[5].content == "ok");
  CHECK(messages[6].content == "It is 21.");
  CHECK(messages[7].content == "Degrees.");
  CHECK(messages[7].tool_calls.size() == 1);
  CHECK_FALSE(messages[7].no_content);
  // Reasoning that was cut off had nothing behind it.
  CHECK(messages[8].reasoning_content == "In short.");
  CHECK_FALSE(messages[8].no_content);
  CHECK(messages[9].content == "And now?");
  CHECK(fixture.Chat().add_generation_prompt);
}

TEST_CASE("Calls without a text have no content", "[router][responses]") {
  ResponsesFixture fixture;
  fixture.Ask(R"({"input":[{"role":"user","content":"x"},
    {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
    {"type":"function_call_output","call_id":"c","output":"y"}]})");
  CHECK(fixture.Chat().messages[1].no_content);
}

TEST_CASE("Tools of Responses become those that templates know", "[router][responses]") {
  ResponsesFixture fixture;
  fixture.Ask(With(kTools));
  CHECK(fixture.Chat().tools ==
        R"([{"type":"function","function":{"name":"f","description":"d",)"
        R"("parameters":{"type":"object"}}},{"type":"function","function":{"name":"g"}}])");
  const auto spec = [&fixture](const std::string& choice) {
    fixture.Ask(With(absl::StrCat(kTools, ",\"tool_choice\":", choice)));
    return fixture.Last().parts;
  };
  CHECK(spec(R"({"type":"function","name":"g"})")->named == "g");
  CHECK(spec("\"required\"")->calls == PartsSpec::Calls::kRequired);
  const auto allowed = spec(
      R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]})");
  CHECK(allowed->calls == PartsSpec::Calls::kRequired);
  REQUIRE(allowed->tools.size() == 1);
  CHECK(allowed->tools[0].name == "g");
  CHECK(spec("\"none\"")->tools.empty());
  CHECK(fixture.Chat().tools.empty());
}

TEST_CASE("Fields of Responses reach the engine", "[router][responses]") {
  ResponsesFixture fixture;
  fixture.Ask(With(
      R"("max_output_tokens":7,"temperature":0.5,"top_p":0.5,"top_k":3,"seed":9,"stop":["a"],)"
      R"("min_tokens":2,"reasoning":{"effort":"low","summary":"auto"},"truncation":"disabled",)"
      R"("chat_template_kwargs":{"enable_thinking":false},"background":false,"user":"u",)"
      R"("text":{"format":{"type":"json_schema","name":"n","strict":true,)"
      R"("schema":{"type":"object"}},"verbosity":"medium"},"include":[],"prompt_cache_key":"k")"));
  const GenerateInput& input = fixture.Last();
  CHECK(input.max_tokens == 7);
  CHECK(input.sampling.temperature == 0.5f);
  CHECK(input.sampling.top_k == 3);
  CHECK(input.sampling.min_tokens == 2);
  CHECK(input.seed == 9);
  CHECK(input.stop_sequences == std::vector<std::string>{"a"});
  REQUIRE(input.grammar.has_value());
  CHECK(input.grammar->closed_objects);
  CHECK(input.grammar_field == "text.format");
  CHECK(fixture.Chat().reasoning_effort == "low");
  CHECK(fixture.Chat().template_kwargs == R"({"enable_thinking":false})");
}

TEST_CASE("Unknown fields of Responses are named with their path", "[router][responses]") {
  ResponsesFixture fixture;
  const RawResponse response = fixture.Post(
      kPath, R"({"input":[{"role":"user","content":[{"type":"input_text","text":"x","a":1}],)"
             R"("b":2}],"tools":[{"type":"function","name":"f","c":3}],"text":{"d":4},"e":5})");
  CHECK(response.status == 200);
  CHECK(response.headers.at("x-weft-ignored-fields") ==
        "input[0].content[0].a, input[0].b, tools[0].c, text.d, e");
}

TEST_CASE("Bodies of Responses are refused by name", "[router][responses]") {
  ResponsesFixture fixture;
  const auto refused = [&fixture](const std::string& body, const std::string& param) {
    const RawResponse response = fixture.Post(kPath, body);
    INFO(body << " " << response.body);
    CHECK(response.status == 400);
    CHECK(absl::StrContains(response.body, absl::StrCat("\"param\":\"", param, "\"")));
  };
  const auto item = [&](const std::string& members, const std::string& field) {
    refused(absl::StrCat(R"({"input":[{)", members, "}]}"), absl::StrCat("input[0]", field));
  };
  refused("{}", "input");
  refused(R"({"input":""})", "input");
  refused(R"({"input":1})", "input");
  refused(R"({"input":[]})", "input");
  refused(R"({"input":["x"]})", "input[0]");
  // A system message more than a conversation may have.
  std::string items;
  for (int i = 0; i < 1024; ++i) {
    absl::StrAppend(&items, i == 0 ? "" : ",", R"({"role":"user","content":""})");
  }
  refused(absl::StrCat(R"({"instructions":"i","input":[)", items, "]}"), "input");
  item("", ".type");
  item(R"("id":"msg_1")", ".type");
  item(R"("type":"item_reference","id":"msg_1")", ".type");
  item(R"("role":"tool","content":"x")", ".role");
  item(R"("role":"user")", ".content");
  item(R"("role":"user","content":1)", ".content");
  item(R"("role":"user","content":[1])", ".content[0]");
  item(R"("role":"user","content":[{"type":"input_image","image_url":"u"}])", ".content[0].type");
  item(R"("role":"user","content":[{"type":"input_text"}])", ".content[0].text");
  item(R"("type":"function_call","name":"f","arguments":"{}")", ".call_id");
  item(R"("type":"function_call","call_id":"c","arguments":"{}")", ".name");
  item(R"("type":"function_call","call_id":"c","name":"f")", ".arguments");
  item(R"("type":"function_call","call_id":"c","name":"f","arguments":"[")", ".arguments");
  item(R"("type":"function_call","call_id":"c","name":"f","arguments":"{}","namespace":"n")",
       ".namespace");
  item(R"("type":"function_call_output","output":"x")", ".call_id");
  item(R"("type":"function_call_output","call_id":"c")", ".output");
  item(R"("type":"reasoning","encrypted_content":"x")", ".encrypted_content");
  item(R"("type":"reasoning","content":[{"type":"input_text","text":"x"}])", ".content[0].type");
  for (const char* name : {"previous_response_id", "conversation", "prompt", "background",
                           "max_tool_calls", "truncation", "messages", "max_tokens", "resume"}) {
    refused(With(absl::StrCat("\"", name, "\":\"quux\"")), name);
  }
  refused(With(R"("tools":[{"type":"web_search"}])"), "tools[0].type");
  refused(With(R"("tools":[{"name":"f"}])"), "tools[0].type");
  refused(With(R"("tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}])"),
          "tools[1].name");
  refused(With(R"("tools":[{"type":"function","name":"f","async":true}])"), "tools[0].async");
  refused(With(R"("tool_choice":"required")"), "tool_choice");
  refused(With(R"("tool_choice":{"type":"file_search"})"), "tool_choice.type");
  refused(With(R"("tool_choice":{"type":"function"})"), "tool_choice.name");
  refused(With(R"("tool_choice":{"type":"allowed_tools","tools":[]})"), "tool_choice.tools");
  refused(With(R"("text":{"format":{"type":"xml"}})"), "text.format.type");
  refused(With(R"("text":{"verbosity":"low"})"), "text.verbosity");
  refused(With(R"("reasoning":{"effort":"much"})"), "reasoning.effort");
  refused(With(R"("reasoning":{"summary":"detailed"})"), "reasoning.summary");
  refused(With(R"("include":["file_search_call.results"])"), "include");
  refused(With(R"("metadata":{"a":1})"), "metadata");
  refused(With(R"("stream_options":{})"), "stream_options");
  refused(With(R"("max_output_tokens":0)"), "max_output_tokens");
  CHECK(fixture.intake.request_count() == 0);
}

}  // namespace
}  // namespace weft::router
