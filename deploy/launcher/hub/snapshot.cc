#include "deploy/launcher/hub/snapshot.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/model_path.h"
#include "common/small_file.h"
#include "common/status.h"
#include "deploy/launcher/hub/cache_layout.h"
#include "deploy/launcher/hub/file_list.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/selection.h"

namespace weft::hub {
namespace {

// A link whose blob is not there is no file.
bool IsFile(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Paths below `folder` of files that are there, as a repository writes them.
std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  // Links to directories are not followed.
  auto entry = std::filesystem::recursive_directory_iterator(folder, error);
  for (; !error && entry != std::filesystem::end(entry) && out.size() < kFilesListedMax;
       entry.increment(error)) {
    if (entry.depth() >= static_cast<int>(kPathDepthMax)) entry.disable_recursion_pending();
    if (IsFile(entry->path().string())) {
      out.push_back(entry->path().string().substr(folder.size() + 1));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

class Finder {
 public:
  Finder(const std::string& cache_dir, const ModelId& id, const std::vector<std::string>& include)
      : layout_(cache_dir, id), id_(id), include_(include) {}

  absl::StatusOr<PulledModel> Find() {
    WEFT_ASSIGN_OR_RETURN(const std::string commit, Commit());
    snapshot_ = layout_.Snapshot(commit);
    std::error_code error;
    if (!std::filesystem::is_directory(snapshot_, error)) return NotPulled();
    WEFT_ASSIGN_OR_RETURN(const std::string path, Servable());
    return PulledModel{path, commit};
  }

 private:
  absl::Status NotPulled() const {
    return absl::NotFoundError(absl::StrCat(
        id_.text(), " is no file or directory here, and no model of that name was pulled into ",
        layout_.cache_dir(), "; weft pull ", id_.text(), " fetches it"));
  }

  absl::Status NotWhole(absl::string_view missing) const {
    return absl::NotFoundError(absl::StrCat(id_.text(), " was not pulled whole: ", snapshot_,
                                            " lacks ", missing, "; weft pull ", id_.text(),
                                            " fetches what is missing"));
  }

  absl::StatusOr<std::string> Commit() const {
    const std::string path = layout_.Ref(id_.revision);
    const absl::StatusOr<std::string> text = ReadSmallFile(path, 64);
    if (text.ok()) {
      const absl::string_view commit = absl::StripAsciiWhitespace(*text);
      if (IsCommit(commit)) return std::string(commit);
      return absl::InvalidArgumentError(
          absl::StrCat(path, " names no commit; weft pull ", id_.text(), " writes it anew"));
    }
    if (IsCommit(id_.revision)) return id_.revision;
    if (!absl::IsNotFound(text.status())) return text.status();
    return NotPulled();
  }

  // What of the snapshot can be served.
  absl::StatusOr<std::string> Servable() const {
    const std::vector<std::string> files = FilesBelow(snapshot_);
    const auto has = [&files](absl::string_view path) {
      return std::binary_search(files.begin(), files.end(), path);
    };
    const bool has_safetensors = has(kSafetensorsIndexName) || has(kSafetensorsSingleName);
    std::vector<GgufModel> ggufs = FindGgufModels(files, /*complete=*/true);
    if (!include_.empty()) {
      ggufs.erase(std::remove_if(
                      ggufs.begin(), ggufs.end(),
                      [this](const GgufModel& model) { return !MatchesAny(model.path, include_); }),
                  ggufs.end());
    }
    // Globs that name a .gguf file mean it, also beside safetensors.
    const bool wants_gguf = !include_.empty() && !ggufs.empty();
    if (has_safetensors && !wants_gguf) return SafetensorsFolder(has);
    if (ggufs.size() == 1) return absl::StrCat(snapshot_, "/", ggufs[0].path);
    if (ggufs.size() > 1) return SeveralGguf(ggufs);
    const ModelFileNames found = FindModelFiles(snapshot_);
    if (found.torch) {
      return absl::InvalidArgumentError(
          absl::StrCat(id_.text(), " was pulled with .bin files, which are not served; ",
                       ConvertCommand(snapshot_), " makes safetensors of them"));
    }
    return NotWhole("weights (model.safetensors, or all parts of a .gguf file)");
  }

  template <typename Has>
  absl::StatusOr<std::string> SafetensorsFolder(const Has& has) const {
    if (!has("config.json")) return NotWhole("config.json");
    if (!has(kSafetensorsIndexName)) return snapshot_;
    const std::string index = absl::StrCat(snapshot_, "/", kSafetensorsIndexName);
    WEFT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(index, kIndexBytesMax));
    const auto parts = ParseSafetensorsIndex(text);
    if (!parts.ok()) return Annotate(parts.status(), index);
    for (const std::string& part : *parts) {
      if (!has(part)) return NotWhole(part);
    }
    return snapshot_;
  }

  absl::Status SeveralGguf(const std::vector<GgufModel>& ggufs) const {
    std::string choice;
    for (const GgufModel& model : ggufs) {
      absl::StrAppend(&choice, "\n  ", snapshot_, "/", model.path);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(id_.text(), " was pulled as several .gguf files; name one:", choice));
  }

  const CacheLayout layout_;
  const ModelId& id_;
  const std::vector<std::string>& include_;
  std::string snapshot_;
};

}  // namespace

absl::StatusOr<PulledModel> FindPulledModel(const std::string& cache_dir, const ModelId& id,
                                            const std::vector<std::string>& include) {
  return Finder(cache_dir, id, include).Find();
}

}  // namespace weft::hub
