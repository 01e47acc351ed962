#include "deploy/convert/checkpoint.h"

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "common/model_path.h"
#include "common/status.h"
#include "shard/model/hf_config.h"

namespace weft::convert {
namespace {

constexpr size_t kIndexBytesMax = 64u << 20;
constexpr size_t kPartsMax = 1024;
// Tied tensors are written once for each name. Twice the bytes of the files is a small model whose
// head is its embedding; a file of names for one storage would fill the disk.
constexpr uint64_t kSharedBytesFactorMax = 4;

std::string Shown(absl::string_view name) { return absl::CHexEscape(name.substr(0, 200)); }

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  absl::Status added = checkpoint.AddFile(absl::StrCat(directory, "/", kTorchSingleName));
  if (absl::IsNotFound(added)) {
    added = checkpoint.AddIndex(directory, absl::StrCat(directory, "/", kTorchIndexName));
  }
  WEFT_RETURN_IF_ERROR(added);
  WEFT_RETURN_IF_ERROR(checkpoint.CheckTogether(directory));
  return checkpoint;
}

absl::Status Checkpoint::AddFile(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<TorchFile> file, TorchFile::Open(path));
  for (const TorchTensor& tensor : file->tensors()) tensors_.push_back({&tensor, &file->file()});
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Checkpoint::AddIndex(const std::string& directory, const std::string& index_path) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::object index,
                        shard::ReadJsonObject(index_path, kIndexBytesMax));
  const boost::json::value* const map = index.if_contains("weight_map");
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(index_path, ": weight_map: is missing or no object"));
  }
  // Part -> names that the index has there.
  std::map<std::string, std::vector<absl::string_view>> parts;
  for (const auto& [key, value] : map->get_object()) {
    const absl::string_view name(key.data(), key.size());
    const auto bad = [&](const auto&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path, ": weight_map: ", Shown(name), ": ", what...));
    };
    if (!value.is_string()) return bad("expected a file name");
    const std::string file(value.get_string().data(), value.get_string().size());
    // Parts lie beside the index; a path that leads elsewhere is no model of ours.
    if (absl::StrContains(file, "/") || !absl::EndsWith(file, ".bin")) {
      return bad("\"", Shown(file), "\" is no plain name of a .bin file");
    }
    parts[file].push_back(name);
    if (parts.size() > kPartsMax) return bad("more than ", kPartsMax, " parts");
  }
  for (const auto& [file, names] : parts) {
    const std::string path = absl::StrCat(directory, "/", file);
    const absl::Status added = AddFile(path);
    if (absl::IsNotFound(added)) {
      return absl::NotFoundError(
          absl::StrCat(path, ": is missing; ", index_path, " lists it: copy or download it too"));
    }
    WEFT_RETURN_IF_ERROR(added);
    absl::flat_hash_set<absl::string_view> there;
    for (const TorchTensor& tensor : files_.back()->tensors()) there.insert(tensor.name);
    for (const absl::string_view name : names) {
      if (there.contains(name)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(index_path, ": weight_map: ", Shown(name), ": is not in ", path,
                       ": copy or download the index and its parts together"));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckTogether(const std::string& directory) {
  absl::flat_hash_map<absl::string_view, const SourceTensor*> seen;
  uint64_t file_bytes = 0;
  for (const auto& file : files_) file_bytes += file->file().bytes().size();
  for (const SourceTensor& source : tensors_) {
    const auto [first, is_new] = seen.emplace(source.tensor->name, &source);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Shown(source.tensor->name),
                                                     " is both in ", first->second->file->path(),
                                                     " and in ", source.file->path()));
    }
    // No view has more bytes than its file, so the sum cannot pass what 64 bits hold.
    bytes_ += source.tensor->view.bytes();
    if (bytes_ > kSharedBytesFactorMax * file_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory, ": its tensors share storages and would take more than ",
          kSharedBytesFactorMax, " times the ", file_bytes, " bytes of its .bin files"));
    }
  }
  if (!tensors_.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(directory, ": its .bin files hold no tensor"));
}

}  // namespace weft::convert
