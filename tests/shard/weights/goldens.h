// The committed goldens of tests/goldens as the weight tests read them.

#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "boost/json.hpp"
#include "common/check.h"
#include "tests/common/temp_dir.h"

namespace weft::test {

// Below the tree that was built, or below $WEFT_SOURCE_DIR: a test may run on another machine than
// the one that built it.
inline std::string GoldenPath(const std::string& name) {
  const char* const moved = std::getenv("WEFT_SOURCE_DIR");
  return std::string(moved != nullptr ? moved : WEFT_SOURCE_DIR) + "/tests/goldens/" + name;
}

inline boost::json::value ReadGolden(const std::string& name) {
  return boost::json::parse(ReadFile(GoldenPath(name)));
}

// Every tiny model, by folder.
inline const std::vector<std::string>& GoldenModels() {
  static const auto* names = new std::vector<std::string>{"llama_tied_llama3",
                                                          "llama_tied_llama3_gguf",
                                                          "llama_untied_linear_parts",
                                                          "llama_nine_heads_f16",
                                                          "llama_biased",
                                                          "llama_biased_gguf",
                                                          "llama_q8_0",
                                                          "llama_q4_0",
                                                          "llama_q4_1",
                                                          "llama_mixed",
                                                          "llama_super_blocks",
                                                          "mistral",
                                                          "mistral_window",
                                                          "mixtral",
                                                          "mixtral_gguf",
                                                          "qwen2",
                                                          "qwen2_gguf",
                                                          "qwen2_window",
                                                          "qwen2_moe",
                                                          "qwen2_moe_gguf",
                                                          "qwen3",
                                                          "qwen3_gguf",
                                                          "qwen3_moe",
                                                          "qwen3_moe_gguf",
                                                          "phi",
                                                          "phi3",
                                                          "gpt2",
                                                          "gpt_bigcode",
                                                          "stablelm",
                                                          "stablelm_parallel",
                                                          "starcoder2",
                                                          "gptj",
                                                          "gpt_neox",
                                                          "gpt_oss",
                                                          "gpt_oss_gguf",
                                                          "gpt_oss_mxfp4",
                                                          "gpt_oss_mxfp4_gguf",
                                                          "gpt_neox_sequential",
                                                          "deepseek_v2",
                                                          "deepseek_v3",
                                                          "opt",
                                                          "opt_350m",
                                                          "opt_bare",
                                                          "falcon_7b",
                                                          "falcon_40b",
                                                          "falcon_rw",
                                                          "falcon_alibi",
                                                          "falcon_alibi_groups",
                                                          "mpt",
                                                          "bloom",
                                                          "gemma2",
                                                          "gemma3",
                                                          "llama_dynamic",
                                                          "mistral_yarn",
                                                          "qwen2_yarn",
                                                          "qwen2_yarn_gguf",
                                                          "qwen3_window_yarn",
                                                          "qwen3_wide_heads",
                                                          "phi3_longrope",
                                                          "phi3_longrope_gguf",
                                                          "phi3_gguf",
                                                          "gpt2_gguf",
                                                          "gpt_bigcode_gguf",
                                                          "stablelm_gguf",
                                                          "stablelm_parallel_gguf",
                                                          "starcoder2_gguf",
                                                          "gpt_neox_gguf",
                                                          "gpt_neox_sequential_gguf",
                                                          "bloom_gguf",
                                                          "falcon_7b_gguf",
                                                          "falcon_40b_gguf",
                                                          "gemma2_gguf",
                                                          "gemma3_gguf"};
  return *names;
}

// What ModelFiles::Open takes for a tiny model.
inline std::string GoldenModelPath(const std::string& name) {
  const boost::json::value golden = ReadGolden(name + "/golden.json");
  const boost::json::string& model = golden.at("model").as_string();
  const std::string path(model.data(), model.size());
  return path == "." ? GoldenPath(name) : GoldenPath(name) + "/" + path;
}

// The most ranks on which a tiny model is tried: more would cut blocks of its formats.
inline uint32_t GoldenRanksMax(const std::string& name) {
  const boost::json::value golden = ReadGolden(name + "/golden.json");
  const boost::json::value* const ranks = golden.as_object().if_contains("ranks_max");
  return ranks == nullptr ? 4 : ranks->to_number<uint32_t>();
}

}  // namespace weft::test
