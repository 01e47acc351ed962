#include "deploy/launcher/last_words.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "boost/json.hpp"

namespace weft::launcher {
namespace {

// Null where the line is no JSON.
boost::json::value ParseLine(absl::string_view line) {
  boost::system::error_code error;
  boost::json::value parsed = boost::json::parse({line.data(), line.size()}, error);
  return error ? boost::json::value() : parsed;
}

// The message of {"ts":...,"level":"error","process":...,"msg":...}.
std::string JsonError(absl::string_view line) {
  // Most lines are of requests, and are not parsed for this.
  if (!absl::StrContains(line, "error")) return "";
  const boost::json::value parsed = ParseLine(line);
  const boost::json::object* const object = parsed.if_object();
  if (object == nullptr) return "";
  const boost::json::value* const level = object->if_contains("level");
  const boost::json::value* const message = object->if_contains("msg");
  if (level == nullptr || message == nullptr || !message->is_string() || *level != "error") {
    return "";
  }
  const boost::json::string& text = message->get_string();
  return std::string(text.data(), text.size());
}

// The message of "12:34:56.789 error router: ...".
absl::string_view TextError(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
  constexpr size_t kTimeBytes = 12;
  if (words.size() < 4 || words[0].size() != kTimeBytes || words[1] != "error" ||
      !absl::EndsWith(words[2], ":")) {
    return "";
  }
  return words[3];
}

}  // namespace

bool IsJsonObject(absl::string_view line) {
  return absl::StartsWith(line, "{") && ParseLine(line).is_object();
}

std::string LastWords(absl::string_view line) {
  std::string words;
  if (absl::ConsumePrefix(&line, "weft-shard: ") || absl::ConsumePrefix(&line, "weft-router: ")) {
    words = std::string(line);
  } else if (absl::StartsWith(line, "{")) {
    words = JsonError(line);
  } else {
    words = std::string(TextError(line));
  }
  if (words.size() > kLastWordsBytesMax) words.resize(kLastWordsBytesMax);
  return words;
}

}  // namespace weft::launcher
