#include "router/text/stop_matcher.h"

#include <catch2/catch.hpp>
#include <optional>
#include <random>

namespace weft::router {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> stop;

  bool operator==(const Outcome& other) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << '"' << outcome.text << "\" stop "
             << (outcome.stop ? std::to_string(*outcome.stop) : "none");
}

// The rule, written down plainly: the first end at which any stop matches; there the longest, then
// the lowest index.
Outcome Expected(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t length = stops[i].size();
      if (length > end || text.compare(end - length, length, stops[i]) != 0) continue;
      if (!best || length > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, include ? end : end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

// Longest suffix of `text` that begins some stop: all that may be held back.
size_t PartialBytes(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) longest = std::max(longest, n);
    }
  }
  return longest;
}

Outcome Stream(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
               bool include) {
  StopMatcher matcher(stops, include);
  Outcome outcome;
  std::string seen;
  for (const std::string& piece : pieces) {
    const StopMatcher::Result result = matcher.Push(piece);
    outcome.text += result.text;
    seen += piece;
    if (result.matched) {
      outcome.stop = result.stop_index;
      return outcome;
    }
    // Not a byte more is held back than may begin a stop.
    CHECK(outcome.text.size() == seen.size() - PartialBytes(seen, stops));
  }
  outcome.text += matcher.Flush();
  return outcome;
}

void CheckAllCuts(const std::string& text, const std::vector<std::string>& stops) {
  CAPTURE(text, stops);
  for (const bool include : {false, true}) {
    const Outcome expected = Expected(text, stops, include);
    for (size_t a = 0; a <= text.size(); ++a) {
      for (size_t b = a; b <= text.size(); ++b) {
        CAPTURE(a, b);
        CHECK(Stream({text.substr(0, a), text.substr(a, b - a), text.substr(b)}, stops, include) ==
              expected);
      }
    }
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    CHECK(Stream(bytes, stops, include) == expected);
  }
}

TEST_CASE("Stop strings match wherever the text is cut", "[router][text]") {
  CheckAllCuts("Hello world. STOP and more", {"STOP"});
  CheckAllCuts("no stop at all", {"STOP", "###"});
  CheckAllCuts("aaaaab", {"aaab"});
  CheckAllCuts("abababac tail", {"ababac"});
  CheckAllCuts("one\n\ntwo", {"\n\n", "\n"});
  CheckAllCuts("x</s>y", {"</s>", "s>", ">y"});
  CheckAllCuts("abcd", {"bcd", "abcd", "cd"});
  CheckAllCuts("abcd", {"abcdx", "bc"});
  CheckAllCuts(
      "Gr\xC3\xBC\xC3\x9F"
      "e",
      {"\xC3\x9F"});
  CheckAllCuts("", {"x"});
}

TEST_CASE("Stop strings match wherever random texts are cut", "[router][text]") {
  const uint64_t seed = 7;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&random](size_t length_min, size_t length_max) {
    std::string text(length_min + random() % (length_max - length_min + 1), ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 150; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = draw(2, 6);
    CheckAllCuts(draw(0, 14), stops);
  }
}

TEST_CASE("The earliest end wins, and at one end the longest stop string", "[router][text]") {
  StopMatcher earliest({"bcde", "bc"}, false);
  const auto first = earliest.Push("abcde");
  CHECK(first.matched);
  CHECK(first.stop_index == 1);
  CHECK(first.text == "a");
  StopMatcher longest({"cd", "bcd", "bcd"}, false);
  const auto second = longest.Push("abcde");
  CHECK(second.stop_index == 1);
  CHECK(second.text == "a");
}

TEST_CASE("Without stop strings text passes through at once", "[router][text]") {
  StopMatcher matcher({}, false);
  CHECK(matcher.Push("abc").text == "abc");
  CHECK(matcher.Flush().empty());
}

}  // namespace
}  // namespace weft::router
