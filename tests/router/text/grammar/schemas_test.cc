// The 200 schemas of schemas.json on the demo model's vocabulary: which are served, how long
// compilation and masks take, that their instances are accepted in any cut into tokens, and that
// random walks end. WEFT_GRAMMAR_WALKS=FILE writes the walks' texts, for check_walks.py.

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "grammar_fixture.h"

namespace weft::router {
namespace {

double UsOf(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count();
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(q * values.size()))];
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / values.size();
}

uint64_t Seed() {
  const char* const text = std::getenv("WEFT_SEED");
  const uint64_t seed = text == nullptr ? 15 : std::strtoull(text, nullptr, 10);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

TEST_CASE("Schemas of many kinds are compiled within their time", "[grammar]") {
  GrammarEngine& engine = DemoGrammars();
  std::vector<double> times_us;
  int served = 0;
  for (const SchemaCase& schema : Schemas()) {
    absl::Status status;
    times_us.push_back(UsOf(
        [&] { status = engine.Compile(SchemaSpec(schema.schema), "response_format").status(); }));
    if (status.ok()) {
      ++served;
    } else {
      std::printf("refused: %s: %s\n", schema.name.c_str(), status.ToString().c_str());
      // What cannot be served is refused by the name of its keyword, and nothing else is.
      const bool named = schema.name == "conditional 0" || schema.name == "unique 0";
      CHECK(named);
    }
  }
  const double p99 = Quantile(times_us, 0.99);
  std::printf("%d of %zu schemas served; compile p50 %.2f ms, p99 %.2f ms, max %.2f ms\n", served,
              Schemas().size(), Quantile(times_us, 0.5) / 1e3, p99 / 1e3,
              Quantile(times_us, 1) / 1e3);
  CHECK(served >= 196);
  // The aim is 20 ms; a machine that others use has to pass.
  CHECK(p99 < 200e3);
}

TEST_CASE("Masks over instances of many schemas take microseconds", "[grammar]") {
  const Tokenizer& tokenizer = DemoTokens();
  std::vector<double> masks_us;
  std::vector<double> first_us;
  std::vector<double> consumes_us;
  uint64_t fuel_max = 0;
  uint64_t items_max = 0;
  size_t lexer_bytes_max = 0;
  for (const SchemaCase& schema : Schemas()) {
    const auto grammar = DemoGrammars().Compile(SchemaSpec(schema.schema), "response_format");
    if (!grammar.ok()) continue;
    for (const std::string& instance : schema.instances) {
      auto matcher = *DemoGrammars().NewMatcher(*grammar);
      std::vector<uint32_t> mask((tokenizer.vocab_size() + 31) / 32);
      bool first = true;
      for (const TokenId id : Canonical(tokenizer, instance)) {
        const double us = UsOf([&] { REQUIRE(matcher->ComputeMask(absl::MakeSpan(mask)).ok()); });
        (first ? first_us : masks_us).push_back(us);
        first = false;
        const auto stats = *matcher->ReadStats();
        fuel_max = std::max(fuel_max, stats.mask_fuel);
        items_max = std::max(items_max, stats.mask_items);
        lexer_bytes_max = std::max(lexer_bytes_max, stats.lexer_bytes);
        consumes_us.push_back(UsOf([&] { REQUIRE(*matcher->Consume(id)); }));
      }
    }
  }
  masks_us.insert(masks_us.end(), first_us.begin(), first_us.end());
  std::printf("%zu masks: mean %.1f us, p50 %.1f, p90 %.1f, p99 %.1f, max %.1f\n", masks_us.size(),
              Mean(masks_us), Quantile(masks_us, 0.5), Quantile(masks_us, 0.9),
              Quantile(masks_us, 0.99), Quantile(masks_us, 1));
  std::printf("consume: mean %.2f us, p99 %.1f\n", Mean(consumes_us), Quantile(consumes_us, 0.99));
  std::printf("most of a mask: fuel %llu, items %llu; lexer %zu bytes\n",
              static_cast<unsigned long long>(fuel_max), static_cast<unsigned long long>(items_max),
              lexer_bytes_max);
  CHECK(Mean(masks_us) < 500);
}

TEST_CASE("Instances are accepted however they are cut into tokens", "[grammar]") {
  const Tokenizer& tokenizer = DemoTokens();
  std::mt19937_64 random(Seed());
  for (const SchemaCase& schema : Schemas()) {
    const auto grammar = DemoGrammars().Compile(SchemaSpec(schema.schema), "response_format");
    if (!grammar.ok()) continue;
    for (const std::string& instance : schema.instances) {
      INFO(schema.name << ": " << schema.schema << "\n" << instance);
      auto matcher = *DemoGrammars().NewMatcher(*grammar);
      CHECK(Accepts(*matcher, tokenizer, Canonical(tokenizer, instance)));
      auto other = *DemoGrammars().NewMatcher(*grammar);
      CHECK(Accepts(*other, tokenizer, RandomCut(tokenizer, instance, random)));
    }
  }
}

TEST_CASE("Random walks through masks end in JSON", "[grammar]") {
  const Tokenizer& tokenizer = DemoTokens();
  std::mt19937_64 random(Seed());
  const char* const path = std::getenv("WEFT_GRAMMAR_WALKS");
  std::ofstream file;
  if (path != nullptr) file.open(path);
  int ended = 0;
  int walks = 0;
  for (const SchemaCase& schema : Schemas()) {
    const auto grammar = DemoGrammars().Compile(SchemaSpec(schema.schema), "response_format");
    if (!grammar.ok()) continue;
    for (int i = 0; i < 10; ++i) {
      auto matcher = *DemoGrammars().NewMatcher(*grammar);
      const Walk walk = RandomWalk(*matcher, tokenizer, random, 600);
      INFO(schema.name << ": " << schema.schema << "\n" << walk.text);
      REQUIRE(walk.error == "");
      ++walks;
      if (!walk.ended) continue;
      ++ended;
      boost::json::error_code failed;
      boost::json::parse(walk.text, failed);
      CHECK_FALSE(failed);
      if (path != nullptr) {
        const boost::json::object line = {{"name", schema.name}, {"text", walk.text}};
        file << boost::json::serialize(line) << "\n";
      }
    }
  }
  std::printf("%d of %d walks ended\n", ended, walks);
  CHECK(ended > walks / 2);
}

}  // namespace
}  // namespace weft::router
