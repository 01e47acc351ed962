// The JSON files of a Hugging Face model directory (config.json, generation_config.json) with
// checked access: every error names file and key, what was expected and what was found. Read while
// a model is opened, by one thread; knows no family.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json/fwd.hpp"

namespace weft::shard {

// A view of one JSON object; lives as long as the HfConfig it came from. A key whose value is null
// counts as absent, as in transformers.
class HfObject {
 public:
  HfObject(const boost::json::object* object, std::string where)
      : object_(object), where_(std::move(where)) {}

  bool Has(absl::string_view key) const;
  // Whether the key is there with the value null, where that means something else than no key.
  bool IsNull(absl::string_view key) const;
  // NOT_FOUND when absent, INVALID_ARGUMENT when of another type or out of the type's range. Get…Or
  // gives `otherwise` when absent.
  absl::StatusOr<uint32_t> GetUint(absl::string_view key) const;
  absl::StatusOr<uint32_t> GetUintOr(absl::string_view key, uint32_t otherwise) const;
  absl::StatusOr<float> GetFloat(absl::string_view key) const;
  absl::StatusOr<float> GetFloatOr(absl::string_view key, float otherwise) const;
  absl::StatusOr<bool> GetBoolOr(absl::string_view key, bool otherwise) const;
  absl::StatusOr<std::string> GetString(absl::string_view key) const;
  absl::StatusOr<std::string> GetStringOr(absl::string_view key, absl::string_view otherwise) const;
  absl::StatusOr<HfObject> GetObject(absl::string_view key) const;
  // One number or a list of them, each at most `max`; empty when absent.
  absl::StatusOr<std::vector<uint32_t>> GetUints(absl::string_view key, uint32_t max) const;
  // A list of numbers; empty when absent.
  absl::StatusOr<std::vector<float>> GetFloats(absl::string_view key) const;
  // A list of strings; empty when absent.
  absl::StatusOr<std::vector<std::string>> GetStrings(absl::string_view key) const;

  // "<file>: <key>".
  std::string Where(absl::string_view key) const;
  // INVALID_ARGUMENT "<file>: <key>: <what>".
  absl::Status Bad(absl::string_view key, absl::string_view what) const;

 private:
  // Null when absent.
  const boost::json::value* Find(absl::string_view key) const;
  absl::Status Missing(absl::string_view key) const;
  absl::Status WrongType(absl::string_view key, absl::string_view want,
                         const boost::json::value& found) const;
  absl::StatusOr<uint32_t> ToUint(absl::string_view key, const boost::json::value& value,
                                  uint32_t max) const;

  const boost::json::object* object_;
  // File, and inside nested objects the keys that lead here: "…/config.json: rope_scaling.".
  std::string where_;
};

class HfConfig {
 public:
  // Reads config.json and, where there is one, generation_config.json of `directory`.
  static absl::StatusOr<HfConfig> Load(const std::string& directory);

  HfConfig(HfConfig&&) noexcept;
  ~HfConfig();

  // config.json.
  HfObject root() const;
  // generation_config.json; an empty object when there is no such file.
  HfObject generation() const;

 private:
  struct Impl;
  explicit HfConfig(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads a JSON file whose top is an object. RESOURCE_EXHAUSTED when it is larger than `bytes_max`.
absl::StatusOr<boost::json::object> ReadJsonObject(const std::string& path, size_t bytes_max);

}  // namespace weft::shard
