// Fields that every HTTP door refuses by name: wrong types, out of range, not served.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/router/doors/field_bodies.h"

namespace weft::router {
namespace {

// Refused with these values on every door that has common parameters.
constexpr Case kCommonWrong[] = {
    {"top_k", "-2"},
    {"top_k", "1.5"},
    {"top_k", "\"3\""},
    {"top_k", "true"},
    {"top_k", "99999999999999999999"},
    {"top_p", "0"},
    {"top_p", "1.01"},
    {"top_p", "\"1\""},
    {"top_p", "[]"},
    {"top_p", "1e-60"},
    {"min_p", "-0.1"},
    {"min_p", "1.1"},
    {"typical_p", "0"},
    {"typical_p", "2"},
    {"repetition_penalty", "0"},
    {"repetition_penalty", "0.009"},
    {"repetition_penalty", "1e-37"},
    {"repetition_penalty", "10.5"},
    {"presence_penalty", "-2.1"},
    {"presence_penalty", "{}"},
    {"frequency_penalty", "2.1"},
    {"logit_bias", "[]"},
    {"logit_bias", "{\"a\":1}"},
    {"logit_bias", "{\"-1\":1}"},
    {"logit_bias", "{\"01\":1}"},
    {"logit_bias", "{\"1048576\":1}"},
    {"logit_bias", "{\"1\":101}"},
    {"logit_bias", "{\"1\":\"1\"}"},
    {"seed", "1.5"},
    {"seed", "\"1\""},
    {"seed", "18446744073709551616"},
    {"ignore_eos", "1"},
    {"priority", "101"},
    {"priority", "-101"},
    {"add_special_tokens", "\"yes\""},
    {"stop", "5"},
    {"stop", "\"\""},
    {"stop", "[1]"},
    {"stop", "[\"\"]"},
    {"stop", R"(["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"},
    {"temperature", "-0.1"},
    {"temperature", "101"},
    {"temperature", "\"hot\""},
    {"best_of", "0"},
    {"adapter_id", "\"x\""},
    {"grammar", "5"},
    {"stop_token_ids", "[-1]"},
    {"stop_token_ids", "[\"a\"]"},
    {"stop_token_ids", "7"},
    {"skip_special_tokens", "1"},
    {"cache_salt", "5"},
    {"deadline_ms", "0"},
    {"deadline_ms", "86400001"},
    {"length_penalty", "2"},
};

TEST_CASE("Common fields out of range or of the wrong type are refused by name",
          "[router][fields]") {
  DoorsFixture fixture;
  for (const Body body : {Body::kTgiParameters, Body::kChat, Body::kCompletion}) {
    for (const Case& wrong : kCommonWrong) {
      CheckRefused(fixture, body, wrong.field,
                   With(body, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
    }
    const std::string long_stop(kStopSequenceBytesMax + 1, 's');
    CheckRefused(fixture, body, "stop", With(body, absl::StrCat("\"stop\":[\"", long_stop, "\"]")));
    std::string many = "\"logit_bias\":{";
    for (size_t i = 0; i <= kLogitBiasMax; ++i)
      absl::StrAppend(&many, i ? "," : "", "\"", i, "\":1");
    CheckRefused(fixture, body, "logit_bias", With(body, many + "}"));
  }
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("TGI's own fields are refused by name when they are wrong", "[router][fields]") {
  DoorsFixture fixture;
  constexpr Case kWrong[] = {{"temperature", "0"},
                             {"max_new_tokens", "0"},
                             {"max_new_tokens", "-1"},
                             {"max_new_tokens", "\"5\""},
                             {"max_new_tokens", "1e9"},
                             {"truncate", "0"},
                             {"do_sample", "1"},
                             {"return_full_text", "\"true\""},
                             {"details", "0"},
                             {"top_n_tokens", "21"},
                             {"top_n_tokens", "-1"},
                             {"watermark", "1"},
                             {"decoder_input_details", "1"},
                             {"num_beams", "4"},
                             {"min_new_tokens", "-1"}};
  for (const Case& wrong : kWrong) {
    CheckRefused(fixture, Body::kTgiParameters, wrong.field,
                 With(Body::kTgiParameters, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
  }
  constexpr Case kTop[] = {
      {"stream", "true"}, {"stream", "0"}, {"parameters", "[]"}, {"adapter_id", "\"x\""}};
  for (const Case& wrong : kTop) {
    CheckRefused(fixture, Body::kTgi, wrong.field,
                 With(Body::kTgi, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
  }
  for (const char* text : {"{}", R"({"inputs":null})", R"({"inputs":""})", R"({"inputs":7})",
                           R"({"inputs":[]})", R"({"inputs":["a"]})", R"({"inputs":[-1]})",
                           R"({"inputs":[1.5]})", R"({"inputs":[1048576]})"}) {
    CheckRefused(fixture, Body::kTgi, "inputs", text);
  }
  CHECK(fixture.Post("/tokenize", "{}").status == 422);
  CHECK(fixture.Post("/tokenize", R"({"inputs":1})").status == 422);
  CHECK(fixture.Post("/tokenize", R"({"inputs":"a","add_special_tokens":3})").status == 422);
  CHECK(fixture.Post("/chat_tokenize", "{}").status == 422);
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("OpenAI's fields are refused by name when they are wrong or not served",
          "[router][fields]") {
  DoorsFixture fixture;
  constexpr Case kBoth[] = {{"n", "129"},
                            {"n", "\"1\""},
                            {"max_tokens", "0"},
                            {"max_tokens", "1.5"},
                            {"model", "5"},
                            {"stream", "\"true\""},
                            {"stream_options", "{\"include_usage\":true}"},
                            {"stream_options", "[]"},
                            {"store", "true"},
                            {"service_tier", "\"flex\""},
                            {"min_tokens", "-1"},
                            {"prompt_logprobs", "-1"},
                            {"prompt_logprobs", "21"},
                            {"prompt_logprobs", "true"},
                            {"guided_json", "5"},
                            {"guided_regex", "\"\""},
                            {"guided_choice", "[]"},
                            {"structured_outputs", "5"},
                            {"use_beam_search", "true"},
                            {"return_token_ids", "1"},
                            {"truncate_prompt_tokens", "0"},
                            {"truncate_prompt_tokens", "-2"},
                            {"include_stop_str_in_output", "1"},
                            {"logits_processors", "[\"x\"]"},
                            {"allowed_token_ids", "[-1]"},
                            {"bad_words", "[\"\"]"},
                            {"bad_words", "\"a\""},
                            {"functions", "[{}]"},
                            {"function_call", "{\"name\":\"f\"}"},
                            {"audio", "{}"},
                            {"modalities", "[\"audio\"]"},
                            {"prediction", "{}"},
                            {"verbosity", "\"low\""},
                            {"web_search_options", "{}"},
                            {"moderation", "{}"},
                            {"suffix", "\"x\""}};
  for (const Body body : {Body::kChat, Body::kCompletion}) {
    for (const Case& wrong : kBoth) {
      CheckRefused(fixture, body, wrong.field,
                   With(body, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
    }
    CheckRefused(fixture, body, "response_format.type",
                 With(body, R"("response_format":{"type":"xml"})"));
    CheckRefused(fixture, body, "stream_options.include_usage",
                 With(body, R"("stream":true,"stream_options":{"include_usage":1})"));
    CheckRefused(fixture, body, "stream_options.include_obfuscation",
                 With(body, R"("stream":true,"stream_options":{"include_obfuscation":true})"));
  }
  constexpr Case kChat[] = {
      {"max_completion_tokens", "0"}, {"logprobs", "1"}, {"top_logprobs", "2"},
      {"top_logprobs", "21"},         {"echo", "true"},  {"add_generation_prompt", "0"}};
  for (const Case& wrong : kChat) {
    CheckRefused(fixture, Body::kChat, wrong.field,
                 With(Body::kChat, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
  }
  CheckRefused(fixture, Body::kChat, "max_tokens",
               With(Body::kChat, R"("max_tokens":1,"max_completion_tokens":2)"));
  constexpr Case kCompletion[] = {{"messages", "[]"},
                                  {"logprobs", "true"},
                                  {"logprobs", "21"},
                                  {"logprobs", "-1"},
                                  {"echo", "1"},
                                  {"tools", "[{\"type\":\"function\"}]"},
                                  {"tool_choice", "\"required\""},
                                  {"reasoning_effort", "\"high\""},
                                  {"chat_template", "\"x\""},
                                  {"chat_template_kwargs", "{\"a\":1}"},
                                  {"continue_final_message", "true"},
                                  {"documents", "[{}]"}};
  for (const Case& wrong : kCompletion) {
    CheckRefused(fixture, Body::kCompletion, wrong.field,
                 With(Body::kCompletion, absl::StrCat("\"", wrong.field, "\":", wrong.value)));
  }
  // They are told apart from the answer's in whole answers alone.
  CheckRefused(fixture, Body::kCompletion, "echo",
               With(Body::kCompletion, R"("echo":true,"logprobs":0,"stream":true)"));
  for (const Body body : {Body::kChat, Body::kCompletion}) {
    CheckRefused(fixture, body, "prompt_logprobs",
                 With(body, R"("prompt_logprobs":0,"stream":true)"));
  }
  for (const char* text :
       {"{}", R"({"prompt":null})", R"({"prompt":""})", R"({"prompt":5})", R"({"prompt":[]})",
        R"({"prompt":[[]]})", R"({"prompt":[[[1]]]})", R"({"prompt":[-5]})", R"({"prompt":[""]})",
        R"({"prompt":[1,"a"]})", R"({"prompt":{}})"}) {
    CheckRefused(fixture, Body::kCompletion, "prompt", text);
  }
  CHECK(fixture.intake.request_count() == 0);
}

TEST_CASE("Bodies that are no JSON objects, or no UTF-8, are refused on every door",
          "[router][fields]") {
  DoorsFixture fixture;
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "[";
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[1]"), std::string("null"),
        std::string("{\"prompt\":\"x\"} x"), std::string("{\"prompt\":\"\xff\"}"),
        std::string("{\"prompt\":\"\\ud800\"}"), std::string("{\"prompt\":\"\xed\xa0\x80\"}"),
        std::string("{'prompt':'x'}"), std::string("{\"prompt\":\"x\",}"),
        "{\"prompt\":" + deep + "}", std::string("{\"prompt\":NaN}")}) {
    INFO(body);
    CHECK(fixture.Post("/v1/completions", body).status == 400);
    CHECK(fixture.Post("/v1/chat/completions", body).status == 400);
    for (const char* path : {"/", "/generate", "/generate_stream", "/tokenize", "/chat_tokenize"}) {
      const RawResponse response = fixture.Post(path, body);
      CHECK(response.status == 422);
      CHECK(absl::EndsWith(response.body, R"("error_type":"validation"})"));
    }
  }
  CHECK(fixture.intake.request_count() == 0);
}

}  // namespace
}  // namespace weft::router
