#include "shard/model/families/registry.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "shard/model/families/llama.h"

namespace weft::shard {
namespace {

struct Family {
  // The same in model_type and general.architecture so far.
  const char* name;
  absl::StatusOr<ModelDescription> (*from_hf)(const HfConfig&);
  absl::StatusOr<ModelDescription> (*from_gguf)(const GgufFile&);
};

constexpr Family kFamilies[] = {
    {"llama", LlamaFromHf, LlamaFromGguf},
};

absl::StatusOr<const Family*> FindFamily(const std::string& name, absl::string_view where) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return absl::UnimplementedError(
      absl::StrCat(where, ": \"", name, "\" is not a known model family; known are: ",
                   absl::StrJoin(kFamilies, ", ", [](std::string* out, const Family& family) {
                     absl::StrAppend(out, family.name);
                   })));
}

}  // namespace

absl::StatusOr<ModelDescription> DescribeHfModel(const HfConfig& config) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, config.root().GetString("model_type"));
  WEFT_ASSIGN_OR_RETURN(const Family* const family,
                        FindFamily(name, config.root().Where("model_type")));
  return family->from_hf(config);
}

absl::StatusOr<ModelDescription> DescribeGgufModel(const GgufFile& file) {
  WEFT_ASSIGN_OR_RETURN(const absl::string_view name, file.GetString("general.architecture"));
  WEFT_ASSIGN_OR_RETURN(
      const Family* const family,
      FindFamily(std::string(name), absl::StrCat(file.path(), ": general.architecture")));
  return family->from_gguf(file);
}

}  // namespace weft::shard
