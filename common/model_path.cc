#include "common/model_path.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/gguf_parts.h"

namespace weft {
namespace {

constexpr char kNoModel[] =
    "; give a directory in Hugging Face layout (config.json, tokenizer.json, *.safetensors) or a "
    ".gguf file";

// The first .gguf file in a directory by name; empty when there is none.
std::string FirstGguf(const std::string& directory) {
  std::string first;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string path = entry.path().string();
    if (absl::EndsWith(path, ".gguf") && (first.empty() || path < first)) first = path;
  }
  return first;
}

bool Exists(const std::string& directory, const char* name) {
  struct stat info {};
  return stat(absl::StrCat(directory, "/", name).c_str(), &info) == 0;
}

}  // namespace

ModelFileNames FindModelFiles(const std::string& directory) {
  ModelFileNames found;
  found.safetensors =
      Exists(directory, kSafetensorsSingleName) || Exists(directory, kSafetensorsIndexName);
  found.torch = Exists(directory, kTorchSingleName) || Exists(directory, kTorchIndexName);
  found.tokenizer_json = Exists(directory, kTokenizerJsonName);
  found.vocab_and_merges = Exists(directory, kVocabName) && Exists(directory, kMergesName);
  found.sentence_piece = Exists(directory, kSentencePieceName);
  return found;
}

std::string ConvertCommand(const std::string& directory) {
  constexpr absl::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
  if (directory.find_first_not_of(kPlain.data(), 0, kPlain.size()) == std::string::npos) {
    return absl::StrCat("weft convert --from ", directory);
  }
  return absl::StrCat("weft convert --from '", absl::StrReplaceAll(directory, {{"'", "'\\''"}}),
                      "'");
}

absl::Status CheckModelPath(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return absl::ErrnoToStatus(errno, path);
    if (const auto part = ParseGgufPartName(path); part.has_value()) {
      return absl::NotFoundError(absl::StrCat(path, " does not exist: part ", part->part, " of ",
                                              part->count,
                                              " of a split model; copy or download it, beside the "
                                              "others"));
    }
    return absl::NotFoundError(absl::StrCat(path, " does not exist", kNoModel));
  }
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is neither a file nor a directory", kNoModel));
  }
  if (stat((path + "/config.json").c_str(), &info) == 0) return absl::OkStatus();
  const std::string gguf = FirstGguf(path);
  if (gguf.empty()) return absl::NotFoundError(absl::StrCat(path, " has no config.json", kNoModel));
  return absl::NotFoundError(absl::StrCat(path,
                                          " has no config.json but a .gguf file, which is a "
                                          "model by itself: name ",
                                          gguf));
}

absl::Status CheckTokenizerFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return absl::OkStatus();
  const std::string file = absl::StrCat(path, "/", kTokenizerJsonName);
  if (stat(file.c_str(), &info) == 0 || errno != ENOENT) return absl::OkStatus();
  const ModelFileNames found = FindModelFiles(path);
  if (found.tokenizer_sources()) {
    return absl::NotFoundError(
        absl::StrCat(file, " does not exist; ", ConvertCommand(path), " makes it of ",
                     found.vocab_and_merges ? "vocab.json and merges.txt" : kSentencePieceName));
  }
  return absl::NotFoundError(
      absl::StrCat(file,
                   " does not exist; the model directory needs a tokenizer.json (transformers' "
                   "AutoTokenizer(...).save_pretrained writes one)"));
}

std::vector<std::string> ModelNames(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  std::string name = std::filesystem::path(std::string(path)).filename().string();
  if (name.empty() || name == "." || name == "..") {
    // A directory may be called by where one stands; its name is what others see.
    std::error_code ignored;
    name = std::filesystem::canonical(std::string(path), ignored).filename().string();
  }
  if (name.empty()) return {};
  if (!absl::EndsWith(name, ".gguf")) return {name};
  std::vector<std::string> names;
  const std::optional<GgufPartName> part = ParseGgufPartName(name);
  if (part.has_value() && !part->stem.empty()) names.emplace_back(part->stem);
  names.emplace_back(absl::StripSuffix(name, ".gguf"));
  names.push_back(name);
  return names;
}

}  // namespace weft
