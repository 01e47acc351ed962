// Times of the text path, printed; hidden from the normal run: weft_text_test "[.bench]".

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <functional>

#include "router/text/chat_template.h"
#include "router/text/detokenizer.h"
#include "router/text/model_text.h"
#include "router/text/stop_matcher.h"
#include "tests/support/demo_model.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

// Best of `rounds`, microseconds.
double BestUs(int rounds, const std::function<void()>& body) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

TEST_CASE("Times of the text path", "[.bench]") {
  const std::string path = test::DemoModelOrSkip();
  std::printf("load tokenizer from GGUF: %.1f ms\n",
              BestUs(10, [&] { REQUIRE(Tokenizer::FromModel(path).ok()); }) / 1e3);
  std::printf("load model text from GGUF: %.1f ms\n",
              BestUs(10, [&] { REQUIRE(LoadModelText(path).ok()); }) / 1e3);

  const Tokenizer& tokenizer = DemoTokenizer();
  std::string prompt;
  while (tokenizer.Encode(prompt, false)->ids.size() < 2000) {
    for (const boost::json::value& c : Golden("demo").as_array()) {
      if (prompt.size() < 10'000) prompt += Text(c.at("text")) + "The model reads plain text. ";
    }
  }
  const auto ids = tokenizer.Encode(prompt, false)->ids;
  std::printf("encode %zu tokens of %zu bytes: %.2f ms\n", ids.size(), prompt.size(),
              BestUs(20, [&] { REQUIRE(tokenizer.Encode(prompt, false).ok()); }) / 1e3);

  size_t bytes = 0;
  const double detokenize_us = BestUs(20, [&] {
    Detokenizer detokenizer(&tokenizer);
    for (const TokenId id : ids) bytes += detokenizer.Push(id).size();
  });
  std::printf("detokenize: %.3f us a token\n", detokenize_us / ids.size());
  const double match_us = BestUs(20, [&] {
    Detokenizer detokenizer(&tokenizer);
    StopMatcher matcher({"\n\nUser:", "###", "</answer>", "STOP"}, false);
    for (const TokenId id : ids) bytes += matcher.Push(detokenizer.Push(id)).text.size();
  });
  std::printf("detokenize and match 4 stop strings: %.3f us a token\n", match_us / ids.size());
  CHECK(bytes > 0);

  const auto text = LoadModelText(path);
  const auto chat = Compile(text->chat_template);
  ChatPrompt short_chat;
  short_chat.messages = {{"user", "What is the capital of France?"}};
  ChatPrompt chat_of_three;
  chat_of_three.messages = {{"system", "You are a helpful assistant."},
                            {"user", "What is the capital of France?"},
                            {"assistant", "The capital of France is Paris."}};
  ChatPrompt long_chat;
  for (int i = 0; i < 100; ++i) long_chat.messages.push_back({"user", "What is that?"});
  std::printf("render 1 message: %.1f us\n",
              BestUs(50, [&] { REQUIRE(chat->Render(short_chat).ok()); }));
  std::printf("render 3 messages: %.1f us\n",
              BestUs(200, [&] { REQUIRE(chat->Render(chat_of_three).ok()); }));
  std::printf("render 100 messages: %.1f us\n",
              BestUs(50, [&] { REQUIRE(chat->Render(long_chat).ok()); }));
}

}  // namespace
}  // namespace weft::router
