#include "common/gguf_parts.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

constexpr absl::string_view kExtension = ".gguf";
constexpr absl::string_view kOf = "-of-";
constexpr size_t kDigits = 5;
// "-00001-of-00003.gguf"
constexpr size_t kTail = 1 + kDigits + 4 + kDigits + 5;

bool ParseDigits(absl::string_view text, size_t* number) {
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
  }
  return absl::SimpleAtoi(text, number);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> GgufPartPaths(const std::string& path) {
  const std::vector<std::string> alone = {path};
  if (path.size() < kTail || !absl::EndsWith(path, kExtension)) return alone;
  const absl::string_view tail = absl::string_view(path).substr(path.size() - kTail);
  size_t part = 0;
  size_t count = 0;
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf ||
      !ParseDigits(tail.substr(1, kDigits), &part) ||
      !ParseDigits(tail.substr(1 + kDigits + kOf.size(), kDigits), &count)) {
    return alone;
  }
  if (part == 0 || part > count || count > kGgufPartsMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is by its name part ", part, " of ",
                                                   count, "; parts count from 1, and a model has ",
                                                   kGgufPartsMax, " at most"));
  }
  const absl::string_view stem = absl::string_view(path).substr(0, path.size() - kTail);
  std::vector<std::string> paths;
  for (size_t i = 1; i <= count; ++i) {
    paths.push_back(absl::StrFormat("%s-%05d-of-%05d.gguf", stem, i, count));
  }
  return paths;
}

}  // namespace weft
