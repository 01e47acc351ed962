// The name of a model on a hub, as users type it: org/name, or org/name@revision. What is parsed
// here is safe as a part of a URL and of a path in the cache. Pure.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::hub {

inline constexpr char kMainRevision[] = "main";

struct ModelId {
  std::string org;
  std::string name;
  // A branch, a tag ("refs/pr/3" too) or a commit.
  std::string revision = kMainRevision;

  // "org/name".
  std::string repository() const { return org + "/" + name; }
  // As it is typed: without the revision where that is main.
  std::string text() const;
};

// INVALID_ARGUMENT says what is expected: two names of 1 to 96 letters, digits, '-', '_' and '.',
// as hubs allow them, and perhaps a revision.
absl::StatusOr<ModelId> ParseModelId(absl::string_view text);

// Whether `text` is the whole hash of a commit: 40 digits, a to f in lower case.
bool IsCommit(absl::string_view text);

}  // namespace weft::hub
