// The constraints that need no grammar: ids that alone are allowed, words that must not appear, and
// both at once.

#include "router/text/constraints/constraints.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "router/errors.h"
#include "router/text/constraints/watermark.h"
#include "tests/common/temp_dir.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

constexpr uint32_t kVocab = 70;

std::vector<TokenId> Allowed(TokenConstraint& constraint) {
  std::vector<uint32_t> words((kVocab + 31) / 32, 0x12345678);
  REQUIRE(constraint.Allow(absl::MakeSpan(words)).ok());
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kVocab; ++id) {
    if (((words[id / 32] >> (id % 32)) & 1u) != 0) ids.push_back(id);
  }
  return ids;
}

std::vector<TokenId> Banned(TokenConstraint& constraint) {
  const std::vector<TokenId> allowed = Allowed(constraint);
  std::vector<TokenId> banned;
  for (TokenId id = 0; id < kVocab; ++id) {
    if (std::find(allowed.begin(), allowed.end(), id) == allowed.end()) banned.push_back(id);
  }
  return banned;
}

using Ids = std::vector<TokenId>;

TEST_CASE("Allowed ids are allowed whatever came before", "[router][text][masks]") {
  const auto only = AllowOnly({0, 31, 32, 69, 5000});
  CHECK(Allowed(*only) == Ids{0, 31, 32, 69});
  REQUIRE(only->Consume(31).ok());
  CHECK(Allowed(*only) == Ids{0, 31, 32, 69});
}

TEST_CASE("The green list is that of the token before", "[router][text][masks]") {
  const auto of = [](TokenId before) {
    Ids ids;
    for (TokenId id = 0; id < kVocab; ++id) {
      if ((GreenBits(before, id / 64) >> (id % 64) & 1) != 0) ids.push_back(id);
    }
    return ids;
  };
  const auto green = PreferGreen(7);
  CHECK(Allowed(*green) == of(7));
  REQUIRE(green->Consume(69).ok());
  CHECK(Allowed(*green) == of(69));
  CHECK(of(7) != of(69));
  // The number that docs/API.md gives for token 7 and the first word.
  CHECK(GreenBits(7, 0) == Scatter((uint64_t{7} << 32) + 15485863));
  size_t count = 0;
  for (TokenId before = 0; before < 1000; ++before) count += of(before).size();
  CHECK(count > 1000 * kVocab / 2 - 700);
  CHECK(count < 1000 * kVocab / 2 + 700);
}

TEST_CASE("A sequence is banned at its last id, wherever it begins", "[router][text][masks]") {
  const auto ban = BanSequences({{7}, {1, 2}, {1, 2, 3}, {2, 1, 2, 9}, {69, 69}, {4000}});
  CHECK(Banned(*ban) == Ids{7});
  const auto after = [&](TokenId id) {
    REQUIRE(ban->Consume(id).ok());
    return Banned(*ban);
  };
  CHECK(after(1) == Ids{2, 7});
  // It came all the same, as a resumed answer may have it.
  CHECK(after(2) == Ids{3, 7});
  CHECK(after(1) == Ids{2, 7});
  CHECK(after(2) == Ids{3, 7, 9});
  CHECK(after(2) == Ids{7});
  CHECK(after(69) == Ids{7, 69});
  CHECK(after(69) == Ids{7, 69});
  CHECK(after(0) == Ids{7});
  // Of one id alone.
  const auto one = BanSequences({{3}});
  REQUIRE(one->Consume(3).ok());
  CHECK(Banned(*one) == Ids{3});
  CHECK(Banned(*BanSequences({})).empty());
}

TEST_CASE("Several constraints allow what each of them does", "[router][text][masks]") {
  std::vector<std::unique_ptr<TokenConstraint>> both;
  both.push_back(AllowOnly({1, 2, 40}));
  both.push_back(BanSequences({{1, 2}, {40}}));
  const auto all = AllOf(std::move(both));
  CHECK(Allowed(*all) == Ids{1, 2});
  REQUIRE(all->Consume(1).ok());
  CHECK(Allowed(*all) == Ids{1});
  REQUIRE(all->Consume(2).ok());
  CHECK(Allowed(*all) == Ids{1, 2});
}

TEST_CASE("Words are spelled as they stand and behind a blank", "[router][text][masks]") {
  const test::TempDir dir;
  WriteByteModel(dir);
  const auto tokenizer = Tokenizer::FromModel(dir.path());
  REQUIRE(tokenizer.ok());
  const auto spelled = [&](const std::vector<std::string>& words) {
    const auto sequences = SpellWords(**tokenizer, words);
    REQUIRE(sequences.ok());
    return *sequences;
  };
  CHECK(spelled({"ab"}) == std::vector<Ids>{{' ', 'a', 'b'}, {'a', 'b'}});
  // Each once, however it was written.
  CHECK(spelled({" ab", "ab"}) == std::vector<Ids>{{' ', 'a', 'b'}, {'a', 'b'}});
  CHECK(spelled({"  a"}) == std::vector<Ids>{{' ', ' ', 'a'}, {' ', 'a'}});
  CHECK(spelled({}).empty());
  for (const std::string blank : {" ", "\t\n "}) {
    const absl::Status refused = SpellWords(**tokenizer, {"a", blank}).status();
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(ErrorField(refused).value_or("") == "bad_words");
    CHECK_THAT(std::string(refused.message()), Catch::Contains("index 1"));
  }
}

}  // namespace
}  // namespace weft::router
