// Grammars that are made to explode: each is refused or served within the limits of limits.h,
// alone.

#include <catch2/catch.hpp>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "grammar_fixture.h"

namespace weft::router {
namespace {

using Kind = GrammarSpec::Kind;

struct Hostile {
  std::string name;
  GrammarSpec spec;
};

std::string Repeat(int count, const std::function<std::string(int)>& part,
                   absl::string_view separator = ",") {
  std::vector<std::string> parts;
  for (int i = 0; i < count; ++i) parts.push_back(part(i));
  return absl::StrJoin(parts, separator);
}

std::string Properties(int count, absl::string_view type = "string") {
  return Repeat(count,
                [&](int i) { return absl::StrCat("\"p", i, "\":{\"type\":\"", type, "\"}"); });
}

class Cases {
 public:
  std::vector<Hostile> All() {
    AddObjects();
    AddReferences();
    AddBounds();
    AddPatterns();
    AddExpressions();
    AddLarks();
    return std::move(cases_);
  }

 private:
  void AddSchema(std::string name, std::string text) {
    cases_.push_back({std::move(name), SchemaSpec(std::move(text))});
  }
  void AddText(std::string name, Kind kind, std::string source) {
    cases_.push_back({std::move(name), TextSpec(kind, std::move(source))});
  }

  void AddObjects() {
    for (const int count : {400, 500, 1900, 10'000}) {
      AddSchema(absl::StrCat(count, " optional properties"),
                absl::StrCat(R"({"type":"object","properties":{)", Properties(count), "}}"));
      AddSchema(
          absl::StrCat(count, " required properties"),
          absl::StrCat(R"({"type":"object","additionalProperties":false,"properties":{)",
                       Properties(count), R"(},"required":[)",
                       Repeat(count, [](int i) { return absl::StrCat("\"p", i, "\""); }), "]}"));
    }
    AddSchema("20 objects of 400 optional properties",
              absl::StrCat(
                  R"({"anyOf":[)",
                  Repeat(20,
                         [](int i) {
                           return absl::StrCat(
                               R"({"type":"object","required":["k"],"properties":{"k":{"const":)",
                               i, "},", Properties(400, "null"), "}}");
                         }),
                  "]}"));
    for (const int count : {1000, 15'000}) {
      AddSchema(absl::StrCat("enum of ", count),
                absl::StrCat(R"({"enum":[)",
                             Repeat(count, [](int i) { return absl::StrCat("\"value ", i, "\""); }),
                             "]}"));
      AddSchema(absl::StrCat("enum of ", count, " objects"),
                absl::StrCat(R"({"enum":[)",
                             Repeat(std::min(count, 8000),
                                    [](int i) { return absl::StrCat("{\"v\":", i, "}"); }),
                             "]}"));
    }
    for (const int count : {200, 900, 3000}) {
      AddSchema(absl::StrCat("oneOf of ", count),
                absl::StrCat(R"({"oneOf":[)",
                             Repeat(count,
                                    [](int i) {
                                      return absl::StrCat(
                                          R"({"type":"object","properties":{"k":{"const":"k)", i,
                                          R"("}},"required":["k"]})");
                                    }),
                             "]}"));
      AddSchema(
          absl::StrCat("anyOf of ", count, " that overlap"),
          absl::StrCat(
              R"({"anyOf":[)",
              Repeat(count,
                     [](int i) {
                       return absl::StrCat(
                           R"({"type":"object","properties":{"a":{"type":"string","pattern":".*)",
                           i, R"(.*"},"b)", i, R"(":{}}})");
                     }),
              "]}"));
    }
    for (const int count : {2, 3, 4, 20}) {
      AddSchema(absl::StrCat("8 alternatives to the power of ", count),
                absl::StrCat(R"({"allOf":[)",
                             Repeat(count,
                                    [](int i) {
                                      return absl::StrCat(
                                          R"({"anyOf":[)",
                                          Repeat(8,
                                                 [i](int k) {
                                                   return absl::StrCat(
                                                       R"({"type":"object","required":["p)", i, "_",
                                                       k, R"("],"properties":{"p)", i, "_", k,
                                                       R"(":{"type":"string"}}})");
                                                 }),
                                          "]}");
                                    }),
                             "]}"));
    }
    AddSchema("200 alternatives times 200 properties",
              absl::StrCat(R"({"allOf":[{"anyOf":[)",
                           Repeat(200,
                                  [](int i) {
                                    return absl::StrCat(R"({"properties":{"q)", i,
                                                        R"(":{"type":"string"}}})");
                                  }),
                           R"(]},{"type":"object","properties":{)", Properties(200), "}}]}"));
  }

  void AddReferences() {
    AddSchema("references that double",
              absl::StrCat(R"({"$ref":"#/$defs/d0","$defs":{)",
                           Repeat(60,
                                  [](int i) {
                                    return absl::StrCat(
                                        "\"d", i, R"(":{"allOf":[{"$ref":"#/$defs/d)", i + 1,
                                        R"("},{"$ref":"#/$defs/d)", i + 1, R"("}]})");
                                  }),
                           R"(,"d60":{"type":"object","properties":{"x":{}}}}})"));
    AddSchema("alternatives that double",
              absl::StrCat(R"({"$ref":"#/$defs/d0","$defs":{)",
                           Repeat(60,
                                  [](int i) {
                                    return absl::StrCat("\"d", i,
                                                        R"(":{"anyOf":[{"$ref":"#/$defs/d)", i + 1,
                                                        R"("},{"$ref":"#/$defs/d)", i + 1,
                                                        R"("}],"minLength":)", i, "}");
                                  }),
                           R"(,"d60":{"type":"string"}}})"));
    for (const int count : {900, 3000}) {
      AddSchema(absl::StrCat("a chain of ", count, " references"),
                absl::StrCat(R"({"$ref":"#/$defs/d0","$defs":{)",
                             Repeat(count,
                                    [](int i) {
                                      return absl::StrCat("\"d", i, R"(":{"$ref":"#/$defs/d)",
                                                          i + 1, "\"}");
                                    }),
                             ",\"d", count, R"(":{"type":"string"}}})"));
      AddSchema(
          absl::StrCat("a chain of ", count, " references in objects"),
          absl::StrCat(R"({"$ref":"#/$defs/d0","$defs":{)",
                       Repeat(count,
                              [](int i) {
                                return absl::StrCat(
                                    "\"d", i,
                                    R"(":{"type":"object","properties":{"n":{"$ref":"#/$defs/d)",
                                    i + 1, R"("}},"allOf":[{"$ref":"#/$defs/d)", i + 1, "\"}]}");
                              }),
                       ",\"d", count, R"(":{"type":"object"}}})"));
    }
    AddSchema("a reference to itself", R"({"$ref":"#"})");
    AddSchema(
        "references in a circle",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})");
    AddSchema(
        "a circle with more beside",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}],"type":"object"}}})");
    std::string deep = R"({"type":"string"})";
    for (int i = 0; i < 50; ++i)
      deep = absl::StrCat(R"({"type":"object","properties":{"a":)", deep, "}}");
    AddSchema("objects 50 deep", deep);
    AddSchema("brackets 100,000 deep", std::string(100'000, '['));
  }

  void AddBounds() {
    AddSchema("maxLength 1e9", R"({"type":"string","maxLength":1000000000})");
    AddSchema("maxLength 1e18", R"({"type":"string","maxLength":1000000000000000000})");
    AddSchema("minLength 1e6", R"({"type":"string","minLength":1000000})");
    AddSchema(
        "minItems 1e9 in minItems 1e9",
        R"({"type":"array","minItems":1000000000,"items":{"type":"array","minItems":1000000000}})");
    AddSchema("maxItems 1e9 of objects",
              R"({"type":"array","maxItems":1000000000,"items":{"type":"object"}})");
    AddSchema("minProperties 1e9", R"({"type":"object","minProperties":1000000000})");
    AddSchema("multipleOf 9973", R"({"type":"integer","multipleOf":9973})");
    AddSchema("multipleOf 0.0007", R"({"type":"number","multipleOf":0.0007,"minimum":1})");
    AddSchema("multiples of 9973 and 9967",
              R"({"type":"integer","multipleOf":9973,"allOf":[{"multipleOf":9967}]})");
    AddSchema("multiples of 313 and 317",
              R"({"type":"integer","multipleOf":313,"allOf":[{"multipleOf":317}]})");
    AddSchema("multiples in a narrow range",
              R"({"type":"integer","multipleOf":9973,"minimum":9974,"maximum":19945})");
    AddSchema("a range of numbers",
              R"({"type":"number","minimum":-123456789.123456789,"maximum":987654321.987654321})");
    AddSchema("tiny bounds",
              R"({"type":"number","minimum":0.000000001234567,"maximum":9007199254740991})");
  }

  void AddPatterns() {
    for (const int count : {64, 200, 997}) {
      const auto pattern = [count](int i) {
        return absl::StrCat("{\"pattern\":\"^([a-z]{", count - i, "})*q$\"}");
      };
      AddSchema(absl::StrCat("lengths of ", count, " at once"),
                absl::StrCat(R"({"type":"string","allOf":[)", Repeat(3, pattern), "]}"));
    }
    const char* const patterns[] = {
        "^a{1000000}$",      "^(((a{100}){100}){100}){100}$", "^(a|b)*a(a|b){200}$",
        "^(x+x+)+y$",        "(x+x+)+y.*(a|b){1,500}c",       "^\\\\p{L}{1,5000}$",
        "^(\\\\w+\\\\s?)+$", "^([a-z]+[0-9]*)+[A-Z]{3,900}$", "(a?){200}a{200}",
        "^(.*,){50}$",       "^((a|ab)(c|bcd)(d*)){1,100}$",  "[\\\\u0000-\\\\uffff]{1,1000}x"};
    for (const char* const pattern : patterns) {
      AddSchema(absl::StrCat("pattern ", pattern),
                absl::StrCat(R"({"type":"string","pattern":")", pattern, R"("})"));
      AddSchema(absl::StrCat("pattern with lengths ", pattern),
                absl::StrCat(R"({"type":"string","minLength":10,"maxLength":5000,"pattern":")",
                             pattern, R"("})"));
    }
    AddSchema("10 patterns at once",
              absl::StrCat(R"({"allOf":[)",
                           Repeat(10,
                                  [](int i) {
                                    return absl::StrCat(R"({"type":"string","pattern":")",
                                                        std::string(1, static_cast<char>('a' + i)),
                                                        ".*", i, "\"}");
                                  }),
                           "]}"));
    AddSchema("16 patternProperties that are hard to tell apart",
              absl::StrCat(R"({"type":"object","patternProperties":{)",
                           Repeat(16,
                                  [](int i) {
                                    return absl::StrCat("\"^(a|b)*a(a|b){", i + 10, "}", i,
                                                        "$\":{}");
                                  }),
                           "}}"));
    AddSchema(
        "100 patternProperties",
        absl::StrCat(R"({"patternProperties":{)",
                     Repeat(100, [](int i) { return absl::StrCat("\"^p", i, "_\":{}"); }), "}}"));
    AddSchema("30 objects of 12 patternProperties",
              absl::StrCat(R"({"type":"object","properties":{)",
                           Repeat(30,
                                  [](int i) {
                                    return absl::StrCat(
                                        "\"o", i, R"(":{"type":"object","patternProperties":{)",
                                        Repeat(12,
                                               [i](int k) {
                                                 return absl::StrCat("\"^x[a-z]*", i, "_", k,
                                                                     "$\":{}");
                                               }),
                                        "}}");
                                  }),
                           "}}"));
  }

  void AddExpressions() {
    AddText("regex (a|b)*a(a|b){300}", Kind::kRegex, "(a|b)*a(a|b){300}");
    AddText("regex of 60,000 alternatives", Kind::kRegex,
            Repeat(
                30'000, [](int i) { return absl::StrCat("a", i); }, "|"));
    AddText("regex 100,000 brackets deep", Kind::kRegex, std::string(100'000, '('));
    AddText("regex of classes", Kind::kRegex,
            Repeat(
                2000, [](int) { return std::string("\\p{L}\\P{N}"); }, ""));
    AddText("regex .{0,100000}x", Kind::kRegex, ".{0,100000}x.{0,100000}");
    cases_.push_back({"10,000 choices", {Kind::kChoice, {}, false}});
    for (int i = 0; i < 10'000; ++i)
      cases_.back().spec.texts.push_back(absl::StrCat("choice ", i * i));
  }

  void AddLarks() {
    AddText("lark: ambiguous", Kind::kLark, "start: s\ns: s s | \"a\" | \"b\" | \"\"");
    AddText("lark: ambiguous bytes", Kind::kLark,
            "start: x*\nx: /./ | y | z\ny: /[a-z]/\nz: /.../ | y y");
    AddText("lark: 1e6 times", Kind::kLark, "start: a{1000000}\na: \"x\" | \"y\"");
    AddText("lark: 1e9 times", Kind::kLark,
            "start: a{1,1000000000}\na: b{1000,1000000}\nb: \"x\" | \"y\"");
    AddText("lark: hard to negate", Kind::kLark,
            "start: X\nX: ~/(a|b)*a(a|b){30}/ & /[abc]{1,500}/");
    AddText("lark: 20 intersections", Kind::kLark,
            absl::StrCat("start: X\nX: ",
                         Repeat(
                             20,
                             [](int i) {
                               return absl::StrCat(
                                   "/(.*", std::string(1, static_cast<char>('a' + i)), ".*)/");
                             },
                             " & ")));
    AddText("lark: 12 lengths", Kind::kLark,
            absl::StrCat(
                "start: X\nX: ",
                Repeat(
                    12, [](int i) { return absl::StrCat("/([a-z]{", i + 2, "})*/"); }, " & ")));
    for (const int count : {200, 2000}) {
      AddText(
          absl::StrCat("lark: ", count, " terminals that overlap"), Kind::kLark,
          absl::StrCat("start: (",
                       Repeat(
                           count, [](int i) { return absl::StrCat("/[a-z]*", i, "[a-z]*/"); }, "|"),
                       ")*"));
    }
    for (const int count : {1000, 3900}) {
      AddText(absl::StrCat("lark: ", count, " rules"), Kind::kLark,
              absl::StrCat("start: r0\n", Repeat(
                                              count,
                                              [count](int i) {
                                                return absl::StrCat("r", i, ": \"a\" r",
                                                                    (i * 7 + 1) % count,
                                                                    " | \"b\" r", (i + 1) % count);
                                              },
                                              "\n")));
      AddText(absl::StrCat("lark: ", count, " empty rules"), Kind::kLark,
              absl::StrCat("start: r0*\n", Repeat(
                                               count / 10,
                                               [count](int i) {
                                                 return absl::StrCat(
                                                     "r", i, ": r", (i + 1) % (count / 10), "? r",
                                                     (i + 2) % (count / 10), "? \"", i, "\"?");
                                               },
                                               "\n")));
    }
    AddText("lark: brackets", Kind::kLark, absl::StrCat("start: ", std::string(50'000, '(')));
    AddText("lark: brackets in a text", Kind::kLark,
            absl::StrCat("start: \"", std::string(50'000, '('), "\""));
    AddText("lark: nested %lark", Kind::kLark,
            Repeat(
                500, [](int) { return std::string("start: %lark {\n"); }, ""));
    AddText("lark: parts of a long text", Kind::kLark,
            absl::StrCat("start: X\nX: %regex {\"substring_chars\": \"",
                         Repeat(
                             2000, [](int) { return std::string("the quick brown fox "); }, ""),
                         "\"}"));
    AddText("lark: many schemas", Kind::kLark,
            absl::StrCat(
                "start: ",
                Repeat(
                    250, [](int i) { return absl::StrCat("%json {\"const\":", i, "}"); }, " | ")));
  }

  std::vector<Hostile> cases_;
};

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  size_t resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

// CPU time of this process: other load does not lengthen it.
double CpuMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

// Greatest times of masks and tokens on random walks, in milliseconds.
struct Worst {
  double mask_ms = 0;
  double consume_ms = 0;
  std::string error;
};

Worst Walked(const GrammarSpec& spec, std::mt19937_64& random) {
  const Tokenizer& tokenizer = DemoTokens();
  Worst worst;
  const auto grammar = DemoGrammars().Compile(spec, "grammar");
  if (!grammar.ok()) return worst;
  std::vector<uint32_t> mask((tokenizer.vocab_size() + 31) / 32);
  for (int walk = 0; walk < 3; ++walk) {
    auto matcher = *DemoGrammars().NewMatcher(*grammar);
    for (int i = 0; i < 80; ++i) {
      double start = CpuMs();
      const absl::Status status = matcher->ComputeMask(absl::MakeSpan(mask));
      worst.mask_ms = std::max(worst.mask_ms, CpuMs() - start);
      if (!status.ok()) {
        worst.error = std::string(status.message());
        break;
      }
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
        if (Allows(mask, id)) allowed.push_back(id);
      }
      const TokenId id = allowed[random() % allowed.size()];
      if (id == DemoEos()) break;
      start = CpuMs();
      const auto fits = matcher->Consume(id);
      worst.consume_ms = std::max(worst.consume_ms, CpuMs() - start);
      if (!fits.ok()) {
        worst.error = std::string(fits.status().message());
        break;
      }
    }
  }
  return worst;
}

TEST_CASE("Grammars made to explode end within the limits", "[grammar][long]") {
  std::mt19937_64 random(15);
  double compile_ms_max = 0;
  double mask_ms_max = 0;
  for (const Hostile& hostile : Cases().All()) {
    INFO(hostile.name);
    const size_t before = ResidentBytes();
    const double start = CpuMs();
    const absl::Status status = DemoGrammars().Compile(hostile.spec, "grammar").status();
    const double compile_ms = CpuMs() - start;
    const Worst worst = Walked(hostile.spec, random);
    const double grown = (static_cast<double>(ResidentBytes()) - before) / (1 << 20);
    std::printf("%-50s compile %8.1f ms, mask %6.1f ms, token %6.1f ms, %+7.1f MiB %s\n",
                hostile.name.substr(0, 50).c_str(), compile_ms, worst.mask_ms, worst.consume_ms,
                grown,
                (status.ok() ? worst.error : std::string(status.message())).substr(0, 110).c_str());
    std::fflush(stdout);
    CHECK(absl::IsInternal(status) == false);
    compile_ms_max = std::max(compile_ms_max, compile_ms);
    mask_ms_max = std::max({mask_ms_max, worst.mask_ms, worst.consume_ms});
    CHECK(compile_ms < 1.2 * kGrammarCompileUsMax / 1e3);
    // The limit is looked at every few milliseconds.
    CHECK(worst.mask_ms < 3 * kGrammarMaskUsMax / 1e3);
    CHECK(worst.consume_ms < 3 * kGrammarMaskUsMax / 1e3);
    CHECK(grown < 400);
  }
  std::printf("worst: compile %.1f ms, mask or token %.1f ms\n", compile_ms_max, mask_ms_max);
}

TEST_CASE("A lexer that has grown too large is left behind", "[grammar][long]") {
  // Each walk finds states that no other has.
  const Tokenizer& tokenizer = DemoTokens();
  const auto grammar =
      *DemoGrammars().Compile(TextSpec(Kind::kRegex, "(a|b|c)*a(a|b|c){18}"), "grammar");
  std::mt19937_64 random(15);
  std::vector<uint32_t> mask((tokenizer.vocab_size() + 31) / 32);
  size_t bytes_max = 0;
  int failed = 0;
  for (int walk = 0; walk < 40; ++walk) {
    auto matcher = *DemoGrammars().NewMatcher(grammar);
    for (int i = 0; i < 60 && matcher->ComputeMask(absl::MakeSpan(mask)).ok(); ++i) {
      const auto fits = matcher->Consume(Canonical(tokenizer, "a")[0] + random() % 3);
      if (!fits.ok() || !*fits) break;
      bytes_max = std::max(bytes_max, matcher->ReadStats()->lexer_bytes);
    }
    failed += matcher->ReadStats().ok() ? 0 : 1;
  }
  std::printf("largest lexer %.1f MiB, %d failed\n", bytes_max / 1048576.0, failed);
  CHECK(bytes_max < 2 * kGrammarLexerBytesMax);
  CHECK(failed == 0);
}

}  // namespace
}  // namespace weft::router
