#include "shard/control/sampling_fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::shard {
namespace {

absl::Status OutOfRange(const std::string& field, absl::string_view name, double value,
                        absl::string_view range) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ".", name, ": ", value, " is not in ", range));
}

// The conditions are written so that NaN fails them.
absl::Status CheckRanges(const v1::SamplingParams& message, const std::string& field) {
  if (!(message.temperature() >= 0.0f && message.temperature() <= kTemperatureMax)) {
    return OutOfRange(field, "temperature", message.temperature(), "[0, 100]");
  }
  if (!(message.top_p() > 0.0f && message.top_p() <= 1.0f)) {
    return OutOfRange(field, "top_p", message.top_p(), "(0, 1]");
  }
  if (!(message.min_p() >= 0.0f && message.min_p() <= 1.0f)) {
    return OutOfRange(field, "min_p", message.min_p(), "[0, 1]");
  }
  if (!(message.typical_p() > 0.0f && message.typical_p() <= 1.0f)) {
    return OutOfRange(field, "typical_p", message.typical_p(), "(0, 1]");
  }
  if (!(message.repetition_penalty() >= kRepetitionPenaltyMin &&
        message.repetition_penalty() <= kRepetitionPenaltyMax)) {
    return OutOfRange(field, "repetition_penalty", message.repetition_penalty(), "[0.01, 10]");
  }
  if (!(std::fabs(message.presence_penalty()) <= 2.0f)) {
    return OutOfRange(field, "presence_penalty", message.presence_penalty(), "[-2, 2]");
  }
  if (!(std::fabs(message.frequency_penalty()) <= 2.0f)) {
    return OutOfRange(field, "frequency_penalty", message.frequency_penalty(), "[-2, 2]");
  }
  if (!(message.mask_penalty() >= 0.0f && message.mask_penalty() <= kMaskPenaltyMax)) {
    return OutOfRange(field, "mask_penalty", message.mask_penalty(), "[0, 100]");
  }
  if (message.top_logprobs() > kTopLogprobsMax) {
    return OutOfRange(field, "top_logprobs", message.top_logprobs(), "[0, 20]");
  }
  if (message.top_logprobs() > 0 && !message.logprobs()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".top_logprobs: needs logprobs to be set"));
  }
  return absl::OkStatus();
}

absl::Status ParseBias(const v1::SamplingParams& message, const std::string& field,
                       uint32_t vocab_size, SamplingParams* params) {
  if (static_cast<size_t>(message.logit_bias_size()) > kLogitBiasMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ".logit_bias: ", message.logit_bias_size(), " entries, at most ", kLogitBiasMax));
  }
  params->logit_bias.reserve(static_cast<size_t>(message.logit_bias_size()));
  for (int i = 0; i < message.logit_bias_size(); ++i) {
    const weft::v1::LogitBias& entry = message.logit_bias(i);
    const auto name = [&] { return absl::StrCat(field, ".logit_bias[", i, "]"); };
    if (entry.id() >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), ".id: ", entry.id(), " is not below the vocabulary's ", vocab_size));
    }
    if (i > 0 && entry.id() <= message.logit_bias(i - 1).id()) {
      return absl::InvalidArgumentError(absl::StrCat(name(), ".id: ids must ascend"));
    }
    if (!(std::fabs(entry.bias()) <= kLogitBiasAbsMax)) {
      return OutOfRange(name(), "bias", entry.bias(), "[-100, 100]");
    }
    params->logit_bias.emplace_back(entry.id(), entry.bias());
  }
  return absl::OkStatus();
}

absl::Status ParseHeldIds(const v1::SamplingParams& message, const std::string& field,
                          uint32_t vocab_size, SamplingParams* params) {
  const auto refuse = [&field](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".held_ids: ", what));
  };
  if (static_cast<size_t>(message.held_ids_size()) > kHeldIdsMax) {
    return refuse(absl::StrCat(message.held_ids_size(), " ids, at most ", kHeldIdsMax));
  }
  for (const uint32_t id : message.held_ids()) {
    if (id >= vocab_size) {
      return refuse(absl::StrCat(id, " is not below the vocabulary's ", vocab_size));
    }
    if (!params->held_ids.empty() && id <= params->held_ids.back()) {
      return refuse("ids must ascend");
    }
    params->held_ids.push_back(id);
  }
  params->min_tokens = message.min_tokens();
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseSampling(const v1::SamplingParams& message, const std::string& field,
                           uint32_t vocab_size, SamplingParams* params) {
  WEFT_RETURN_IF_ERROR(CheckRanges(message, field));
  WEFT_RETURN_IF_ERROR(ParseBias(message, field, vocab_size, params));
  WEFT_RETURN_IF_ERROR(ParseHeldIds(message, field, vocab_size, params));
  params->temperature = message.temperature() < kTemperatureMin ? 0.0f : message.temperature();
  params->top_k = message.top_k();
  params->top_p = message.top_p();
  params->min_p = message.min_p();
  params->typical_p = message.typical_p();
  params->repetition_penalty = message.repetition_penalty();
  params->presence_penalty = message.presence_penalty();
  params->mask_penalty = message.mask_penalty();
  params->frequency_penalty = message.frequency_penalty();
  params->seed = message.seed();
  params->logprobs = message.logprobs();
  params->top_logprobs = message.top_logprobs();
  return absl::OkStatus();
}

}  // namespace weft::shard
