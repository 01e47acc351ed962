#include "router/doors/identity/key_file.h"

#include <algorithm>
#include <charconv>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "boost/json.hpp"
#include "common/limits.h"
#include "common/small_file.h"
#include "common/status.h"
#include "router/doors/identity/json_tree.h"

namespace weft::router {
namespace {

using Kind = JsonNode::Kind;

// Turns a tree into a KeyFile. Every error names the line and the path of the value.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  absl::StatusOr<KeyFile> Read(const JsonNode& root) {
    WEFT_RETURN_IF_ERROR(Expect(root, "the file", Kind::kObject));
    WEFT_RETURN_IF_ERROR(CheckMembers(root, "", {"tenants"}));
    const JsonNode* const tenants = root.Find("tenants");
    if (tenants == nullptr) return Error(root, "tenants", "is missing: an array of tenants");
    WEFT_RETURN_IF_ERROR(Expect(*tenants, "tenants", Kind::kArray));
    if (tenants->items.size() > kTenantsMax) {
      return Error(*tenants, "tenants",
                   absl::StrCat(tenants->items.size(), " are more than ", kTenantsMax));
    }
    for (size_t i = 0; i < tenants->items.size(); ++i) {
      WEFT_RETURN_IF_ERROR(ReadTenant(tenants->items[i], absl::StrCat("tenants[", i, "]")));
    }
    return std::move(file_);
  }

 private:
  absl::Status Error(const JsonNode& node, absl::string_view where, absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ":", node.line, ": `", where, "`: ", what));
  }

  absl::Status Expect(const JsonNode& node, absl::string_view where, Kind kind) const {
    if (node.kind == kind) return absl::OkStatus();
    return Error(node, where,
                 absl::StrCat("expected ", KindName(kind), ", not ", KindName(node.kind)));
  }

  // Refuses members of other names than `known`: a limit that is spelt wrongly would be none.
  absl::Status CheckMembers(const JsonNode& object, absl::string_view where,
                            absl::Span<const absl::string_view> known) const {
    for (size_t i = 0; i < object.names.size(); ++i) {
      bool found = false;
      for (const absl::string_view name : known) found = found || name == object.names[i];
      if (found) continue;
      const std::string path = absl::StrCat(where, where.empty() ? "" : ".", object.names[i]);
      std::string names;
      for (const absl::string_view name : known) {
        absl::StrAppend(&names, names.empty() ? "" : ", ", name);
      }
      return Error(object.items[i], path, absl::StrCat("is unknown; known here: ", names));
    }
    return absl::OkStatus();
  }

  // Leaves *value alone when there is no such member.
  template <typename T>
  absl::Status ReadInteger(const JsonNode& object, absl::string_view where, absl::string_view name,
                           int64_t least, int64_t most, T* value) const {
    const JsonNode* const node = object.Find(name);
    if (node == nullptr) return absl::OkStatus();
    const std::string path = absl::StrCat(where, ".", name);
    WEFT_RETURN_IF_ERROR(Expect(*node, path, Kind::kNumber));
    if (!node->integer.has_value() || *node->integer < least || *node->integer > most) {
      // Zero is how other files say "no limit"; here that would be a tenant shut out by accident.
      constexpr bool kMayBeNone = !std::is_same_v<T, int32_t>;
      return Error(*node, path,
                   absl::StrCat("expected a whole number from ", least, " to ", most,
                                kMayBeNone ? "; for no limit leave it out" : ""));
    }
    *value = *node->integer;
    return absl::OkStatus();
  }

  absl::Status ReadWeight(const JsonNode& object, absl::string_view where, double* weight) const {
    const JsonNode* const node = object.Find("weight");
    if (node == nullptr) return absl::OkStatus();
    const std::string path = absl::StrCat(where, ".weight");
    WEFT_RETURN_IF_ERROR(Expect(*node, path, Kind::kNumber));
    if (!(node->number >= kTenantWeightMin && node->number <= kTenantWeightMax)) {
      return Error(
          *node, path,
          absl::StrCat("expected a number from ", kTenantWeightMin, " to ", kTenantWeightMax));
    }
    *weight = node->number;
    return absl::OkStatus();
  }

  absl::Status ReadLimits(const JsonNode& object, absl::string_view where,
                          TenantLimits* limits) const {
    WEFT_RETURN_IF_ERROR(ReadWeight(object, where, &limits->weight));
    WEFT_RETURN_IF_ERROR(
        ReadInteger(object, where, "requests_max", 1, kTenantRequestsMax, &limits->requests_max));
    WEFT_RETURN_IF_ERROR(ReadInteger(object, where, "tokens_per_minute", 1,
                                     kTenantTokensPerMinuteMax, &limits->tokens_per_minute));
    WEFT_RETURN_IF_ERROR(ReadInteger(object, where, "priority_min", -kPriorityAbsMax,
                                     kPriorityAbsMax, &limits->priority_min));
    WEFT_RETURN_IF_ERROR(ReadInteger(object, where, "priority_max", limits->priority_min,
                                     kPriorityAbsMax, &limits->priority_max));
    // The neutral priority, where the range has it.
    limits->priority_default = std::min(std::max(0, limits->priority_min), limits->priority_max);
    return ReadInteger(object, where, "priority_default", limits->priority_min,
                       limits->priority_max, &limits->priority_default);
  }

  absl::Status ReadTenant(const JsonNode& node, const std::string& where) {
    WEFT_RETURN_IF_ERROR(Expect(node, where, Kind::kObject));
    WEFT_RETURN_IF_ERROR(
        CheckMembers(node, where,
                     {"name", "weight", "requests_max", "tokens_per_minute", "priority_min",
                      "priority_max", "priority_default", "keys"}));
    TenantEntry tenant;
    const JsonNode* const name = node.Find("name");
    const std::string name_path = absl::StrCat(where, ".name");
    if (name == nullptr) return Error(node, name_path, "is missing");
    WEFT_RETURN_IF_ERROR(Expect(*name, name_path, Kind::kString));
    const absl::Status named = CheckTenantName(name->text);
    if (!named.ok()) return Error(*name, name_path, named.message());
    if (!tenant_lines_.emplace(name->text, name->line).second) {
      return Error(*name, name_path,
                   absl::StrCat("\"", name->text, "\" stands in line ", tenant_lines_[name->text],
                                " already"));
    }
    tenant.name = name->text;
    WEFT_RETURN_IF_ERROR(ReadLimits(node, where, &tenant.limits));
    if (const JsonNode* const keys = node.Find("keys"); keys != nullptr) {
      const std::string keys_path = absl::StrCat(where, ".keys");
      WEFT_RETURN_IF_ERROR(Expect(*keys, keys_path, Kind::kArray));
      for (size_t i = 0; i < keys->items.size(); ++i) {
        WEFT_RETURN_IF_ERROR(
            ReadKey(keys->items[i], absl::StrCat(keys_path, "[", i, "]"), &tenant.keys));
      }
    }
    file_.tenants.push_back(std::move(tenant));
    return absl::OkStatus();
  }

  // A key is its digest, or an object with it.
  absl::Status ReadKey(const JsonNode& node, const std::string& where,
                       std::vector<KeyEntry>* keys) {
    KeyEntry key;
    if (node.kind == Kind::kString) {
      WEFT_RETURN_IF_ERROR(ReadDigest(node, where, &key.digest));
    } else if (node.kind == Kind::kObject) {
      WEFT_RETURN_IF_ERROR(CheckMembers(node, where, {"hash", "name", "expires"}));
      const JsonNode* const hash = node.Find("hash");
      if (hash == nullptr) return Error(node, absl::StrCat(where, ".hash"), "is missing");
      WEFT_RETURN_IF_ERROR(ReadDigest(*hash, absl::StrCat(where, ".hash"), &key.digest));
      WEFT_RETURN_IF_ERROR(ReadKeyName(node, where, &key.name));
      WEFT_RETURN_IF_ERROR(ReadExpiry(node, where, &key.expires));
    } else {
      return Error(
          node, where,
          absl::StrCat("expected a string or an object with `hash`, not ", KindName(node.kind)));
    }
    const auto [known, fresh] = key_lines_.emplace(key.digest, node.line);
    if (!fresh) {
      return Error(node, where,
                   absl::StrCat("this key stands in line ", known->second, " already"));
    }
    if (key_lines_.size() > kApiKeysMax) {
      return Error(node, where, absl::StrCat("the file has more than ", kApiKeysMax, " keys"));
    }
    keys->push_back(std::move(key));
    return absl::OkStatus();
  }

  absl::Status ReadDigest(const JsonNode& node, absl::string_view where, KeyDigest* digest) const {
    WEFT_RETURN_IF_ERROR(Expect(node, where, Kind::kString));
    const absl::StatusOr<KeyDigest> parsed = ParseKeyDigest(node.text);
    if (!parsed.ok()) return Error(node, where, parsed.status().message());
    *digest = *parsed;
    return absl::OkStatus();
  }

  absl::Status ReadKeyName(const JsonNode& key, const std::string& where, std::string* name) const {
    const JsonNode* const node = key.Find("name");
    if (node == nullptr) return absl::OkStatus();
    const std::string path = absl::StrCat(where, ".name");
    WEFT_RETURN_IF_ERROR(Expect(*node, path, Kind::kString));
    if (node->text.size() > kApiKeyNameBytesMax) {
      return Error(*node, path, absl::StrCat("is longer than ", kApiKeyNameBytesMax, " bytes"));
    }
    *name = node->text;
    return absl::OkStatus();
  }

  absl::Status ReadExpiry(const JsonNode& key, const std::string& where, absl::Time* time) const {
    const JsonNode* const node = key.Find("expires");
    if (node == nullptr) return absl::OkStatus();
    const std::string path = absl::StrCat(where, ".expires");
    WEFT_RETURN_IF_ERROR(Expect(*node, path, Kind::kString));
    const absl::StatusOr<absl::Time> parsed = ParseExpiry(node->text);
    if (!parsed.ok()) return Error(*node, path, parsed.status().message());
    *time = *parsed;
    return absl::OkStatus();
  }

  const std::string& path_;
  KeyFile file_;
  absl::flat_hash_map<std::string, int> tenant_lines_;
  absl::flat_hash_map<KeyDigest, int> key_lines_;
};

std::string Quoted(absl::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

// The shortest text that reads back as the same number.
std::string FormatNumber(double value) {
  char buffer[32];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

std::string FormatTenant(const TenantEntry& tenant) {
  const TenantLimits& limits = tenant.limits;
  std::string out = absl::StrCat("    {\n      \"name\": ", Quoted(tenant.name),
                                 ",\n      \"weight\": ", FormatNumber(limits.weight));
  if (limits.requests_max.has_value()) {
    absl::StrAppend(&out, ",\n      \"requests_max\": ", *limits.requests_max);
  }
  if (limits.tokens_per_minute.has_value()) {
    absl::StrAppend(&out, ",\n      \"tokens_per_minute\": ", *limits.tokens_per_minute);
  }
  absl::StrAppend(&out, ",\n      \"priority_min\": ", limits.priority_min,
                  ",\n      \"priority_max\": ", limits.priority_max,
                  ",\n      \"priority_default\": ", limits.priority_default,
                  ",\n      \"keys\": [");
  const char* separator = "\n";
  for (const KeyEntry& key : tenant.keys) {
    absl::StrAppend(&out, separator, "        ", FormatKeyEntry(key));
    separator = ",\n";
  }
  absl::StrAppend(&out, tenant.keys.empty() ? "]\n    }" : "\n      ]\n    }");
  return out;
}

}  // namespace

TenantEntry* KeyFile::Find(absl::string_view tenant) {
  for (TenantEntry& entry : tenants) {
    if (entry.name == tenant) return &entry;
  }
  return nullptr;
}

size_t KeyFile::keys() const {
  size_t count = 0;
  for (const TenantEntry& tenant : tenants) count += tenant.keys.size();
  return count;
}

absl::StatusOr<KeyFile> ParseKeyFile(const std::string& path, absl::string_view text) {
  WEFT_ASSIGN_OR_RETURN(const JsonNode root, ParseJsonTree(path, text));
  return Reader(path).Read(root);
}

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kKeyFileBytesMax);
  if (!absl::IsNotFound(text.status())) return text;
  return absl::NotFoundError(absl::StrCat(
      text.status().message(), "; `weft key new --tenant NAME --file ", path, "` makes one"));
}

absl::StatusOr<KeyFile> LoadKeyFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadKeyFile(path));
  return ParseKeyFile(path, text);
}

std::string FormatKeyEntry(const KeyEntry& key) {
  std::string out = absl::StrCat("{\"hash\": ", Quoted(FormatKeyDigest(key.digest)));
  if (!key.name.empty()) absl::StrAppend(&out, ", \"name\": ", Quoted(key.name));
  if (key.expires != absl::InfiniteFuture()) {
    absl::StrAppend(&out, ", \"expires\": ", Quoted(FormatExpiry(key.expires)));
  }
  return absl::StrCat(out, "}");
}

std::string FormatKeyFile(const KeyFile& file) {
  std::string out = "{\n  \"tenants\": [";
  const char* separator = "\n";
  for (const TenantEntry& tenant : file.tenants) {
    absl::StrAppend(&out, separator, FormatTenant(tenant));
    separator = ",\n";
  }
  absl::StrAppend(&out, file.tenants.empty() ? "]\n}\n" : "\n  ]\n}\n");
  return out;
}

absl::Status CheckTenantName(absl::string_view name) {
  bool good = !name.empty() && name.size() <= kTenantNameBytesMax;
  for (const char c : name) {
    good = good &&
           (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-');
  }
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat("expected 1 to ", kTenantNameBytesMax,
                                                   " of letters, digits, `.`, `_` and `-`"));
  }
  if (name == kAnonymousTenant) {
    return absl::InvalidArgumentError(
        "`anonymous` is the tenant of a server without keys; choose another name");
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> ParseExpiry(absl::string_view text) {
  absl::Time time;
  std::string error;
  // The formats also know words like "infinite-future".
  const bool digits = !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
  if (digits && (absl::ParseTime("%Y-%m-%d", text, absl::UTCTimeZone(), &time, &error) ||
                 absl::ParseTime(absl::RFC3339_full, text, &time, &error))) {
    return time;
  }
  return absl::InvalidArgumentError(
      "expected a date like 2027-01-31 (its first moment, UTC) or a time like "
      "2027-01-31T18:00:00Z");
}

std::string FormatExpiry(absl::Time expires) {
  const absl::TimeZone utc = absl::UTCTimeZone();
  const absl::Time day = absl::FromCivil(absl::ToCivilDay(expires, utc), utc);
  if (day == expires) return absl::FormatTime("%Y-%m-%d", expires, utc);
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E*SZ", expires, utc);
}

}  // namespace weft::router
