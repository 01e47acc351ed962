#include "router/text/sampling_defaults.h"

#include <boost/json.hpp>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/range.h"
#include "router/text/hf_json.h"

namespace weft::router {
namespace {

constexpr char kFile[] = "generation_config.json";

// The number under `key`, or `otherwise`.
absl::StatusOr<float> Number(const HfJson& config, const char* key, const Range& range,
                             float otherwise) {
  const boost::json::value* value = config.Find(key);
  if (value == nullptr) return otherwise;
  const double number = value->is_number() ? value->to_number<double>() : -1;
  if (!value->is_number() || !range.Contains(number)) {
    return config.Wrong(key, absl::StrCat("a number ", range.Text()));
  }
  return static_cast<float>(number);
}

}  // namespace

absl::StatusOr<SamplingParams> ReadSamplingDefaults(const std::string& model_path) {
  SamplingParams defaults;
  if (!std::filesystem::is_directory(model_path)) return defaults;
  WEFT_ASSIGN_OR_RETURN(const HfJson config,
                        ReadHfJson((std::filesystem::path(model_path) / kFile).string()));
  const boost::json::value* do_sample = config.Find("do_sample");
  if (do_sample != nullptr && !do_sample->is_bool()) return config.Wrong("do_sample", "a boolean");
  if (do_sample != nullptr && !do_sample->get_bool()) {
    // What such a file says of samplers is of no effect with transformers either.
    defaults.temperature = 0;
  } else {
    WEFT_ASSIGN_OR_RETURN(defaults.temperature,
                          Number(config, "temperature", {0, kTemperatureMax}, 1));
    WEFT_ASSIGN_OR_RETURN(const float top_k, Number(config, "top_k", {0, kVocabMax}, 0));
    defaults.top_k = static_cast<uint32_t>(top_k);
    WEFT_ASSIGN_OR_RETURN(defaults.top_p, Number(config, "top_p", kPositiveShareRange, 1));
    WEFT_ASSIGN_OR_RETURN(defaults.min_p, Number(config, "min_p", kShareRange, 0));
    WEFT_ASSIGN_OR_RETURN(defaults.typical_p, Number(config, "typical_p", kPositiveShareRange, 1));
  }
  WEFT_ASSIGN_OR_RETURN(defaults.repetition_penalty,
                        Number(config, "repetition_penalty", kRepetitionPenaltyRange, 1));
  return defaults;
}

std::string SamplingDefaultsText(const SamplingParams& defaults) {
  const SamplingParams neutral;
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, auto value, auto otherwise) {
    if (value != otherwise) parts.push_back(absl::StrCat(name, "=", value));
  };
  add("temperature", defaults.temperature, neutral.temperature);
  add("top_k", defaults.top_k, neutral.top_k);
  add("top_p", defaults.top_p, neutral.top_p);
  add("min_p", defaults.min_p, neutral.min_p);
  add("typical_p", defaults.typical_p, neutral.typical_p);
  add("repetition_penalty", defaults.repetition_penalty, neutral.repetition_penalty);
  return parts.empty() ? "none" : absl::StrJoin(parts, " ");
}

}  // namespace weft::router
