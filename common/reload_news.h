// What there is to say about readings of files that are read again and again: a bad content is an
// error once, not at each look, and the first good reading after it is worth a line. Used by one
// thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/optional.h"

namespace weft {

class ReloadNews {
 public:
  enum class Kind { kNone, kBad, kGoodAgain };

  // `paths` of the files, of at most `bytes_max` bytes each; longer ones count as being alike.
  ReloadNews(std::vector<std::string> paths, size_t bytes_max)
      : paths_(std::move(paths)), bytes_max_(bytes_max) {}

  // Of a reading that has just ended with `status`: kBad when neither this error nor this content
  // was the last one's, kGoodAgain when the last one was bad. Reads the files after an error.
  Kind Look(const absl::Status& status);

 private:
  // Of the error and of what the files hold.
  uint64_t Fingerprint(const absl::Status& status) const;

  const std::vector<std::string> paths_;
  const size_t bytes_max_;
  // Of the last reading, when it was bad.
  absl::optional<uint64_t> bad_;
};

}  // namespace weft
