// What a prompt's own tokens are said to be: which rows of a chunk are wanted, and what a reader
// sees of each token.

#include "router/prompt_scores.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace weft::router {
namespace {

using Best = std::vector<std::pair<TokenId, float>>;

class Letters : public TokenTable {
 public:
  absl::string_view Bytes(TokenId id) const override {
    static const std::string letters = "abcdefghij";
    return absl::string_view(letters).substr(id, 1);
  }
  bool IsSpecial(TokenId id) const override { return id == 0; }
};

TEST_CASE("Rows of a chunk are wanted once, and none behind the prompt's last token",
          "[router][prompt_scores]") {
  const std::vector<TokenId> prompt = {0, 1, 2, 3, 4};
  PromptScores scores(prompt, 0, nullptr);
  const auto wanted = [&](uint32_t start, uint32_t count) {
    const PromptScores::Rows rows = scores.Wanted(start, count);
    return std::make_pair(rows.begin, rows.count());
  };
  CHECK(wanted(0, 3) == std::make_pair(0u, 3u));
  CHECK(wanted(3, 2) == std::make_pair(3u, 1u));
  CHECK(wanted(4, 1).second == 0);
  // Further chunks may be on their way while nothing has come back.
  CHECK(wanted(1, 1) == std::make_pair(1u, 1u));
  CHECK(scores.Targets(scores.Wanted(1, 2)) == absl::MakeConstSpan(prompt).subspan(2, 2));
  scores.Add(-1, 1, {});
  scores.Add(-2, 1, {});
  // It is prefilled again.
  CHECK(wanted(0, 3) == std::make_pair(2u, 1u));
  CHECK(wanted(0, 2).second == 0);
  CHECK(wanted(0, 100) == std::make_pair(2u, 2u));
  scores.Add(-3, 1, {});
  scores.Add(-4, 1, {});
  CHECK(wanted(0, 5).second == 0);
  // Behind the prompt there is output, prefilled again with it.
  CHECK(wanted(5, 3).second == 0);
}

TEST_CASE("A prompt of one token has nothing to be scored", "[router][prompt_scores]") {
  const Letters letters;
  const PromptScores scores(std::vector<TokenId>{3}, 2, &letters);
  CHECK(scores.Wanted(0, 1).count() == 0);
  CHECK_FALSE(scores.Token(0).has_logprob);
  CHECK(scores.Token(0).bytes == "d");
}

TEST_CASE("A reader sees each token with what was said of it", "[router][prompt_scores]") {
  const Letters letters;
  PromptScores scores(std::vector<TokenId>{0, 5, 6}, 2, &letters);
  scores.Add(-0.5f, 1, Best{{5, -0.5f}, {7, -2}});
  scores.Add(-9, 8, Best{{8, -0.25f}});
  const AnswerToken first = scores.Token(0);
  CHECK(first.id == 0);
  CHECK(first.special);
  CHECK_FALSE(first.has_logprob);
  CHECK(first.top.empty());
  const AnswerToken second = scores.Token(1);
  CHECK(second.id == 5);
  CHECK(second.bytes == "f");
  CHECK(second.has_logprob);
  CHECK(second.logprob == -0.5f);
  CHECK(scores.Rank(1) == 1);
  REQUIRE(second.top.size() == 2);
  CHECK(second.top[1].id == 7);
  CHECK(second.top[1].logprob == -2);
  CHECK(second.top[1].bytes == "h");
  const AnswerToken third = scores.Token(2);
  CHECK(third.logprob == -9);
  CHECK(scores.Rank(2) == 8);
  REQUIRE(third.top.size() == 1);
  CHECK(third.top[0].id == 8);
}

}  // namespace
}  // namespace weft::router
