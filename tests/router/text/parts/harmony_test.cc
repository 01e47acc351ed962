#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/router/text/parts/parse.h"

namespace weft::router {

TEST_CASE("Harmony's messages go by their channels", "[parts]") {
  const std::string call =
      "commentary to=functions.search <|constrain|>json<|message|>{\"query\":\"a\"}";
  CheckCases(
      ToolOptions("harmony", "harmony"),
      {
          {"final", "<|channel|>final<|message|>Hello.", "content(Hello.)"},
          {"ended", "<|channel|>final<|message|>Hello.<|return|>", "content(Hello.)"},
          {"analysis, final",
           "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|"
           ">"
           "Say.",
           "reasoning(Think.)\ncontent(Say.)"},
          {"call", "<|channel|>" + call + "<|call|>", "search({\"query\":\"a\"})"},
          {"call at the answer's end", "<|channel|>" + call, "search({\"query\":\"a\"})"},
          {"analysis, call",
           "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>" + call +
               "<|call|>",
           "reasoning(Look.)\nsearch({\"query\":\"a\"})"},
          {"the addressee first",
           "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant to=functions.search"
           "<|channel|>commentary <|constrain|>json<|message|>{\"query\":\"a\"}<|call|>",
           "reasoning(Look.)\nsearch({\"query\":\"a\"})"},
          {"an answer that begins with the addressee",
           " to=functions.now<|channel|>commentary json<|message|>{}<|call|>", "now({})"},
          {"no arguments", "<|channel|>commentary to=functions.now<|message|><|call|>", "now({})"},
          {"to a tool on the analysis channel",
           "<|channel|>analysis to=functions.now code<|message|> {} <|call|>", "now({})"},
          {"two calls",
           "<|channel|>" + call + "<|call|><|start|>assistant<|channel|>" + call + "<|call|>",
           "search({\"query\":\"a\"})\nsearch({\"query\":\"a\"})"},
          {"a preamble",
           "<|channel|>commentary<|message|>First I look.<|end|><|start|>assistant<|channel|>" +
               call,
           "content(First I look.)\nsearch({\"query\":\"a\"})"},
          {"two messages of analysis",
           "<|channel|>analysis<|message|>A.<|end|><|start|>assistant<|channel|>analysis<|message|>"
           "B.",
           "reasoning(A.\nB.)"},
          {"a built-in tool on analysis",
           "<|channel|>analysis to=browser.search<|message|>{}<|call|>", "reasoning({})"},
          {"an unknown tool", "<|channel|>commentary to=functions.f<|message|>{\"a\":1}<|call|>",
           "content({\"a\":1})"},
          {"no end between messages", "<|channel|>analysis<|message|>A<|channel|>final<|message|>B",
           "reasoning(A)\ncontent(B)"},
          {"a role between",
           "<|channel|>analysis<|message|>A<|start|>assistant<|channel|>final<|message|>B",
           "reasoning(A)\ncontent(B)"},
          {"no headers", "Hello there. ", "content(Hello there. )"},
          {"nothing like a header", "to be or not", "content(to be or not)"},
          {"half a header", "<|channel|>analy", "content(<|channel|>analy)"},
          {"a header without a message", "<|channel|>analysis<|end|>x",
           "content(<|channel|>analysis<|end|>\nx)"},
          {"an unknown channel", "<|channel|>secret<|message|>x", "content(x)"},
          {"tokens in text", "<|channel|>final<|message|>a<|message|>b<|constrain|>c",
           "content(a<|message|>b<|constrain|>c)"},
          {"nested arguments",
           "<|channel|>commentary to=functions.now<|message|>{\"a\": \"<|x|>\", \"b\": {}}<|call|>",
           "now({\"a\": \"<|x|>\", \"b\": {}})"},
          {"cut in a token", "<|channel|>final<|message|>a<|en", "content(a<|en)"},
      });
  const std::string header(2 * kToolHeaderBytesMax, 'x');
  CHECK(Show(ParsePieces(ToolOptions("harmony"), {absl::StrCat("<|channel|>", header)})) ==
        absl::StrCat("content(<|channel|>", header, ")"));
}

TEST_CASE("Harmony takes up what the prompt has begun", "[parts]") {
  PartParserOptions options = ToolOptions("none", "harmony");
  options.reasoning_open = true;
  CheckCases(options, {{"reasoning", "more<|end|><|start|>assistant<|channel|>final<|message|>x",
                        "reasoning(more)\ncontent(x)"}});
}

TEST_CASE("Without its tool parser harmony has no calls", "[parts]") {
  CheckCases(
      ToolOptions("none", "harmony"),
      {{"call", "<|channel|>commentary to=functions.now<|message|>{}<|call|>", "content({})"}});
  CheckCases(ToolOptions("harmony", "none"),
             {{"analysis", "<|channel|>analysis<|message|>a<|end|>", "reasoning(a)"}});
}

TEST_CASE("Harmony does not go with other formats", "[parts]") {
  CHECK(MakePartParser(ToolOptions("harmony")).ok());
  CHECK(MakePartParser(ToolOptions("none", "harmony")).ok());
  for (const auto& options : {ToolOptions("hermes", "harmony"), ToolOptions("harmony", "think")}) {
    const auto parser = MakePartParser(options);
    CHECK(parser.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace weft::router
