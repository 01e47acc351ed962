// Markdown as styles: what each construct becomes, that nothing is lost, and that pieces do not
// matter.

#include "deploy/launcher/chat/markdown.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/seed.h"
#include "tests/support/splitmix.h"

namespace weft::launcher {
namespace {

uint64_t Draw(uint64_t* state) { return test::SplitmixFinish(*state += test::kSplitmixStep); }

// Styles as words: <b>, </b> for bold and dim's common end.
std::string Words(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\x1b[1m", "<b>"},
                                    {"\x1b[2m", "<d>"},
                                    {"\x1b[22m", "</>"},
                                    {"\x1b[3m", "<i>"},
                                    {"\x1b[23m", "</i>"},
                                    {"\x1b[4m", "<u>"},
                                    {"\x1b[24m", "</u>"},
                                    {"\x1b[9m", "<s>"},
                                    {"\x1b[29m", "</s>"},
                                    {"\x1b[36m", "<c>"},
                                    {"\x1b[39m", "</c>"}});
}

std::string Render(absl::string_view text) {
  Markdown markdown;
  std::string out = markdown.Add(text);
  return Words(out + markdown.Finish());
}

std::string WithoutWords(const std::string& text) {
  return absl::StrReplaceAll(text, {{"<b>", ""},
                                    {"<d>", ""},
                                    {"</>", ""},
                                    {"<i>", ""},
                                    {"</i>", ""},
                                    {"<u>", ""},
                                    {"</u>", ""},
                                    {"<s>", ""},
                                    {"</s>", ""},
                                    {"<c>", ""},
                                    {"</c>", ""}});
}

TEST_CASE("Bold, italics, strike-through and code inside of a line become styles", "[chat]") {
  CHECK(Render("a **b c** d") == "a <b>b c</> d");
  CHECK(Render("a *b* _c_ d") == "a <i>b</i> <i>c</i> d");
  CHECK(Render("***b***") == "<i><b>b</i></>");
  CHECK(Render("**a *b* `c**`** d") == "<b>a <i>b</i> <c>c**</c></> d");
  CHECK(Render("**a *b***") == "<b>a <i>b</i></>");
  CHECK(Render("~~gone~~") == "<s>gone</s>");
  CHECK(Render("`a*b*` and ``a`b``") == "<c>a*b*</c> and <c>a`b</c>");
  CHECK(Render("中文**粗体**中文") == "中文<b>粗体</>中文");
  CHECK(Render("(**a**), *b*.") == "(<b>a</>), <i>b</i>.");
}

TEST_CASE("What is no marker stays as it was written", "[chat]") {
  for (const char* text : {"2*3*4 and a**b**2",
                           "snake_case_name and __init__x",
                           "2 * 3 * 4",
                           "*args, **kwargs",
                           "a ` b",
                           "ends with *",
                           "ends with **",
                           "*",
                           "**",
                           "**a\nb**",
                           "* *a",
                           "\\(a_b\\) \\[x\\] \\\\",
                           "~ x ~",
                           "[link](http://x/a_b_c)",
                           "<b>html</b>",
                           "| a **b** | c |\n|---|---|\n",
                           "#hashtag",
                           "1.5 and 2024. ",
                           "####### seven",
                           "a\n\nb\n",
                           "   ",
                           "-5",
                           "--flag",
                           "::"}) {
    INFO(text);
    if (text[0] == '*' && text[1] == ' ') {
      CHECK(Render(text) == "• *a");
    } else {
      CHECK(Render(text) == text);
    }
  }
  CHECK(Render("\\*a\\* \\_b\\_ \\`c\\`") == "*a* _b_ `c`");
}

TEST_CASE("A marker whose end does not come in time is shown, and so is what was held", "[chat]") {
  const std::string long_text(300, 'x');
  CHECK(Render("**" + long_text + "** y") == "**" + long_text + "** y");
  CHECK(Render("`" + long_text + "` y") == "`" + long_text + "` y");
  Markdown markdown;
  CHECK(markdown.Add("say **bo").compare("say ") == 0);
  CHECK(markdown.Add("ld* ").empty());
  CHECK(Words(markdown.Add("x** and")) == "<b>bold* x</> and");
  CHECK(markdown.Add(" **never").compare(" ") == 0);
  CHECK(markdown.Add("\n").compare("**never\n") == 0);
  CHECK(markdown.Finish().empty());
}

TEST_CASE("Headings, lists, quotes and rules become what they mean", "[chat]") {
  CHECK(Render("# A *b*\ntext\n") == "<b><u>A <i>b</i></></u>\ntext\n");
  CHECK(Render("### **C**\n") == "<b>C</>\n");
  CHECK(Render("- a\n  * b\n+ c\n") == "• a\n  • b\n• c\n");
  CHECK(Render("1. **a**: b\n10) c\n") == "1. <b>a</>: b\n10) c\n");
  CHECK(Render("> a **b**\n>\n> c") == "<d>│ </>a <b>b</>\n<d>│ </>\n<d>│ </>c");
  const std::string rule = Render("---\n");
  CHECK(rule.substr(0, 6) == "<d>─");
  CHECK(Render("* * *\n") == rule);
  CHECK(Render("___\n") == rule);
  CHECK(Render("- **x** - y\n") == "• <b>x</> - y\n");
  CHECK(Render("**Note** a\n") == "<b>Note</> a\n");
  CHECK(Render("- [ ] open\n") == "• [ ] open\n");
}

TEST_CASE("Fenced code is shown as it is", "[chat]") {
  CHECK(Render("```python\nx = '**a**'\n\n  # no heading\n```\n**b**\n") ==
        "<d>```python</>\n<c>x = '**a**'</c>\n\n<c>  # no heading</c>\n<d>```</>\n<b>b</>\n");
  CHECK(Render("~~~\n```\n~~~\nx") == "<d>~~~</>\n<c>```</c>\n<d>~~~</>\nx");
  CHECK(Render("````\n```\n````\n") == "<d>````</>\n<c>```</c>\n<d>````</>\n");
  CHECK(Render("- item\n  ```\n  a\n  ```\n- b\n") ==
        "• item\n<d>  ```</>\n<c>  a</c>\n<d>  ```</>\n• b\n");
  CHECK(Render("1. ```sh\n   ls\n   ```\n*x*") ==
        "1. <d>```sh</>\n<c>   ls</c>\n<d>   ```</>\n<i>x</i>");
  // Never closed, and stopped in the middle: no style is left on.
  CHECK(Render("```\nint x") == "<d>```</>\n<c>int x</c>");
  CHECK(Render("```c") == "<d>```c</>");
  CHECK(Render("```js x``` y") == "<c>js x</c> y");
}

TEST_CASE("A line is shown as it comes, not when it is complete", "[chat]") {
  Markdown markdown;
  CHECK(markdown.Add("The sea").compare("The sea") == 0);
  CHECK(markdown.Add(" is wide").compare(" is wide") == 0);
  CHECK(markdown.Add("\n```\n").compare("\n") > 0);
  CHECK(Words(markdown.Add("  let x")) == "<c>  let x");
  CHECK(markdown.Add(" = 1").compare(" = 1") == 0);
}

// Pieces of which markers, and what stands beside them, are made.
const std::vector<std::string>& Pieces() {
  static const auto* const pieces = new std::vector<std::string>{
      "*",     "**",      "***",
      "_",     "__",      "`",
      "``",    "```",     "~~",
      "~~~",   "#",       "## ",
      "- ",    "* ",      "+ ",
      "1.",    "1. ",     "> ",
      "|",     "\n",      "\n",
      "\n",    "   ",     "\t",
      " ",     " ",       "a",
      "word",  "9",       "é",
      "日",    "😀",       "\\",
      "\\*",   "(",       ")",
      "---",   "***\n",   "```py\n",
      "x = 1", "- ```\n", "the quick brown fox jumps over the lazy dog again and again and again "};
  return *pieces;
}

TEST_CASE("A text renders the same whatever pieces it comes in", "[chat]") {
  uint64_t state = test::Seed(22);
  for (int run = 0; run < 4000; ++run) {
    std::string text;
    const size_t pieces = 1 + Draw(&state) % 40;
    for (size_t i = 0; i < pieces; ++i) {
      text += Pieces()[Draw(&state) % Pieces().size()];
    }
    const std::string whole = Render(text);
    for (int split = 0; split < 4; ++split) {
      Markdown markdown;
      std::string out;
      for (size_t at = 0; at < text.size();) {
        const size_t bytes = split == 0 ? 1 : 1 + Draw(&state) % (split == 1 ? 4 : 60);
        out += markdown.Add(absl::string_view(text).substr(at, bytes));
        at += bytes;
      }
      out += markdown.Finish();
      INFO(text);
      REQUIRE(Words(out) == whole);
    }
    // Each style that begins ends, and no text that is no marker is lost.
    INFO(whole);
    for (const auto& [on, off] : std::vector<std::pair<std::string, std::string>>{
             {"<i>", "</i>"}, {"<u>", "</u>"}, {"<s>", "</s>"}, {"<c>", "</c>"}}) {
      size_t begins = 0, ends = 0;
      for (size_t at = whole.find(on); at != std::string::npos; at = whole.find(on, at + 1))
        ++begins;
      for (size_t at = whole.find(off); at != std::string::npos; at = whole.find(off, at + 1))
        ++ends;
      REQUIRE(begins == ends);
    }
    const auto letters = [](const std::string& from) {
      std::string kept;
      for (const char byte : from) {
        if (absl::string_view("aword9quick\n=x").find(byte) != absl::string_view::npos)
          kept += byte;
      }
      return kept;
    };
    REQUIRE(letters(WithoutWords(whole)) == letters(text));
  }
}

}  // namespace
}  // namespace weft::launcher
