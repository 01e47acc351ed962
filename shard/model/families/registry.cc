#include "shard/model/families/registry.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "shard/model/families/bloom.h"
#include "shard/model/families/falcon.h"
#include "shard/model/families/gemma.h"
#include "shard/model/families/gpt2.h"
#include "shard/model/families/gpt_bigcode.h"
#include "shard/model/families/gpt_neox.h"
#include "shard/model/families/gptj.h"
#include "shard/model/families/llama.h"
#include "shard/model/families/mistral.h"
#include "shard/model/families/mpt.h"
#include "shard/model/families/opt.h"
#include "shard/model/families/phi.h"
#include "shard/model/families/phi3.h"
#include "shard/model/families/qwen2.h"
#include "shard/model/families/qwen3.h"
#include "shard/model/families/starcoder2.h"

namespace weft::shard {
namespace {

struct Family {
  // The same in model_type and general.architecture so far.
  const char* name;
  absl::StatusOr<ModelDescription> (*from_hf)(const HfConfig&);
  // Null where no architecture of that name is read.
  absl::StatusOr<ModelDescription> (*from_gguf)(const GgufFile&);
};

constexpr Family kFamilies[] = {
    {"llama", LlamaFromHf, LlamaFromGguf},
    // Its GGUF files are "llama".
    {"mistral", MistralFromHf, nullptr},
    {"qwen2", Qwen2FromHf, Qwen2FromGguf},
    {"qwen3", Qwen3FromHf, Qwen3FromGguf},
    {"phi", PhiFromHf, nullptr},
    {"phi3", Phi3FromHf, nullptr},
    {"gpt2", Gpt2FromHf, nullptr},
    {"gpt_bigcode", GptBigcodeFromHf, nullptr},
    {"starcoder2", Starcoder2FromHf, nullptr},
    {"gptj", GptjFromHf, nullptr},
    {"gpt_neox", GptNeoxFromHf, nullptr},
    {"opt", OptFromHf, nullptr},
    {"bloom", BloomFromHf, nullptr},
    {"mpt", MptFromHf, nullptr},
    {"falcon", FalconFromHf, nullptr},
    {"gemma2", Gemma2FromHf, nullptr},
    {"gemma3_text", Gemma3FromHf, nullptr},
};

// The reader of `name`, of those that the families have by `reader` for one file format.
template <typename Reader>
absl::StatusOr<Reader> FindReader(absl::string_view name, absl::string_view where,
                                  Reader Family::*reader) {
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (family.*reader == nullptr) continue;
    if (family.name == name) return family.*reader;
    known.push_back(family.name);
  }
  return absl::UnimplementedError(
      absl::StrCat(where, ": \"", name,
                   "\" is not a known model family; known are: ", absl::StrJoin(known, ", ")));
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeHfModel(const HfConfig& config) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, config.root().GetString("model_type"));
  WEFT_ASSIGN_OR_RETURN(const auto read,
                        FindReader(name, config.root().Where("model_type"), &Family::from_hf));
  return read(config);
}

absl::StatusOr<ModelDescription> DescribeGgufModel(const GgufFile& file) {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view name, file.GetString("general.architecture"));
  WEFT_ASSIGN_OR_RETURN(
      const auto read,
      FindReader(name, absl::StrCat(file.path(), ": general.architecture"), &Family::from_gguf));
  return read(file);
}

}  // namespace weft::shard
