#include "shard/model/families/gguf_keys.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weft::shard {

absl::StatusOr<uint32_t> GgufUint(const GgufFile& file, const std::string& key) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t value, file.GetUint(key));
  if (value > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": key \"", key, "\" is too large: ", value));
  }
  return static_cast<uint32_t>(value);
}

absl::StatusOr<uint32_t> GgufKeys::Uint(absl::string_view name) const {
  return GgufUint(file_, Key(name));
}

absl::StatusOr<uint32_t> GgufKeys::UintOr(absl::string_view name, uint32_t otherwise) const {
  return Has(name) ? Uint(name) : otherwise;
}

absl::StatusOr<float> GgufKeys::Float(absl::string_view name) const {
  WEFT_ASSIGN_OR_RETURN(const double value, file_.GetFloat(Key(name)));
  return static_cast<float>(value);
}

absl::StatusOr<float> GgufKeys::FloatOr(absl::string_view name, float otherwise) const {
  return Has(name) ? Float(name) : otherwise;
}

absl::StatusOr<bool> GgufKeys::BoolOr(absl::string_view name, bool otherwise) const {
  return Has(name) ? file_.GetBool(Key(name)) : otherwise;
}

std::string GgufKeys::Key(absl::string_view name) const {
  return absl::StrCat(architecture_, ".", name);
}

std::string GgufKeys::Where(absl::string_view name) const {
  return absl::StrCat(file_.path(), ": ", Key(name));
}

absl::Status GgufKeys::Bad(absl::string_view name, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(Where(name), ": ", what));
}

}  // namespace weft::shard
