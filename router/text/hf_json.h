// JSON files of a Hugging Face model directory, with where they came from for messages. Private to
// router/text; used once at start-up, by one thread.

#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::router {

struct HfJson {
  std::string path;
  boost::json::object values;

  // INVALID_ARGUMENT that names the file and the key.
  absl::Status Wrong(absl::string_view key, absl::string_view expected) const;
  // Null when the key is absent or null.
  const boost::json::value* Find(const char* key) const;
};

// Contents of a file of at most 8 MiB, "" when there is none.
absl::StatusOr<std::string> ReadOptionalFile(const std::string& path);

// Without values when there is no such file; INVALID_ARGUMENT when it holds no JSON object.
absl::StatusOr<HfJson> ReadHfJson(const std::string& path);

}  // namespace weft::router
