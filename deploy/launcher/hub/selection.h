// Which of a model's files are pulled: those that weft reads, or those that globs name. And whether
// a set of files is a whole model. Pure.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/launcher/hub/file_list.h"

namespace weft::hub {

// As people name files: '*' any characters, '/' too; '?' one; '[ab]' one of these. A pattern that
// ends in '/' means all below.
bool MatchesGlob(absl::string_view path, const std::string& glob);
bool MatchesAny(absl::string_view path, const std::vector<std::string>& globs);

// The files of one GGUF model: one, or all parts of a split one.
struct GgufModel {
  // To be given to --model: the only file, or the first part.
  std::string path;
  std::vector<std::string> files;
};
// Those among `paths`, sorted; what belongs beside a model (pictures' projectors, importance
// matrices) is left out. `complete`: only those of which all parts are there.
std::vector<GgufModel> FindGgufModels(const std::vector<std::string>& paths, bool complete);

struct Selection {
  std::vector<HubFile> files;
  // The files are not all yet: those that this one names (ParseSafetensorsIndex) come to it.
  // Empty = they are.
  std::string index;
  // What else there is, to be said; empty = nothing.
  std::string note;
};

// Without `include` what weft reads: configuration, tokenizer, chat template, and weights in
// safetensors; else the only GGUF model; else .bin files, for `weft convert`. With `include` what
// these globs match, and nothing else. In both cases without what `exclude` matches. NOT_FOUND when
// nothing matches, INVALID_ARGUMENT, with the choice, when there are several GGUF models.
absl::StatusOr<Selection> Select(const std::vector<HubFile>& files,
                                 const std::vector<std::string>& include,
                                 const std::vector<std::string>& exclude);

// Adds `paths`, which an index names, to `selection`. INVALID_ARGUMENT when `files` lacks one.
absl::Status AddIndexed(const std::vector<std::string>& paths, const std::vector<HubFile>& files,
                        const std::vector<std::string>& exclude, Selection* selection);

}  // namespace weft::hub
