#include "shard/weights/tensor_source.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "common/model_path.h"
#include "common/status.h"
#include "shard/model/hf_config.h"

namespace weft::shard {
namespace {

constexpr size_t kIndexBytesMax = 64u << 20;
constexpr size_t kPartsMax = 1024;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> TensorSource::OpenDirectory(
    const std::string& directory) {
  std::unique_ptr<TensorSource> source(new TensorSource());
  source->path_ = directory;
  const std::string single = absl::StrCat(directory, "/", kSafetensorsSingleName);
  const std::string index = absl::StrCat(directory, "/", kSafetensorsIndexName);
  if (Exists(single)) {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> part, SafetensorsFile::Open(single));
    source->tensors_ = part->tensors();
    source->parts_.push_back(std::move(part));
  } else if (Exists(index)) {
    WEFT_RETURN_IF_ERROR(source->AddIndex(index));
  } else {
    std::string way_out;
    if (FindModelFiles(directory).torch) {
      way_out = absl::StrCat("; ", ConvertCommand(directory), " makes it of the .bin files");
    } else if (Exists(directory + "/config.json")) {
      way_out = "; --weights random needs config.json alone, for plans and benchmarks";
    }
    return absl::NotFoundError(absl::StrCat(directory, ": has neither ", kSafetensorsSingleName,
                                            " nor ", kSafetensorsIndexName, way_out));
  }
  source->BuildIndex();
  return source;
}

absl::Status TensorSource::AddIndex(const std::string& index_path) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::object index,
                        ReadJsonObject(index_path, kIndexBytesMax));
  const boost::json::value* const map = index.if_contains("weight_map");
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(index_path, ": weight_map: is missing or no object"));
  }
  // Part -> its tensors by name.
  std::map<std::string, absl::flat_hash_map<std::string, const TensorView*>> parts;
  for (const auto& [key, value] : map->get_object()) {
    const std::string name(key.data(), key.size());
    const auto bad = [&](const auto&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path, ": weight_map: ", absl::CHexEscape(name), ": ", what...));
    };
    if (!value.is_string()) return bad("expected a file name");
    const std::string file(value.get_string().data(), value.get_string().size());
    // Parts lie beside the index; a path that leads elsewhere is no model of ours.
    if (absl::StrContains(file, "/") || !absl::EndsWith(file, ".safetensors")) {
      return bad("\"", absl::CHexEscape(file), "\" is no plain name of a .safetensors file");
    }
    auto part = parts.find(file);
    if (part == parts.end()) {
      if (parts.size() == kPartsMax) return bad("more than ", kPartsMax, " parts");
      absl::StatusOr<std::unique_ptr<SafetensorsFile>> opened =
          SafetensorsFile::Open(absl::StrCat(path_, "/", file));
      if (absl::IsNotFound(opened.status())) {
        return absl::NotFoundError(absl::StrCat(path_, "/", file, ": is missing; ", index_path,
                                                " expects tensor ", absl::CHexEscape(name),
                                                " in it: copy or download it too"));
      }
      WEFT_RETURN_IF_ERROR(opened.status());
      part = parts.try_emplace(file).first;
      for (const TensorView& tensor : (*opened)->tensors()) part->second[tensor.name] = &tensor;
      parts_.push_back(*std::move(opened));
    }
    const auto tensor = part->second.find(name);
    if (tensor == part->second.end())
      return bad("is not in ", path_, "/", file,
                 ": copy or download the index and its parts together");
    tensors_.push_back(*tensor->second);
  }
  return absl::OkStatus();
}

std::unique_ptr<TensorSource> TensorSource::FromGguf(std::unique_ptr<GgufFile> file) {
  std::unique_ptr<TensorSource> source(new TensorSource());
  source->path_ = file->path();
  for (const GgufTensor& tensor : file->tensors()) {
    source->tensors_.push_back({tensor.name,
                                tensor.type,
                                {tensor.dims.rbegin(), tensor.dims.rend()},
                                tensor.data,
                                tensor.file});
  }
  source->gguf_ = std::move(file);
  source->BuildIndex();
  return source;
}

void TensorSource::BuildIndex() {
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
}

const TensorView* TensorSource::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace weft::shard
