// Fields that every HTTP door takes: null and neutral values, unknown ones, and what the good ones
// become.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/router/doors/field_bodies.h"

namespace weft::router {
namespace {

constexpr const char* kChatNulls[] = {"n",
                                      "best_of",
                                      "tools",
                                      "tool_choice",
                                      "response_format",
                                      "service_tier",
                                      "store",
                                      "user",
                                      "metadata",
                                      "logit_bias",
                                      "stop",
                                      "seed",
                                      "stream_options",
                                      "logprobs",
                                      "top_logprobs",
                                      "max_tokens",
                                      "max_completion_tokens",
                                      "audio",
                                      "modalities",
                                      "prediction",
                                      "functions",
                                      "function_call",
                                      "parallel_tool_calls",
                                      "reasoning_effort",
                                      "documents",
                                      "chat_template",
                                      "chat_template_kwargs",
                                      "continue_final_message",
                                      "min_tokens",
                                      "stop_token_ids",
                                      "prompt_logprobs",
                                      "guided_json",
                                      "model",
                                      "stream"};

TEST_CASE("Null and neutral values are accepted", "[router][fields]") {
  DoorsFixture fixture;
  const auto good = [&](Body body, const std::string& field) {
    INFO(field);
    const RawResponse response = fixture.Post(PathOf(body), With(body, field));
    CHECK(response.status == 200);
    CHECK(response.headers.count("x-weft-ignored-fields") == 0);
  };
  for (const char* name : {"best_of",
                           "temperature",
                           "top_k",
                           "top_p",
                           "typical_p",
                           "repetition_penalty",
                           "frequency_penalty",
                           "presence_penalty",
                           "max_new_tokens",
                           "return_full_text",
                           "stop",
                           "truncate",
                           "watermark",
                           "details",
                           "decoder_input_details",
                           "seed",
                           "top_n_tokens",
                           "grammar",
                           "adapter_id",
                           "do_sample",
                           "logit_bias",
                           "min_p",
                           "ignore_eos",
                           "priority"}) {
    good(Body::kTgiParameters, absl::StrCat("\"", name, "\":null"));
  }
  good(Body::kTgi, R"("adapter_id":null)");
  good(Body::kTgiParameters,
       R"("best_of":1,"watermark":false,"decoder_input_details":false,"top_k":0,"top_p":1,)"
       R"("typical_p":1.0,"stop":[],"max_new_tokens":16.0)");
  for (const char* name : kChatNulls) {
    good(Body::kChat, absl::StrCat("\"", name, "\":null"));
  }
  for (const char* name : kChatNulls) {
    const bool unknown =
        name == std::string("top_logprobs") || name == std::string("max_completion_tokens");
    if (!unknown) good(Body::kCompletion, absl::StrCat("\"", name, "\":null"));
  }
  good(Body::kChat,
       R"("n":1,"best_of":1,"tools":[],"tool_choice":"none","response_format":{"type":"text"},)"
       R"("service_tier":"default","store":false,"user":"u","metadata":{"a":"b"},)"
       R"("modalities":["text"],"parallel_tool_calls":true,"min_tokens":0,"stop_token_ids":[],)"
       R"("length_penalty":1.0,"skip_special_tokens":true,"verbosity":"medium","top_logprobs":0,)"
       R"("logprobs":false,"truncate_prompt_tokens":-1,"max_tokens":5,"max_completion_tokens":5)");
  good(Body::kCompletion,
       R"("suffix":"","best_of":1,"n":1,"echo":false,"logprobs":null,"user":"u",)"
       R"("response_format":{"type":"text"},"tools":[],"functions":[],"tool_choice":"auto",)"
       R"("function_call":"none","parallel_tool_calls":true,"modalities":["text"],)"
       R"("reasoning_effort":"none","verbosity":"medium","documents":[])");
}

TEST_CASE("Unknown fields are ignored openly, and refused when the server is strict",
          "[router][fields]") {
  DoorsFixture fixture;
  const auto ignored = [&fixture](const char* door) {
    const std::string series =
        absl::StrCat("weft_request_ignored_fields_total{door=\"", door, "\"} ");
    const std::string text = fixture.Get("/metrics").body;
    const size_t at = text.find(series);
    REQUIRE(at != std::string::npos);
    return std::atoi(text.c_str() + at + series.size());
  };
  const int tgi_before = ignored("tgi");
  const int openai_before = ignored("openai");
  const RawResponse chat = fixture.Post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x","mood":1}],"foo":1,"b\u0001r\n":2})");
  CHECK(chat.status == 200);
  CHECK(chat.headers.at("x-weft-ignored-fields") == "messages[0].mood, foo, b?r?");
  CHECK(fixture.Post("/generate", R"({"inputs":"x","foo":1,"parameters":{"bar":2}})")
            .headers.at("x-weft-ignored-fields") == "foo, parameters.bar");
  CHECK(fixture.Post("/v1/completions", R"({"prompt":"x","stream":true,"stream_options":{"x":1}})")
            .headers.at("x-weft-ignored-fields") == "stream_options.x");
  CHECK(fixture.Post("/chat_tokenize", R"({"messages":[{"role":"user","content":"x"}],"foo":1})")
            .headers.at("x-weft-ignored-fields") == "foo");
  // Of each door the fields named above.
  CHECK(ignored("openai") == openai_before + 4);
  CHECK(ignored("tgi") == tgi_before + 3);

  DoorOptions options;
  options.strict_fields = true;
  DoorsFixture strict({}, options);
  CheckRefused(strict, Body::kChat, "foo", With(Body::kChat, "\"foo\":1"));
  CheckRefused(strict, Body::kTgiParameters, "foo", With(Body::kTgiParameters, "\"foo\":1"));
  CHECK(strict.intake.request_count() == 0);
}

// -- What good fields become ---------------------------------------------------------------------

TEST_CASE("TGI's parameters reach the engine", "[router][fields]") {
  DoorsFixture fixture;
  fixture.Post("/generate",
               R"({"inputs":"Hi","parameters":{"max_new_tokens":7,"temperature":0.5,"top_k":3,)"
               R"("top_p":0.9,"min_p":0.1,"typical_p":0.8,"repetition_penalty":1.1,)"
               R"("presence_penalty":0.2,"frequency_penalty":-0.3,"logit_bias":{"9":1,"2":-1.5},)"
               R"("seed":18446744073709551615,"stop":["a","b"],"truncate":5,"ignore_eos":true,)"
               R"("priority":-4,"add_special_tokens":false,"details":true,"top_n_tokens":2}})");
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  CHECK(std::get<std::string>(input.prompt) == "Hi");
  CHECK(input.max_tokens == 7u);
  CHECK(input.sampling.temperature == 0.5f);
  CHECK(input.sampling.top_k == 3);
  CHECK(input.sampling.top_p == 0.9f);
  CHECK(input.sampling.min_p == 0.1f);
  CHECK(input.sampling.typical_p == 0.8f);
  CHECK(input.sampling.repetition_penalty == 1.1f);
  CHECK(input.sampling.presence_penalty == 0.2f);
  CHECK(input.sampling.frequency_penalty == -0.3f);
  CHECK(input.sampling.logit_bias == std::vector<std::pair<TokenId, float>>{{2, -1.5f}, {9, 1.0f}});
  CHECK(input.seed == 18446744073709551615u);
  CHECK(input.stop_sequences == std::vector<std::string>{"a", "b"});
  CHECK(input.truncate_prompt_tokens == 5u);
  CHECK(input.ignore_eos);
  CHECK(input.priority == -4);
  CHECK_FALSE(input.add_special_tokens);
  CHECK(input.sampling.logprobs);
  CHECK(input.sampling.top_logprobs == 2);
}

TEST_CASE("TGI samples only when it is told to", "[router][fields]") {
  DoorsFixture fixture;
  size_t count = 0;
  const auto temperature = [&](const std::string& parameters) {
    fixture.Post("/generate", With(Body::kTgiParameters, parameters));
    return fixture.intake.WaitRequest(count++)->input().sampling.temperature;
  };
  CHECK(temperature("") == 0.0f);
  CHECK(temperature(R"("do_sample":false)") == 0.0f);
  CHECK(temperature(R"("temperature":1.0)") == 0.0f);
  CHECK(temperature(R"("do_sample":true)") == 1.0f);
  CHECK(temperature(R"("do_sample":true,"temperature":0.3)") == 0.3f);
  CHECK(temperature(R"("temperature":0.7)") == 0.7f);
  CHECK(temperature(R"("top_k":5)") == 1.0f);
  CHECK(temperature(R"("top_p":0.5,"do_sample":false)") == 1.0f);
  CHECK(temperature(R"("top_p":1.0,"top_k":0)") == 0.0f);
}

TEST_CASE("What a request does not say of sampling is the server's default", "[router][fields]") {
  DoorsFixture fixture;
  SamplingParams defaults;
  defaults.temperature = 0.6f;
  defaults.top_k = 20;
  defaults.top_p = 0.9f;
  defaults.min_p = 0.05f;
  defaults.typical_p = 0.8f;
  defaults.repetition_penalty = 1.1f;
  fixture.intake.SetSamplingDefaults(defaults);
  size_t count = 0;
  const auto sampling = [&](Body body, const std::string& fields) {
    fixture.Post(PathOf(body), With(body, fields));
    return fixture.intake.WaitRequest(count++)->input().sampling;
  };
  for (const Body body : {Body::kChat, Body::kCompletion}) {
    const SamplingParams silent = sampling(body, "");
    CHECK(silent.temperature == 0.6f);
    CHECK(silent.top_k == 20);
    CHECK(silent.top_p == 0.9f);
    CHECK(silent.min_p == 0.05f);
    CHECK(silent.typical_p == 0.8f);
    CHECK(silent.repetition_penalty == 1.1f);
    const SamplingParams said =
        sampling(body, R"("temperature":1,"top_k":-1,"top_p":1,"min_p":0,"typical_p":1,)"
                       R"("repetition_penalty":1)");
    CHECK(said.temperature == 1.0f);
    CHECK(said.top_k == 0);
    CHECK(said.top_p == 1.0f);
    CHECK(said.min_p == 0.0f);
    CHECK(said.typical_p == 1.0f);
    CHECK(said.repetition_penalty == 1.0f);
  }
  // TGI's routes stay greedy until they are told to sample.
  CHECK(sampling(Body::kTgiParameters, "").temperature == 0.0f);
  CHECK(sampling(Body::kTgiParameters, R"("do_sample":true)").temperature == 0.6f);
  CHECK(sampling(Body::kTgiParameters, R"("top_k":5)").temperature == 0.6f);
  CHECK(sampling(Body::kTgiParameters, R"("do_sample":true)").top_k == 20);
}

TEST_CASE("Prompts may be text or token ids", "[router][fields]") {
  DoorsFixture fixture;
  using Ids = std::vector<TokenId>;
  fixture.Post("/generate", R"({"inputs":[1,2,3],"parameters":{"return_full_text":true}})");
  CHECK(std::get<Ids>(fixture.intake.WaitRequest(0)->input().prompt) == Ids{1, 2, 3});
  CHECK(fixture.intake.WaitRequest(0)->input().echo_prompt);
  fixture.Post("/v1/completions", R"({"prompt":[4,5],"echo":true})");
  CHECK(std::get<Ids>(fixture.intake.WaitRequest(1)->input().prompt) == Ids{4, 5});
  CHECK(fixture.intake.WaitRequest(1)->input().echo_prompt);
  CHECK(fixture.intake.WaitRequest(1)->input().max_tokens == 16u);
  fixture.Post("/v1/completions", R"({"prompt":[[6]]})");
  CHECK(std::get<Ids>(fixture.intake.WaitRequest(2)->input().prompt) == Ids{6});
  fixture.Post("/v1/completions", R"({"prompt":["one"]})");
  CHECK(std::get<std::string>(fixture.intake.WaitRequest(3)->input().prompt) == "one");
}

TEST_CASE("Chat messages and OpenAI's parameters reach the engine", "[router][fields]") {
  DoorsFixture fixture;
  fixture.Post(
      "/v1/chat/completions",
      R"({"model":"fake/model","messages":[{"role":"developer","content":"s"},)"
      R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":"ok"}],"max_completion_tokens":9,"temperature":0,)"
      R"("top_k":-1,"seed":-1,"stop":"end","logprobs":true,"top_logprobs":4,)"
      R"("include_stop_str_in_output":true,"add_generation_prompt":false,)"
      R"("truncate_prompt_tokens":8})");
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  const auto& chat = std::get<ChatPrompt>(input.prompt);
  REQUIRE(chat.messages.size() == 3);
  CHECK(chat.messages[0].role == "developer");
  CHECK(chat.messages[1].content_parts == std::vector<std::string>{"a", "b"});
  CHECK(chat.messages[2].role == "assistant");
  CHECK_FALSE(chat.add_generation_prompt);
  CHECK(input.max_tokens == 9u);
  CHECK(input.sampling.temperature == 0.0f);
  CHECK(input.sampling.top_k == 0);
  CHECK(input.seed == ~uint64_t{0});
  CHECK(input.stop_sequences == std::vector<std::string>{"end"});
  CHECK(input.include_stop_sequence);
  CHECK(input.sampling.logprobs);
  CHECK(input.sampling.top_logprobs == 4);
  CHECK(input.truncate_prompt_tokens == 8u);
  fixture.Post("/v1/chat/completions", With(Body::kChat, ""));
  const GenerateInput& plain = fixture.intake.WaitRequest(1)->input();
  CHECK(plain.sampling.temperature == 1.0f);
  CHECK_FALSE(plain.max_tokens.has_value());
  CHECK_FALSE(plain.seed.has_value());
}

TEST_CASE("Of duplicate keys the last one counts", "[router][fields]") {
  DoorsFixture fixture;
  fixture.Post("/v1/completions", R"({"prompt":"a","max_tokens":3,"max_tokens":4,"prompt":"b"})");
  const GenerateInput& input = fixture.intake.WaitRequest(0)->input();
  CHECK(std::get<std::string>(input.prompt) == "b");
  CHECK(input.max_tokens == 4u);
}

}  // namespace
}  // namespace weft::router
