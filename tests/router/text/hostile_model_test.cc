// Model files that are made to hurt: their templates end a worker process and one request, their
// tokenizers are refused by name, and the process that serves stays small.

#include <signal.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <chrono>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "router/errors.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

ChatPrompt Hello() {
  ChatPrompt prompt;
  prompt.messages = {{"user", "Hello"}};
  return prompt;
}

std::string Repeated(absl::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out.append(text.data(), text.size());
  return out;
}

// The processes below `parent`.
std::set<pid_t> Children(pid_t parent) {
  std::ifstream file(absl::StrCat("/proc/", parent, "/task/", parent, "/children"));
  std::set<pid_t> children;
  for (pid_t child = 0; file >> child;) children.insert(child);
  return children;
}

TEST_CASE("A template that asks for memory without end fails its request alone",
          "[router][text][long]") {
  const char* const sources[] = {
      "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}{{ ns.s }}",
      "{{ ('x' | indent(10000000000, true)) }}",
      "{{ messages | batch(1000000000, 'x') | list | length }}",
      "{{ messages | slice(1000000000) | list | length }}",
      "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns | tojson }}",
      "{{ range(1000000000000) | list | length }}",
      "{% for i in range(99999) | list %}{% set x = range(99999) | list %}{% endfor %}",
      "{{ [[1] * 1000] * 1000000000 }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ 'ab' | replace('', 'x' * 60000000) | replace('', 'y' * 60000000) | length }}",
      "{{ ('x' * 80000000).split('') | length }}",
      "{{ 'x'.join(['y' * 90000000] * 90) | length }}",
      "{{ {'a': 1} | tojson(indent=10000000000) }}",
      "{% macro f(s) %}{{ f(s ~ s) }}{% endmacro %}{{ f('x') }}",
  };
  TemplateLimits limits;
  limits.cpu_ms = 1000;
  limits.memory_bytes = 64u << 20;
  const auto host = StartTemplates(limits);
  const auto ordinary = Compile("{{ messages[0].content }}");
  REQUIRE(ordinary->Render(Hello()).ok());
  const size_t before = ResidentBytes();
  for (const char* source : sources) {
    INFO(source);
    const auto start = std::chrono::steady_clock::now();
    const auto hostile = ChatTemplate::Create(host.get(), &DemoTokenizer(), source, {});
    if (hostile.ok()) {
      const absl::Status probe = (*hostile)->Probe();
      INFO(probe.ToString());
      CHECK(ErrorField(probe) == "messages");
      CHECK(absl::StrContains(probe.message(), "chat template"));
      // A new worker takes the place of the one that died.
      CHECK_FALSE((*hostile)->Render(Hello()).ok());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CHECK(took.count() < 30);
    CHECK(ordinary->Render(Hello())->text == "Hello");
  }
  CHECK(ResidentBytes() < before + (64u << 20));
}

TEST_CASE("A template made to explode ends in a user error within two seconds",
          "[router][text][long]") {
  const std::pair<const char*, const char*> cases[] = {
      {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", ""},
      {"{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}", ""},
      {"{% for i in range(10**9) %}{% endfor %}", "range has too many elements"},
      {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
       "instructions"},
      {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}",
       "memory"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}"
       "{% endfor %}{{ ns.l | length }}",
       ""},
      {"{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", "bytes"},
      {"{% for i in range(99) %}{% set x = ('x' * 9000000) | replace('x', 'yz') %}{% endfor %}",
       "chat template"},
      {"{{ ('a' * 5000000).split('a') | join('b' * 90) }}", ""},
      {"{{ tools[0] | tojson(indent=64) }}{% for t in tools %}{% for u in tools %}{% for v in "
       "tools "
       "%}{{ t | tojson }}{% endfor %}{% endfor %}{% endfor %}",
       ""},
  };
  std::string tools = "[";
  for (int i = 0; i < 128; ++i) {
    absl::StrAppend(&tools, i == 0 ? "" : ",", R"({"type":"function","function":{"name":"f)", i,
                    R"(","parameters":)", Repeated("{\"a\":", 50), "1", Repeated("}", 52));
  }
  ChatPrompt prompt = Hello();
  prompt.tools = tools + "]";
  for (const auto& [source, says] : cases) {
    INFO(source);
    const auto chat = ChatTemplate::Create(&Templates(), &DemoTokenizer(), source, {});
    REQUIRE(chat.ok());
    const absl::Time start = absl::Now();
    const absl::Status status = (*chat)->Render(prompt).status();
    const absl::Duration took = absl::Now() - start;
    INFO(status.ToString() << " after " << absl::FormatDuration(took));
    CHECK(ErrorField(status) == "messages");
    CHECK(absl::StrContains(status.message(), says));
    // Of which 1.8 s are the template's; a busy machine takes its time to say so.
    CHECK(took < absl::Seconds(4));
  }
  CHECK(Compile("{{ messages | length }}")->Render(Hello())->text == "1");
}

TEST_CASE("A template that is nested too deeply to compile is refused", "[router][text]") {
  for (const std::string& source :
       {absl::StrCat("{{ ", Repeated("not ", 100'000), "true }}"),
        absl::StrCat("{{ ", Repeated("(", 100'000), "1", Repeated(")", 100'000), " }}"),
        absl::StrCat("{{ ", Repeated("[", 100'000), " }}"),
        absl::StrCat("{{ ", Repeated("-", 100'000), "1 }}"), Repeated("{% if true %}", 100'000)}) {
    INFO(source.substr(0, 40));
    const auto made = ChatTemplate::Create(&Templates(), &DemoTokenizer(), source, {});
    CHECK(made.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(made.status().message(), "chat template"));
  }
  CHECK(Compile("x")->Render(Hello())->text == "x");
}

TEST_CASE("A render that takes too long is given up", "[router][text]") {
  ChatTemplate::Options hurry;
  hurry.timeout = absl::Milliseconds(300);
  const auto hurried = ChatTemplate::Create(
      &Templates(), &DemoTokenizer(),
      "{% for i in range(99) %}{% set x = ('x' * 9000000) | replace('x', 'yz') %}{% endfor %}",
      hurry);
  REQUIRE(hurried.ok());
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = (*hurried)->Render(Hello()).status();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(ErrorField(status) == "messages");
  CHECK(absl::StrContains(status.message(), "longer than 300ms"));
  CHECK(took.count() < 5);
}

TEST_CASE("A worker that died while it was idle costs no request", "[router][text]") {
  const auto host = StartTemplates();
  ChatTemplate::Options one;
  one.workers_max = 1;
  const auto chat =
      ChatTemplate::Create(host.get(), &DemoTokenizer(), "{{ messages | length }}", one);
  REQUIRE(chat.ok());
  for (int round = 0; round < 3; ++round) {
    const std::set<pid_t> workers = Children(host->server());
    REQUIRE(workers.size() == 1);
    REQUIRE(kill(*workers.begin(), SIGKILL) == 0);
    while (Children(host->server()) == workers) {
    }
    CHECK((*chat)->Render(Hello())->text == "1");
  }
}

TEST_CASE("A conversation at which the template library panics is refused, and its worker kept",
          "[router][text]") {
  const auto host = StartTemplates();
  ChatTemplate::Options one;
  one.workers_max = 1;
  const auto chat =
      ChatTemplate::Create(host.get(), &DemoTokenizer(), "{{ messages[0].content[::-1] }}", one);
  REQUIRE(chat.ok());
  const std::set<pid_t> workers = Children(host->server());
  REQUIRE(workers.size() == 1);
  ChatPrompt empty = Hello();
  empty.messages[0].content = "";
  for (int round = 0; round < 3; ++round) {
    const absl::Status status = (*chat)->Render(empty).status();
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(ErrorField(status) == "messages");
    CHECK(absl::StrContains(status.message(), "the chat template cannot be run"));
    CHECK((*chat)->Render(Hello())->text == "olleH");
    CHECK(Children(host->server()) == workers);
  }
}

TEST_CASE("A worker sees neither files nor descriptors nor signals of the router",
          "[router][text]") {
  const auto host = StartTemplates();
  const auto chat = ChatTemplate::Create(host.get(), &DemoTokenizer(), "x", {});
  REQUIRE(chat.ok());
  const pid_t worker = *Children(host->server()).begin();
  for (const pid_t process : {host->server(), worker}) {
    const auto open = [process] {
      size_t count = 0;
      for (int fd = 0; fd < 1024; ++fd) {
        count += access(absl::StrCat("/proc/", process, "/fd/", fd).c_str(), F_OK) == 0 ? 1 : 0;
      }
      return count;
    };
    // The server closes its copy of a worker's socket a moment after the worker answered.
    const absl::Time end = absl::Now() + absl::Seconds(10);
    while (open() != 4 && absl::Now() < end) {
    }
    CHECK(open() == 4);  // /dev/null three times and its socket
    REQUIRE(kill(process, SIGTERM) == 0);
    REQUIRE(kill(process, SIGINT) == 0);
  }
  CHECK((*chat)->Render(Hello())->text == "x");
}

// -- Tokenizers ----------------------------------------------------------------------------------

// The error for a byte-level model with `member` of its tokenizer.json replaced.
absl::Status Load(const std::string& member, const std::string& value) {
  boost::json::value tokenizer = boost::json::parse(TokenizerVariants().front().json);
  tokenizer.as_object()[member] = boost::json::parse(value, {}, {.max_depth = 100'000});
  const test::TempDir dir;
  dir.Write("tokenizer.json", boost::json::serialize(tokenizer));
  return Tokenizer::FromModel(dir.path()).status();
}

void CheckRefused(const absl::Status& status, const std::vector<std::string>& parts) {
  INFO(status.ToString().substr(0, 500));
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  for (const std::string& part : parts) CHECK(absl::StrContains(status.message(), part));
}

TEST_CASE("A normalizer that makes a text grow without measure is refused", "[router][text]") {
  const auto replace = [](absl::string_view pattern, const std::string& content) {
    return absl::StrCat(R"({"type": "Replace", "pattern": )", pattern, R"(, "content": ")", content,
                        "\"}");
  };
  const std::string ten = replace(R"({"String": "a"})", "aaaaaaaaaa");
  const auto sequence = [](const std::string& steps) {
    return absl::StrCat(R"({"type": "Sequence", "normalizers": [)", steps, "]}");
  };
  CHECK(Load("normalizer", ten).ok());
  CheckRefused(Load("normalizer", sequence(absl::StrCat(ten, ",", ten))),
               {"normalizer", "Replace", "100 times", "32"});
  CheckRefused(Load("normalizer", sequence(sequence(absl::StrCat(ten, ",", ten)))), {"100 times"});
  CheckRefused(Load("normalizer", replace(R"({"String": "a"})", std::string(100, 'a'))),
               {"100 times"});
  CheckRefused(Load("normalizer", replace(R"({"Regex": ""})", std::string(40, 'a'))), {"41 times"});
  CheckRefused(
      Load("normalizer", R"({"type": "Prepend", "prepend": ")" + std::string(99, 'a') + "\"}"),
      {"100 times"});
  CheckRefused(Load("normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="})"),
               {"Precompiled"});
  CheckRefused(
      Load("normalizer", sequence(R"({"type": "NFC"})" + Repeated(R"(,{"type": "NFC"})", 99))),
      {"100 steps"});
}

TEST_CASE("Added tokens are bounded in count and bytes", "[router][text]") {
  const auto token = [](int id, const std::string& content) {
    return absl::StrCat(R"({"id": )", id, R"(, "content": ")", content,
                        R"(", "single_word": false, "lstrip": false, "rstrip": false,
                        "normalized": false, "special": true})");
  };
  CheckRefused(Load("added_tokens", "[" + token(600, std::string(1025, 'a')) + "]"),
               {"added tokens", "1025 bytes", "1024"});
  std::string many, large;
  for (int i = 0; i < 65'537; ++i) {
    absl::StrAppend(&many, i == 0 ? "[" : ",", token(600 + i, absl::StrCat("<", i, ">")));
  }
  CheckRefused(Load("added_tokens", many + "]"), {"more than 65536"});
  for (int i = 0; i < 1100; ++i) {
    absl::StrAppend(&large, i == 0 ? "[" : ",",
                    token(600 + i, absl::StrCat(i, std::string(1000, 'a'))));
  }
  CheckRefused(Load("added_tokens", large + "]"), {"more than 1048576 bytes"});
}

TEST_CASE("Nesting and patterns of a tokenizer.json are bounded", "[router][text]") {
  const test::TempDir dir;
  std::string json = TokenizerVariants().front().json;
  const std::string key = "\"decoder\":";
  json.insert(json.find(key) + key.size(),
              Repeated("[", 200'000) + Repeated("]", 200'000) + ",\"other\":");
  dir.Write("tokenizer.json", json);
  CheckRefused(Tokenizer::FromModel(dir.path()).status(), {"recursion limit"});
  json = TokenizerVariants().front().json;
  json.insert(1, absl::StrCat("\"normalizer\":\"", std::string(10'000, 'a'), "\","));
  dir.Write("tokenizer.json", json);
  CheckRefused(Tokenizer::FromModel(dir.path()).status(), {"twice"});
  CheckRefused(
      Load("pre_tokenizer",
           absl::StrCat(R"({"type": "Split", "pattern": {"Regex": ")", std::string(5000, 'a'),
                        R"("}, "behavior": "Isolated", "invert": false})")),
      {"pattern", "5000 bytes", "4096"});
}

TEST_CASE("A template's special tokens are those that it explains", "[router][text]") {
  const auto processor = [](absl::string_view token) {
    return absl::StrCat(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": ")",
                        token, R"(", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], )",
                        R"("pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], )",
                        R"("tokens": ["<s>"]}}})");
  };
  CHECK(Load("post_processor", processor("<s>")).ok());
  CheckRefused(Load("post_processor", processor("<s6")), {"post_processor", "single", "<s6"});
  CheckRefused(Load("post_processor", absl::StrCat(R"({"type": "Sequence", "processors": [)",
                                                   processor("</s>"), "]}")),
               {"post_processor", "</s>"});
}

TEST_CASE("A pattern that keeps a place for every byte to come back to ends with an error",
          "[router][text]") {
  const test::TempDir dir;
  boost::json::value tokenizer = boost::json::parse(TokenizerVariants().front().json);
  tokenizer.as_object()["pre_tokenizer"] = boost::json::parse(
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern":
      {"Regex": "(?:\\p{L}\\p{N}?\\p{M}?)+\\p{Z}"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
      "use_regex": false}]})");
  dir.Write("tokenizer.json", boost::json::serialize(tokenizer));
  const auto loaded = Tokenizer::FromModel(dir.path());
  REQUIRE(loaded.ok());
  const absl::Status failed = (*loaded)->Encode(std::string(8u << 20, 'a'), false).status();
  CHECK(
      absl::StartsWith(failed.message(), "the model's tokenizer or template failed on this text"));
  CHECK_FALSE(absl::StrContains(failed.message(), "panic"));
  CHECK((*loaded)->Encode("abz", false).ok());
}

// Sanitizers bring allocators of their own, which keep freed memory back.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("Encoding stays within the bytes that it says it needs", "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  for (const absl::string_view unit : {"7 ", "a", " ", "words and more ", "\xE4\xBD\xA0"}) {
    const std::string text = Repeated(unit, (256u << 10) / unit.size());
    const size_t before = ResidentBytes();
    const auto encoding = tokenizer.Encode(text, true);
    REQUIRE(encoding.ok());
    INFO(unit);
    CHECK(ResidentBytes() < before + tokenizer.EncodeBytesMax(text));
  }
}
#endif

}  // namespace
}  // namespace weft::router
