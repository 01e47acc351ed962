#include "common/reload_news.h"

#include <utility>

#include "absl/status/statusor.h"
#include "common/fnv.h"
#include "common/small_file.h"

namespace weft {

uint64_t ReloadNews::Fingerprint(const absl::Status& status) const {
  Fnv1a<uint64_t> hash;
  hash.AddBytes(status.message());
  for (const std::string& path : paths_) {
    const absl::StatusOr<std::string> text = ReadSmallFile(path, bytes_max_);
    hash.AddNumber(text.ok() ? text->size() : UINT64_MAX);
    if (text.ok()) hash.AddBytes(*text);
  }
  return hash.value();
}

ReloadNews::Kind ReloadNews::Look(const absl::Status& status) {
  if (status.ok()) {
    return std::exchange(bad_, absl::nullopt).has_value() ? Kind::kGoodAgain : Kind::kNone;
  }
  const uint64_t bad = Fingerprint(status);
  return std::exchange(bad_, bad) == bad ? Kind::kNone : Kind::kBad;
}

}  // namespace weft
