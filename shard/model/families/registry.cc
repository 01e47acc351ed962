#include "shard/model/families/registry.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/status.h"
#include "shard/model/families/bloom.h"
#include "shard/model/families/deepseek.h"
#include "shard/model/families/falcon.h"
#include "shard/model/families/gemma.h"
#include "shard/model/families/gpt2.h"
#include "shard/model/families/gpt_bigcode.h"
#include "shard/model/families/gpt_neox.h"
#include "shard/model/families/gpt_oss.h"
#include "shard/model/families/gptj.h"
#include "shard/model/families/llama.h"
#include "shard/model/families/mistral.h"
#include "shard/model/families/mixtral.h"
#include "shard/model/families/mpt.h"
#include "shard/model/families/opt.h"
#include "shard/model/families/phi.h"
#include "shard/model/families/phi3.h"
#include "shard/model/families/qwen2.h"
#include "shard/model/families/qwen2_moe.h"
#include "shard/model/families/qwen3.h"
#include "shard/model/families/qwen3_moe.h"
#include "shard/model/families/stablelm.h"
#include "shard/model/families/starcoder2.h"

namespace weft::shard {
namespace {

template <typename File>
struct Family {
  // What model_type or general.architecture says.
  const char* name;
  absl::StatusOr<ModelDescription> (*read)(const File&);
};

// A row a line, which clang-format would put into columns: a new family changes one line.
// clang-format off
constexpr Family<HfConfig> kHfFamilies[] = {
    {"llama", LlamaFromHf},
    {"mistral", MistralFromHf},
    {"mixtral", MixtralFromHf},
    {"qwen2", Qwen2FromHf},
    {"qwen2_moe", Qwen2MoeFromHf},
    {"qwen3", Qwen3FromHf},
    {"qwen3_moe", Qwen3MoeFromHf},
    {"phi", PhiFromHf},
    {"phi3", Phi3FromHf},
    {"gpt2", Gpt2FromHf},
    {"gpt_bigcode", GptBigcodeFromHf},
    {"stablelm", StablelmFromHf},
    {"starcoder2", Starcoder2FromHf},
    {"gptj", GptjFromHf},
    {"gpt_neox", GptNeoxFromHf},
    {"gpt_oss", GptOssFromHf},
    {"opt", OptFromHf},
    {"bloom", BloomFromHf},
    {"mpt", MptFromHf},
    {"falcon", FalconFromHf},
    {"gemma2", Gemma2FromHf},
    {"gemma3_text", Gemma3FromHf},
    {"deepseek_v2", DeepseekV2FromHf},
    {"deepseek_v3", DeepseekV3FromHf},
};

// Mistral's and Mixtral's GGUF files are "llama".
constexpr Family<GgufFile> kGgufFamilies[] = {
    {"llama", LlamaFromGguf},
    {"qwen2", Qwen2FromGguf},
    {"qwen2moe", Qwen2MoeFromGguf},
    {"qwen3", Qwen3FromGguf},
    {"qwen3moe", Qwen3MoeFromGguf},
    {"phi3", Phi3FromGguf},
    {"gpt2", Gpt2FromGguf},
    {"starcoder", GptBigcodeFromGguf},
    {"stablelm", StablelmFromGguf},
    {"starcoder2", Starcoder2FromGguf},
    {"gptneox", GptNeoxFromGguf},
    {"gpt-oss", GptOssFromGguf},
    {"bloom", BloomFromGguf},
    {"falcon", FalconFromGguf},
    {"gemma2", Gemma2FromGguf},
    {"gemma3", Gemma3FromGguf},
};
// clang-format on

template <typename File>
absl::StatusOr<ModelDescription> Read(absl::Span<const Family<File>> families,
                                      absl::string_view name, absl::string_view where,
                                      const File& file) {
  std::vector<std::string> known;
  for (const Family<File>& family : families) {
    if (family.name == name) return family.read(file);
    known.push_back(family.name);
  }
  return absl::UnimplementedError(
      absl::StrCat(where, ": \"", name,
                   "\" is not a known model family; known are: ", absl::StrJoin(known, ", ")));
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeHfModel(const HfConfig& config) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, config.root().GetString("model_type"));
  return Read<HfConfig>(kHfFamilies, name, config.root().Where("model_type"), config);
}

absl::StatusOr<ModelDescription> DescribeGgufModel(const GgufFile& file) {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view name, file.GetString("general.architecture"));
  return Read<GgufFile>(kGgufFamilies, name, absl::StrCat(file.path(), ": general.architecture"),
                        file);
}

}  // namespace weft::shard
