#include "shard/model/hf_config.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "common/mapped_file.h"
#include "common/status.h"

namespace weft::shard {
namespace {

namespace json = boost::json;

constexpr size_t kConfigBytesMax = 4u << 20;

std::string Shown(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 60) text = absl::StrCat(text.substr(0, 57), "...");
  return text;
}

}  // namespace

absl::StatusOr<json::object> ReadJsonObject(const std::string& path, size_t bytes_max) {
  WEFT_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": has ", file.bytes().size(), " bytes; the limit is ", bytes_max));
  }
  json::error_code error;
  json::value value = json::parse(
      json::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()),
      error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a JSON object"));
  }
  return std::move(value.as_object());
}

const json::value* HfObject::Find(absl::string_view key) const {
  const json::value* const value = object_->if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool HfObject::Has(absl::string_view key) const { return Find(key) != nullptr; }

bool HfObject::IsNull(absl::string_view key) const {
  const json::value* const value = object_->if_contains(json::string_view(key.data(), key.size()));
  return value != nullptr && value->is_null();
}

std::string HfObject::Where(absl::string_view key) const { return absl::StrCat(where_, key); }

absl::Status HfObject::Bad(absl::string_view key, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(where_, key, ": ", what));
}

absl::Status HfObject::Missing(absl::string_view key) const {
  return absl::NotFoundError(absl::StrCat(where_, key, ": is missing"));
}

absl::Status HfObject::WrongType(absl::string_view key, absl::string_view want,
                                 const json::value& found) const {
  return Bad(key, absl::StrCat("expected ", want, ", found ", Shown(found)));
}

absl::StatusOr<uint32_t> HfObject::ToUint(absl::string_view key, const json::value& value,
                                          uint32_t max) const {
  json::error_code error;
  const uint32_t out = value.to_number<uint32_t>(error);
  // to_number takes 8.0 for 8; a count written as a float is a mistake elsewhere.
  if (error || value.is_double() || out > max) {
    return WrongType(key, absl::StrCat("an integer from 0 to ", max), value);
  }
  return out;
}

absl::StatusOr<uint32_t> HfObject::GetUint(absl::string_view key) const {
  const json::value* const value = Find(key);
  if (value == nullptr) return Missing(key);
  return ToUint(key, *value, UINT32_MAX);
}

absl::StatusOr<uint32_t> HfObject::GetUintOr(absl::string_view key, uint32_t otherwise) const {
  return Has(key) ? GetUint(key) : otherwise;
}

absl::StatusOr<float> HfObject::GetFloat(absl::string_view key) const {
  const json::value* const value = Find(key);
  if (value == nullptr) return Missing(key);
  json::error_code error;
  const float out = value->is_number() ? static_cast<float>(value->to_number<double>(error)) : 0;
  if (error || !value->is_number() || !std::isfinite(out)) {
    return WrongType(key, "a finite number", *value);
  }
  return out;
}

absl::StatusOr<float> HfObject::GetFloatOr(absl::string_view key, float otherwise) const {
  return Has(key) ? GetFloat(key) : otherwise;
}

absl::StatusOr<bool> HfObject::GetBoolOr(absl::string_view key, bool otherwise) const {
  const json::value* const value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) return WrongType(key, "true or false", *value);
  return value->get_bool();
}

absl::StatusOr<std::string> HfObject::GetString(absl::string_view key) const {
  const json::value* const value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_string()) return WrongType(key, "a string", *value);
  return std::string(value->get_string().data(), value->get_string().size());
}

absl::StatusOr<std::string> HfObject::GetStringOr(absl::string_view key,
                                                  absl::string_view otherwise) const {
  return Has(key) ? GetString(key) : std::string(otherwise);
}

absl::StatusOr<HfObject> HfObject::GetObject(absl::string_view key) const {
  const json::value* const value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_object()) return WrongType(key, "an object", *value);
  return HfObject(&value->get_object(), absl::StrCat(where_, key, "."));
}

absl::StatusOr<std::vector<uint32_t>> HfObject::GetUints(absl::string_view key,
                                                         uint32_t max) const {
  std::vector<uint32_t> out;
  const json::value* const value = Find(key);
  if (value == nullptr) return out;
  if (!value->is_array()) {
    WEFT_ASSIGN_OR_RETURN(const uint32_t number, ToUint(key, *value, max));
    out.push_back(number);
    return out;
  }
  for (const json::value& element : value->get_array()) {
    WEFT_ASSIGN_OR_RETURN(const uint32_t number, ToUint(key, element, max));
    out.push_back(number);
  }
  return out;
}

absl::StatusOr<std::vector<float>> HfObject::GetFloats(absl::string_view key) const {
  std::vector<float> out;
  const json::value* const value = Find(key);
  if (value == nullptr) return out;
  if (!value->is_array()) return WrongType(key, "a list of numbers", *value);
  for (const json::value& element : value->get_array()) {
    if (!element.is_number()) return WrongType(key, "a list of numbers", *value);
    out.push_back(element.to_number<float>());
  }
  return out;
}

absl::StatusOr<std::vector<std::string>> HfObject::GetStrings(absl::string_view key) const {
  std::vector<std::string> out;
  const json::value* const value = Find(key);
  if (value == nullptr) return out;
  if (!value->is_array()) return WrongType(key, "a list of strings", *value);
  for (const json::value& element : value->get_array()) {
    if (!element.is_string()) return WrongType(key, "a list of strings", *value);
    out.emplace_back(element.get_string().data(), element.get_string().size());
  }
  return out;
}

struct HfConfig::Impl {
  std::string directory;
  json::object config;
  json::object generation;
};

absl::StatusOr<HfConfig> HfConfig::Load(const std::string& directory) {
  auto impl = std::make_unique<Impl>();
  impl->directory = directory;
  WEFT_ASSIGN_OR_RETURN(impl->config,
                        ReadJsonObject(absl::StrCat(directory, "/config.json"), kConfigBytesMax));
  const std::string generation = absl::StrCat(directory, "/generation_config.json");
  std::error_code error;
  if (std::filesystem::exists(generation, error)) {
    WEFT_ASSIGN_OR_RETURN(impl->generation, ReadJsonObject(generation, kConfigBytesMax));
  }
  return HfConfig(std::move(impl));
}

HfConfig::HfConfig(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HfConfig::HfConfig(HfConfig&&) noexcept = default;
HfConfig::~HfConfig() = default;

HfObject HfConfig::root() const {
  return HfObject(&impl_->config, absl::StrCat(impl_->directory, "/config.json: "));
}
HfObject HfConfig::generation() const {
  return HfObject(&impl_->generation, absl::StrCat(impl_->directory, "/generation_config.json: "));
}

}  // namespace weft::shard
