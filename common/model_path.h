// What a model's path says before anybody opens it, in router, shard and launcher alike: whether it
// may be a model, which files it has, and what the model is called. Reads names only, and waits for
// nothing.
// Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

// Files of a model directory.
inline constexpr char kSafetensorsSingleName[] = "model.safetensors";
inline constexpr char kSafetensorsIndexName[] = "model.safetensors.index.json";
inline constexpr char kTorchSingleName[] = "pytorch_model.bin";
inline constexpr char kTorchIndexName[] = "pytorch_model.bin.index.json";
inline constexpr char kTokenizerJsonName[] = "tokenizer.json";
inline constexpr char kVocabName[] = "vocab.json";
inline constexpr char kMergesName[] = "merges.txt";
inline constexpr char kSentencePieceName[] = "tokenizer.model";

// Which of them are there, by name.
struct ModelFileNames {
  // Weights: in one file or with an index.
  bool safetensors = false;
  bool torch = false;
  bool tokenizer_json = false;
  bool vocab_and_merges = false;
  bool sentence_piece = false;

  // `weft convert` may make a tokenizer.json.
  bool tokenizer_sources() const { return vocab_and_merges || sentence_piece; }
};
ModelFileNames FindModelFiles(const std::string& directory);

// The command that gives `directory` what it lacks, to be typed as it is.
std::string ConvertCommand(const std::string& directory);

// OK when `path` may be a model: a regular file, or a directory with a config.json. Else NOT_FOUND
// or INVALID_ARGUMENT that begins with `path` and names the way out, for example the .gguf file in
// a directory that has nothing else.
absl::Status CheckModelPath(const std::string& path);

// OK when the model at `path` has the file that its tokenizer is in: a directory needs a
// tokenizer.json, a .gguf file holds its own. NOT_FOUND names the file and the way out.
absl::Status CheckTokenizerFile(const std::string& path);

// The names of a model that its path gives: that of the file or directory, of a .gguf file without
// and with the ending, and before them that of a split model without the number of the part. The
// first is what the model is served as unless it is told otherwise; empty
// when the path has no name.
std::vector<std::string> ModelNames(absl::string_view path);

}  // namespace weft
