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

std::optional<GgufPartName> ParseGgufPartName(absl::string_view path) {
  if (path.size() < kTail || !absl::EndsWith(path, kExtension)) return std::nullopt;
  const absl::string_view tail = path.substr(path.size() - kTail);
  GgufPartName name{path.substr(0, path.size() - kTail)};
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf ||
      !ParseDigits(tail.substr(1, kDigits), &name.part) ||
      !ParseDigits(tail.substr(1 + kDigits + kOf.size(), kDigits), &name.count)) {
    return std::nullopt;
  }
  return name;
}

absl::StatusOr<std::vector<std::string>> GgufPartPaths(const std::string& path) {
  const std::optional<GgufPartName> name = ParseGgufPartName(path);
  if (!name.has_value()) return std::vector<std::string>{path};
  if (name->count > kGgufPartsMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is by its name one of ", name->count,
                                                   " parts; a model has ", kGgufPartsMax,
                                                   " at most"));
  }
  if (name->part == 0 || name->part > name->count) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is by its name part ", name->part,
                                                   " of ", name->count, "; parts count from 1 to ",
                                                   name->count));
  }
  std::vector<std::string> paths;
  for (size_t i = 1; i <= name->count; ++i) {
    paths.push_back(absl::StrFormat("%s-%05d-of-%05d.gguf", name->stem, i, name->count));
  }
  return paths;
}

}  // namespace weft
