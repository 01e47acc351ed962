#include "deploy/launcher/hub/selection.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/gguf_parts.h"
#include "common/model_path.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/progress.h"

namespace weft::hub {
namespace {

// What weft, or `weft convert`, reads beside the weights.
constexpr absl::string_view kSmallFiles[] = {"config.json",
                                             "generation_config.json",
                                             kTokenizerJsonName,
                                             "tokenizer_config.json",
                                             "chat_template.jinja",
                                             "chat_template.json",
                                             "special_tokens_map.json",
                                             "added_tokens.json",
                                             kVocabName,
                                             kMergesName,
                                             kSentencePieceName};

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

bool IsTorchWeights(absl::string_view path) {
  return !absl::StrContains(path, '/') && absl::StartsWith(path, "pytorch_model") &&
         (absl::EndsWith(path, ".bin") || path == kTorchIndexName);
}

// "4.1 GiB  dir/model-Q4_K_M.gguf" of each, a line each.
std::string Choice(const std::vector<GgufModel>& models, const std::vector<HubFile>& files) {
  std::map<std::string, uint64_t> bytes;
  for (const HubFile& file : files) bytes[file.path] = file.bytes.value_or(0);
  std::string out;
  for (const GgufModel& model : models) {
    uint64_t sum = 0;
    for (const std::string& path : model.files) sum += bytes[path];
    absl::StrAppend(&out, "\n  ", FormatBytes(sum), "  ", model.path,
                    model.files.size() == 1
                        ? ""
                        : absl::StrCat(" and ", model.files.size() - 1, " more parts"));
  }
  return out;
}

class Selecting {
 public:
  Selecting(const std::vector<HubFile>& files, const std::vector<std::string>& exclude)
      : files_(files), exclude_(exclude) {
    for (const HubFile& file : files) {
      if (!MatchesAny(file.path, exclude)) paths_.push_back(file.path);
    }
  }

  bool Has(absl::string_view path) const { return absl::c_linear_search(paths_, path); }

  absl::StatusOr<Selection> OfWeft() {
    const std::vector<GgufModel> ggufs = FindGgufModels(paths_, /*complete=*/false);
    std::set<std::string> taken;
    for (const absl::string_view name : kSmallFiles) {
      if (Has(name)) taken.insert(std::string(name));
    }
    Selection out;
    if (Has(kSafetensorsIndexName)) {
      taken.insert(kSafetensorsIndexName);
      out.index = kSafetensorsIndexName;
    } else if (Has(kSafetensorsSingleName)) {
      taken.insert(kSafetensorsSingleName);
    } else if (!ggufs.empty()) {
      if (ggufs.size() > 1) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the model is there as several .gguf files; choose one, as in --include '*",
            BaseName(ggufs.front().path), "':", Choice(ggufs, files_)));
      }
      // It holds all that the small files say.
      taken = std::set<std::string>(ggufs[0].files.begin(), ggufs[0].files.end());
    } else {
      const size_t before = taken.size();
      for (const std::string& path : paths_) {
        if (IsTorchWeights(path)) taken.insert(path);
      }
      if (taken.size() == before) {
        return absl::NotFoundError(
            "it has no weights that weft reads (model.safetensors, .gguf, pytorch_model.bin); "
            "--include GLOB takes other files");
      }
      out.note = "it has its weights as .bin files alone: weft convert makes safetensors of them";
    }
    if (out.note.empty() && !ggufs.empty() && taken.count(ggufs[0].path) == 0) {
      out.note = absl::StrCat(
          "it is there as .gguf too, which --include takes instead, as in "
          "--include '*",
          BaseName(ggufs.front().path), "'");
    }
    Take(taken, &out);
    return out;
  }

  absl::StatusOr<Selection> OfGlobs(const std::vector<std::string>& include) {
    std::set<std::string> taken;
    for (const std::string& glob : include) {
      const size_t before = taken.size();
      bool matched = false;
      for (const std::string& path : paths_) {
        if (!MatchesGlob(path, glob)) continue;
        matched = true;
        taken.insert(path);
      }
      if (!matched && taken.size() == before) {
        return absl::NotFoundError(
            absl::StrCat("--include: no file matches `", glob, "`; it has ", Some()));
      }
    }
    Selection out;
    Take(taken, &out);
    return out;
  }

 private:
  void Take(const std::set<std::string>& taken, Selection* out) const {
    for (const HubFile& file : files_) {
      if (taken.count(file.path) > 0) out->files.push_back(file);
    }
  }

  std::string Some() const {
    constexpr size_t kShown = 20;
    std::string out;
    for (size_t i = 0; i < paths_.size() && i < kShown; ++i) {
      absl::StrAppend(&out, i == 0 ? "" : ", ", paths_[i]);
    }
    if (paths_.size() > kShown) absl::StrAppend(&out, " and ", paths_.size() - kShown, " more");
    return paths_.empty() ? "none" : out;
  }

  const std::vector<HubFile>& files_;
  const std::vector<std::string>& exclude_;
  // Not excluded.
  std::vector<std::string> paths_;
};

}  // namespace

bool MatchesGlob(absl::string_view path, const std::string& glob) {
  const std::string pattern = absl::EndsWith(glob, "/") ? glob + "*" : glob;
  return fnmatch(pattern.c_str(), std::string(path).c_str(), FNM_NOESCAPE) == 0;
}

bool MatchesAny(absl::string_view path, const std::vector<std::string>& globs) {
  return absl::c_any_of(globs, [path](const std::string& glob) { return MatchesGlob(path, glob); });
}

std::vector<GgufModel> FindGgufModels(const std::vector<std::string>& paths, bool complete) {
  // By folder and name without the part's number.
  std::map<std::string, GgufModel> models;
  std::map<std::string, size_t> parts;
  for (const std::string& path : paths) {
    const std::string name = absl::AsciiStrToLower(BaseName(path));
    if (!absl::EndsWith(name, ".gguf") || absl::StartsWith(name, "mmproj") ||
        absl::StrContains(name, "imatrix")) {
      continue;
    }
    const auto part = ParseGgufPartName(path);
    const std::string key = part.has_value() ? absl::StrCat(part->stem, "*", part->count) : path;
    models[key].files.push_back(path);
    parts[key] = part.has_value() ? part->count : 1;
  }
  std::vector<GgufModel> out;
  for (auto& [key, model] : models) {
    if (complete && model.files.size() != parts[key]) continue;
    std::sort(model.files.begin(), model.files.end());
    model.path = model.files.front();
    out.push_back(std::move(model));
  }
  return out;
}

absl::StatusOr<Selection> Select(const std::vector<HubFile>& files,
                                 const std::vector<std::string>& include,
                                 const std::vector<std::string>& exclude) {
  Selecting selecting(files, exclude);
  absl::StatusOr<Selection> out = include.empty() ? selecting.OfWeft() : selecting.OfGlobs(include);
  if (out.ok() && out->files.size() > kFilesPulledMax) {
    return absl::InvalidArgumentError(absl::StrCat("these are ", out->files.size(),
                                                   " files, at most ", kFilesPulledMax,
                                                   " are pulled at once"));
  }
  return out;
}

absl::Status AddIndexed(const std::vector<std::string>& paths, const std::vector<HubFile>& files,
                        const std::vector<std::string>& exclude, Selection* selection) {
  std::map<std::string, const HubFile*> known;
  for (const HubFile& file : files) known[file.path] = &file;
  std::set<std::string> taken;
  for (const HubFile& file : selection->files) taken.insert(file.path);
  for (const std::string& path : paths) {
    if (taken.count(path) > 0 || MatchesAny(path, exclude)) continue;
    const auto found = known.find(path);
    if (found == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat(selection->index, " names ", Shown(path),
                                                     ", which the model does not have"));
    }
    selection->files.push_back(*found->second);
  }
  return absl::OkStatus();
}

}  // namespace weft::hub
