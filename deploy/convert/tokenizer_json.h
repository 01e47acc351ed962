// The tokenizer.json of a model directory that has only the older files: vocab.json and merges.txt
// (byte-level: GPT-2, GPT-J, OPT, Phi, Qwen 2), or tokenizer.model (SentencePiece's BPE: Llama,
// Mistral, Phi-3, Gemma). Makes what transformers' convert_slow_tokenizer makes of them, so that a
// text has the same ids. Used by `weft convert`, one thread.

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weft::convert {

// The bytes of the file. INVALID_ARGUMENT or UNIMPLEMENTED, naming file and field, for damaged
// files and for kinds of tokenizers that are not known here.
absl::StatusOr<std::string> MakeTokenizerJson(const std::string& directory);

}  // namespace weft::convert
