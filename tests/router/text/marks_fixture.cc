#include "marks_fixture.h"

#include <catch2/catch.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "router/text/chat_values.h"
#include "router/text/ffi/weft_text.h"
#include "text_fixture.h"

namespace weft::router {

std::vector<TokenId> Ids(const Tokenizer& tokenizer, const RenderedChat& chat) {
  Tokenizer::EncodeOptions options;
  options.breaks = chat.breaks;
  const auto encoding = tokenizer.Encode(chat.text, options);
  REQUIRE(encoding.ok());
  return encoding->ids;
}

std::vector<TokenId> ControlIds(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<TokenId> control;
  for (const TokenId id : ids) {
    const absl::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.size() > 2 &&
        (tokenizer.IsSpecial(id) || (absl::StartsWith(bytes, "<") && absl::EndsWith(bytes, ">")))) {
      control.push_back(id);
    }
  }
  return control;
}

std::vector<TokenId> PlainIds(const Tokenizer& tokenizer, const std::string& text) {
  Tokenizer::EncodeOptions options;
  options.control_tokens = false;
  return tokenizer.Encode(text, options)->ids;
}

std::unique_ptr<Tokenizer> Variant(absl::string_view name) {
  for (const TokenizerVariant& variant : TokenizerVariants()) {
    if (variant.name != name) continue;
    const test::TempDir dir;
    dir.Write("tokenizer.json", variant.json);
    auto loaded = Tokenizer::FromModel(dir.path());
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    return std::move(loaded).value();
  }
  FAIL("no variant " << std::string(name));
  return nullptr;
}

std::unique_ptr<ChatTemplate> Compile(const Tokenizer& tokenizer, absl::string_view source,
                                      ChatTemplate::Options options) {
  auto made = ChatTemplate::Create(&Templates(), &tokenizer, source, std::move(options));
  INFO(made.status().ToString());
  REQUIRE(made.ok());
  return std::move(made).value();
}

std::optional<std::string> PlainRender(const std::string& source, const ChatPrompt& prompt,
                                       const TemplateTraits& traits, uint32_t now_unix_s) {
  WeftTemplate* compiled = nullptr;
  WeftText text = {}, error = {};
  REQUIRE(weft_template_compile({source.data(), source.size()}, {"<bos>", 5}, {"<eos>", 5},
                                &compiled, &error) == WEFT_TEXT_OK);
  std::string bytes;
  REQUIRE(WriteVariables(prompt, traits, {}, &bytes).ok());
  const WeftTemplateLimits limits = {1'000'000, 1 << 20, now_unix_s};
  const WeftTextStatus status =
      weft_template_render(compiled, {bytes.data(), bytes.size()}, &limits, &text, &error);
  weft_template_free(compiled);
  if (status != WEFT_TEXT_OK) {
    weft_text_free(error);
    return std::nullopt;
  }
  std::string out(text.data, text.size);
  weft_text_free(text);
  return out;
}

std::string PlainRender(const std::string& source, const ChatPrompt& prompt) {
  const std::optional<std::string> text = PlainRender(source, prompt, {}, 0);
  REQUIRE(text.has_value());
  return *text;
}

ChatPrompt Conversation(const std::vector<std::string>& contents) {
  ChatPrompt prompt;
  for (size_t i = 0; i < contents.size(); ++i) {
    prompt.messages.push_back({i % 2 == 0 ? "user" : "assistant", contents[i]});
  }
  return prompt;
}

}  // namespace weft::router
