#include "router/text/hf_json.h"

#include <boost/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mapped_file.h"
#include "common/status.h"

namespace weft::router {
namespace {

namespace json = boost::json;

// tokenizer_config.json is the largest of the files read here; the published ones stay below 2 MB.
constexpr size_t kConfigBytesMax = 8u << 20;

}  // namespace

absl::Status HfJson::Wrong(absl::string_view key, absl::string_view expected) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", key, " is of the wrong type; expected ", expected));
}

const json::value* HfJson::Find(const char* key) const {
  const json::value* value = values.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

absl::StatusOr<std::string> ReadOptionalFile(const std::string& path) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::string();
  WEFT_RETURN_IF_ERROR(file.status());
  const absl::Span<const uint8_t> bytes = file->bytes();
  if (bytes.size() > kConfigBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", bytes.size(), " bytes; at most ",
                                                   kConfigBytesMax, " are read"));
  }
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::StatusOr<HfJson> ReadHfJson(const std::string& path) {
  HfJson config;
  config.path = path;
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadOptionalFile(path));
  if (text.empty()) return config;
  json::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not valid JSON: ", error.message()));
  }
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a JSON object"));
  }
  config.values = std::move(value.as_object());
  return config;
}

}  // namespace weft::router
