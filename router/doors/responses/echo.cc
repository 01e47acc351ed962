#include "router/doors/responses/echo.h"

#include "absl/strings/string_view.h"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "router/doors/http/json.h"

namespace weft::router {
namespace {

// The JSON of a member; of one that is not there, null, or too long `otherwise`. So of one with a
// number that no double holds, which would be written as a word that is no JSON.
std::string JsonOf(const boost::json::object& body, absl::string_view name,
                   absl::string_view otherwise) {
  const boost::json::value* value = body.if_contains({name.data(), name.size()});
  std::string text;
  if (value != nullptr && !value->is_null()) text = boost::json::serialize(*value);
  const bool good = !text.empty() && text.size() <= kEchoBytesMax && ParseJson(text).ok();
  return good ? text : std::string(otherwise);
}

}  // namespace

std::string EchoOfRequest(const boost::json::object& body, const GenerateInput& input,
                          bool parallel_calls, const std::string& reasoning_effort) {
  std::string echo;
  JsonWriter json(&echo);
  const auto as_given = [&](const char* name, absl::string_view otherwise) {
    json.Key(name).Raw(JsonOf(body, name, otherwise));
  };
  for (const char* name : {"instructions", "user", "prompt_cache_key", "safety_identifier"}) {
    as_given(name, "null");
  }
  as_given("metadata", "{}");
  as_given("tools", "[]");
  as_given("tool_choice", "\"auto\"");
  json.Key("parallel_tool_calls").Bool(parallel_calls);
  json.Key("temperature").Float(input.sampling.temperature);
  json.Key("top_p").Float(input.sampling.top_p);
  json.Key("top_logprobs").Unsigned(input.sampling.top_logprobs);
  json.Key("max_output_tokens");
  if (input.max_tokens.has_value()) {
    json.Unsigned(*input.max_tokens);
  } else {
    json.Null();
  }
  const boost::json::value* text = body.if_contains("text");
  json.Key("text").BeginObject().Key("format");
  constexpr absl::string_view kPlain = R"({"type":"text"})";
  json.Raw(text != nullptr && text->is_object() ? JsonOf(text->get_object(), "format", kPlain)
                                                : kPlain);
  json.Key("verbosity").String("medium").EndObject();
  json.Key("reasoning").BeginObject().Key("effort");
  if (reasoning_effort.empty()) {
    json.Null();
  } else {
    json.String(reasoning_effort);
  }
  json.Key("summary").Null().EndObject();
  // Of what is never otherwise.
  json.Key("background").Bool(false).Key("store").Bool(false);
  json.Key("previous_response_id").Null().Key("max_tool_calls").Null();
  json.Key("service_tier").String("default").Key("truncation").String("disabled");
  return echo;
}

}  // namespace weft::router
