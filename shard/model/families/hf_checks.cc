#include "shard/model/families/hf_checks.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "shard/model/families/rope_keys.h"

namespace weft::shard {
namespace {

constexpr struct {
  const char* name;
  Activation activation;
} kActivations[] = {
    {"silu", Activation::kSilu},          {"swish", Activation::kSilu},
    {"gelu", Activation::kGeluErf},       {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh}, {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
};

absl::Status Expect(const HfObject& root, const char* key, bool otherwise, bool expected) {
  WEFT_ASSIGN_OR_RETURN(const bool value, root.GetBoolOr(key, otherwise));
  if (value == expected) return absl::OkStatus();
  return Unsupported(root.Where(key), value ? "true is not supported; expected false"
                                            : "false is not supported; expected true");
}

}  // namespace

absl::Status RefuseOtherModels(const HfObject& root, absl::string_view architecture,
                               bool reads_quantised) {
  if (!reads_quantised && root.Has("quantization_config")) {
    return Unsupported(root.Where("quantization_config"),
                       "quantised safetensors are not supported; use a checkpoint in F32, F16 or "
                       "BF16, or a GGUF file");
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> architectures,
                        root.GetStrings("architectures"));
  if (architectures.empty() || absl::c_linear_search(architectures, architecture)) {
    return absl::OkStatus();
  }
  return Unsupported(
      root.Where("architectures"),
      absl::StrCat("\"", architectures[0], "\" is not supported; known is: ", architecture));
}

absl::StatusOr<std::vector<uint32_t>> EosFromHf(const HfConfig& config, uint32_t vocab) {
  // generate() takes the end set of generation_config.json where there is one.
  const HfObject generation = config.generation();
  return (generation.Has("eos_token_id") ? generation : config.root())
      .GetUints("eos_token_id", vocab - 1);
}

absl::StatusOr<Activation> ActivationFromHf(const HfObject& root, const char* key,
                                            absl::string_view otherwise) {
  WEFT_ASSIGN_OR_RETURN(const std::string name, root.GetStringOr(key, otherwise));
  std::vector<absl::string_view> known;
  for (const auto& row : kActivations) {
    if (name == row.name) return row.activation;
    known.push_back(row.name);
  }
  return Unsupported(
      root.Where(key),
      absl::StrCat("\"", name, "\" is not supported; known are: ", absl::StrJoin(known, ", ")));
}

absl::Status ExpectFalse(const HfObject& root, const char* key, bool otherwise) {
  return Expect(root, key, otherwise, false);
}

absl::Status ExpectTrue(const HfObject& root, const char* key, bool otherwise) {
  return Expect(root, key, otherwise, true);
}

absl::Status ExpectText(const HfObject& root, const char* key, const char* expected) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, root.GetStringOr(key, expected));
  if (text == expected) return absl::OkStatus();
  return Unsupported(root.Where(key),
                     absl::StrCat("\"", text, "\" is not supported; expected \"", expected, "\""));
}

absl::StatusOr<float> RotaryShareFromHf(const HfObject& root, const char* old_key,
                                        float otherwise) {
  WEFT_ASSIGN_OR_RETURN(float share, root.GetFloatOr(old_key, otherwise));
  if (root.Has("rope_parameters")) {
    WEFT_ASSIGN_OR_RETURN(const HfObject inside, root.GetObject("rope_parameters"));
    WEFT_ASSIGN_OR_RETURN(share, inside.GetFloatOr("partial_rotary_factor", share));
  }
  if (share > 0 && share <= 1) return share;
  return root.Bad(old_key, absl::StrCat("must be above 0 and at most 1, found ", share));
}

absl::StatusOr<uint32_t> RotaryDimsFromHf(const HfObject& root, const char* old_key,
                                          float otherwise, uint32_t head_dim) {
  WEFT_ASSIGN_OR_RETURN(const float share, RotaryShareFromHf(root, old_key, otherwise));
  return static_cast<uint32_t>(static_cast<float>(head_dim) * share);
}

}  // namespace weft::shard
