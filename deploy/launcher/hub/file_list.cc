#include "deploy/launcher/hub/file_list.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "boost/json.hpp"
#include "common/status.h"
#include "common/utf8.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/model_id.h"

namespace weft::hub {
namespace {

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
  });
}

// No part of a terminal's language: C0, DEL, C1.
bool IsPlainText(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (bytes == 0 || first < 0x20 || first == 0x7f) return false;
    if (first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

absl::StatusOr<boost::json::value> ParseJson(absl::string_view json, absl::string_view what) {
  boost::json::parse_options options;
  options.max_depth = 32;
  boost::json::error_code error;
  boost::json::value value =
      boost::json::parse({json.data(), json.size()}, error, boost::json::storage_ptr(), options);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is no JSON: ", error.message()));
  }
  return value;
}

absl::optional<std::string> StringAt(const boost::json::object& object, const char* key) {
  const boost::json::value* const value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return absl::nullopt;
  return std::string(value->get_string().data(), value->get_string().size());
}

absl::StatusOr<absl::optional<uint64_t>> SizeAt(const boost::json::object& object) {
  const boost::json::value* const value = object.if_contains("size");
  if (value == nullptr || value->is_null()) return absl::optional<uint64_t>();
  boost::json::error_code error;
  const auto bytes = value->to_number<uint64_t>(error);
  if (error || bytes > kFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("its size is no number in 0 .. ", kFileBytesMax));
  }
  return absl::optional<uint64_t>(bytes);
}

absl::StatusOr<HubFile> ParseSibling(const boost::json::value& value) {
  if (!value.is_object()) return absl::InvalidArgumentError("an entry is no object");
  const boost::json::object& object = value.get_object();
  const auto path = StringAt(object, "rfilename");
  if (!path.has_value()) return absl::InvalidArgumentError("an entry has no rfilename");
  WEFT_RETURN_IF_ERROR(CheckRepositoryPath(*path));
  HubFile file;
  file.path = *path;
  WEFT_ASSIGN_OR_RETURN(file.bytes, SizeAt(object));
  const boost::json::value* const lfs = object.if_contains("lfs");
  if (lfs != nullptr && lfs->is_object()) {
    // The outer size is that of the file as well; this one belongs to the digest.
    WEFT_ASSIGN_OR_RETURN(const auto bytes, SizeAt(lfs->get_object()));
    if (bytes.has_value()) file.bytes = bytes;
    auto digest = StringAt(lfs->get_object(), "sha256");
    if (!digest.has_value()) digest = StringAt(lfs->get_object(), "oid");
    if (digest.has_value()) {
      WEFT_ASSIGN_OR_RETURN(file.blob, ParseBlobName(absl::StripPrefix(*digest, "sha256:")));
    }
  } else if (const auto blob = StringAt(object, "blobId"); blob.has_value()) {
    WEFT_ASSIGN_OR_RETURN(file.blob, ParseBlobName(*blob));
  }
  return file;
}

}  // namespace

std::string Shown(absl::string_view text) {
  std::string out = IsPlainText(text) ? std::string(text) : absl::CHexEscape(text);
  if (out.size() > kErrorTextBytesMax) {
    out = absl::StrCat(absl::CHexEscape(text).substr(0, kErrorTextBytesMax), "...");
  }
  return out;
}

absl::StatusOr<BlobName> ParseBlobName(absl::string_view text) {
  absl::ConsumePrefix(&text, "W/");
  if (absl::ConsumePrefix(&text, "\"")) absl::ConsumeSuffix(&text, "\"");
  BlobName name;
  name.text = std::string(text);
  if (IsHex(text) && text.size() == 64) {
    name.kind = BlobName::Kind::kSha256;
  } else if (IsHex(text) && text.size() == 40) {
    name.kind = BlobName::Kind::kGitBlob;
  } else if (text.empty() || text.size() > 128 || text.front() == '.' ||
             !std::all_of(text.begin(), text.end(), [](char c) {
               return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
                      c == '.' || c == ':' || c == '=' || c == '+';
             })) {
    return absl::InvalidArgumentError(
        absl::StrCat("`", Shown(text), "` can be no version of a file"));
  }
  return name;
}

absl::Status CheckRepositoryPath(absl::string_view path) {
  const auto refuse = [path](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the hub names a file `", Shown(path), "`, which ", why));
  };
  if (path.empty()) return refuse("is no name");
  if (path.size() > kPathBytesMax) return refuse("is too long");
  if (!IsPlainText(path)) return refuse("has control characters or is no UTF-8");
  size_t depth = 0;
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == "..") return refuse("leads out of its folder");
    if (part.size() > kNameBytesMax) return refuse("is too long");
    if (++depth > kPathDepthMax) return refuse("lies in too many folders");
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelFileList> ParseFileList(absl::string_view json) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::value value, ParseJson(json, "the hub's list of files"));
  if (!value.is_object()) return absl::InvalidArgumentError("the hub's list is no object");
  const boost::json::object& object = value.get_object();
  ModelFileList list;
  const auto commit = StringAt(object, "sha");
  if (!commit.has_value() || !IsCommit(*commit)) {
    return absl::InvalidArgumentError("the hub's list names no commit (`sha`)");
  }
  list.commit = *commit;
  const boost::json::value* const siblings = object.if_contains("siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    return absl::InvalidArgumentError("the hub's list has no files (`siblings`)");
  }
  if (siblings->get_array().size() > kFilesListedMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the hub's list has more than ", kFilesListedMax, " files"));
  }
  std::set<std::string> seen;
  for (const boost::json::value& sibling : siblings->get_array()) {
    absl::StatusOr<HubFile> file = ParseSibling(sibling);
    if (!file.ok()) return Annotate(file.status(), "the hub's list");
    if (!seen.insert(file->path).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the hub's list names ", Shown(file->path), " twice"));
    }
    list.files.push_back(*std::move(file));
  }
  return list;
}

absl::StatusOr<std::vector<std::string>> ParseSafetensorsIndex(absl::string_view json) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::value value, ParseJson(json, "the index"));
  const boost::json::value* const map =
      value.is_object() ? value.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError("the index has no weight_map");
  }
  std::set<std::string> files;
  for (const auto& entry : map->get_object()) {
    if (!entry.value().is_string()) {
      return absl::InvalidArgumentError("the index's weight_map names what is no file");
    }
    const auto& text = entry.value().get_string();
    const absl::string_view path(text.data(), text.size());
    WEFT_RETURN_IF_ERROR(CheckRepositoryPath(path));
    files.insert(std::string(path));
    if (files.size() > kFilesPulledMax) {
      return absl::InvalidArgumentError("the index's weight_map names too many files");
    }
  }
  if (files.empty()) return absl::InvalidArgumentError("the index's weight_map is empty");
  return std::vector<std::string>(files.begin(), files.end());
}

}  // namespace weft::hub
