#include "router/doors/http/parameters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/doors/http/json.h"
#include "router/doors/resume.h"
#include "router/errors.h"

namespace weft::router {
namespace {

void ReadLogitBias(FieldReader& fields, SamplingParams* sampling) {
  const boost::json::object* object = fields.Object("logit_bias");
  if (object == nullptr) return;
  if (object->size() > kLogitBiasMax) {
    fields.Fail("logit_bias", absl::StrCat("must have at most ", kLogitBiasMax, " entries, not ",
                                           object->size()));
    return;
  }
  for (const auto& member : *object) {
    const absl::string_view key(member.key().data(), member.key().size());
    uint32_t id = 0;
    if (!absl::SimpleAtoi(key, &id) || id >= kVocabMax || absl::StrCat(id) != key) {
      fields.Fail("logit_bias",
                  absl::StrCat("has the key \"", key.substr(0, 64),
                               "\"; keys must be token ids between 0 and ", kVocabMax - 1));
      return;
    }
    const bool number = member.value().is_number();
    const double bias = number ? member.value().to_number<double>() : 0.0;
    if (!number || !(bias >= -kLogitBiasAbsMax && bias <= kLogitBiasAbsMax)) {
      fields.Fail("logit_bias", absl::StrCat("of token ", id, " must be a number between ",
                                             -kLogitBiasAbsMax, " and ", kLogitBiasAbsMax));
      return;
    }
    sampling->logit_bias.emplace_back(id, static_cast<float>(bias));
  }
  std::sort(sampling->logit_bias.begin(), sampling->logit_bias.end());
}

void ReadIdSet(FieldReader& fields, absl::string_view name, size_t ids_max,
               std::vector<TokenId>* out) {
  const boost::json::array* list = fields.Array(name);
  if (list == nullptr || list->empty()) return;
  if (list->size() > ids_max) {
    fields.Fail(name,
                absl::StrCat("must hold at most ", ids_max, " token ids, not ", list->size()));
    return;
  }
  absl::StatusOr<std::vector<TokenId>> ids = ReadTokenIds(*list, absl::StrCat(fields.path(), name));
  if (!ids.ok()) return fields.Fail(ids.status());
  SortIds(&*ids);
  *out = *std::move(ids);
}

void ReadBadWords(FieldReader& fields, GenerateInput* input) {
  const boost::json::array* list = fields.Array("bad_words");
  if (list == nullptr) return;
  if (list->size() > kBadWordsMax) {
    fields.Fail("bad_words",
                absl::StrCat("must hold at most ", kBadWordsMax, " strings, not ", list->size()));
    return;
  }
  for (const boost::json::value& one : *list) {
    const boost::json::string* text = one.if_string();
    if (text == nullptr || text->empty() || text->size() > kBadWordBytesMax) {
      fields.Fail("bad_words",
                  absl::StrCat("must hold strings of 1 to ", kBadWordBytesMax, " bytes"));
      return;
    }
    input->bad_words.emplace_back(text->data(), text->size());
  }
}

}  // namespace

void ReadCommonParameters(const SamplingParams& defaults, FieldReader& fields,
                          GenerateInput* input) {
  SamplingParams& sampling = input->sampling;
  sampling = defaults;
  if (const std::optional<int64_t> top_k = fields.Integer("top_k", -1, kVocabMax)) {
    sampling.top_k = static_cast<uint32_t>(std::max<int64_t>(0, *top_k));
  }
  const auto read = [&fields](const char* name, const Range& range, float* value) {
    *value = fields.Float(name, range).value_or(*value);
  };
  read("top_p", kPositiveShareRange, &sampling.top_p);
  read("min_p", kShareRange, &sampling.min_p);
  read("typical_p", kPositiveShareRange, &sampling.typical_p);
  read("repetition_penalty", kRepetitionPenaltyRange, &sampling.repetition_penalty);
  sampling.presence_penalty = fields.Float("presence_penalty", kPenaltyRange).value_or(0.0f);
  sampling.frequency_penalty = fields.Float("frequency_penalty", kPenaltyRange).value_or(0.0f);
  ReadLogitBias(fields, &sampling);
  input->seed = fields.Bits("seed");
  input->ignore_eos = fields.Bool("ignore_eos").value_or(false);
  const std::optional<int64_t> priority =
      fields.Integer("priority", -kPriorityAbsMax, kPriorityAbsMax);
  if (priority.has_value()) input->priority = static_cast<int32_t>(*priority);
  ReadIdSet(fields, "stop_token_ids", kStopTokenIdsMax, &input->stop_token_ids);
  ReadIdSet(fields, "allowed_token_ids", kAllowedIdsMax, &input->allowed_token_ids);
  ReadBadWords(fields, input);
  input->watermark = fields.Bool("watermark").value_or(false);
  input->skip_special_tokens = fields.Bool("skip_special_tokens").value_or(true);
  input->cache_salt = fields.String("cache_salt").value_or("");
  if (input->cache_salt.size() > kCacheSaltBytesMax) {
    fields.Fail("cache_salt", absl::StrCat("must have at most ", kCacheSaltBytesMax, " bytes"));
  }
  const std::optional<int64_t> deadline_ms = fields.Integer("deadline_ms", 1, kDeadlineMsMax);
  if (deadline_ms.has_value()) {
    input->deadline_us = MonotonicClock().NowUs() + *deadline_ms * 1000;
  }
  input->add_special_tokens = fields.Bool("add_special_tokens").value_or(input->add_special_tokens);
}

void ReadMinTokens(FieldReader& fields, absl::string_view name, GenerateInput* input) {
  const std::optional<int64_t> count = fields.Integer(name, 0, kContextTokensMax);
  if (!count.has_value()) return;
  input->sampling.min_tokens = static_cast<uint32_t>(*count);
  if (*count > input->max_tokens.value_or(kContextTokensMax)) {
    fields.Fail(
        name, absl::StrCat("must not be more than the limit on new tokens, ", *input->max_tokens));
  }
}

void ReadStop(FieldReader& fields, absl::string_view name, GenerateInput* input) {
  const boost::json::value* value = fields.Value(name);
  if (value == nullptr) return;
  const auto add = [&](const boost::json::value& one) {
    const boost::json::string* text = one.if_string();
    if (text == nullptr) {
      fields.Fail(name, absl::StrCat("must hold strings, not ", JsonKindName(one)));
    } else if (text->empty() || text->size() > kStopSequenceBytesMax) {
      fields.Fail(name,
                  absl::StrCat("must hold strings of 1 to ", kStopSequenceBytesMax, " bytes"));
    } else {
      input->stop_sequences.emplace_back(text->data(), text->size());
    }
  };
  if (value->is_string()) {
    add(*value);
  } else if (const boost::json::array* list = value->if_array()) {
    if (list->size() > kStopSequencesMax) {
      fields.Fail(name, absl::StrCat("must hold at most ", kStopSequencesMax, " strings, not ",
                                     list->size()));
      return;
    }
    for (const boost::json::value& one : *list) add(one);
  } else {
    fields.Fail(name,
                absl::StrCat("must be a string or a list of strings, not ", JsonKindName(*value)));
  }
}

std::optional<uint32_t> ReadTokenCount(FieldReader& fields, absl::string_view name) {
  const std::optional<int64_t> count = fields.Integer(name, 1, kContextTokensMax);
  if (!count.has_value()) return std::nullopt;
  return static_cast<uint32_t>(*count);
}

void ReadResume(FieldReader& fields, bool is_stream, GenerateInput* input,
                std::vector<std::string>* unknown) {
  const boost::json::object* object = fields.Object("resume");
  if (object == nullptr) return;
  if (!is_stream) fields.Fail("resume", "is for streams: a whole answer cannot break off");
  FieldReader resume(*object, absl::StrCat(fields.path(), "resume."));
  const boost::json::array* ids = resume.Array("output_ids");
  if (resume.ok() && ids == nullptr) resume.Fail("output_ids", "is required");
  input->resume.emplace();
  if (ids != nullptr && !ids->empty()) {
    absl::StatusOr<std::vector<TokenId>> read =
        ReadTokenIds(*ids, absl::StrCat(resume.path(), "output_ids"));
    if (read.ok()) {
      input->resume->output_ids = *std::move(read);
    } else {
      resume.Fail(read.status());
    }
  }
  const std::optional<uint64_t> seed = resume.Bits("seed");
  std::string fingerprint = resume.String("fingerprint").value_or("");
  resume.Fail(SettleResume(std::move(fingerprint), seed, resume.path(),
                           absl::StrCat(fields.path(), "seed"), input));
  fields.Fail(resume.status());
  resume.AddUnknown(unknown);
}

void ReadParts(const DoorContext& doors, FieldReader& fields, ToolChoice choice,
               GenerateInput* input) {
  const ModelFacts model = doors.entrance().Model();
  absl::StatusOr<std::shared_ptr<const PartsSpec>> parts =
      MakePartsSpec(std::move(choice), model.tool_parser, model.reasoning_parser, "tool_choice");
  fields.Fail(parts.status());
  if (parts.ok()) input->parts = *std::move(parts);
}

absl::StatusOr<std::vector<TokenId>> ReadTokenIds(const boost::json::array& array,
                                                  absl::string_view name) {
  if (array.empty()) return FieldError(name, "must not be empty");
  if (array.size() > kContextTokensMax) {
    return FieldError(name, absl::StrCat("has more than ", kContextTokensMax, " token ids"));
  }
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (const boost::json::value& value : array) {
    const std::optional<int64_t> id = WholeNumber(value);
    if (!id.has_value() || *id < 0 || *id >= kVocabMax) {
      return FieldError(name, absl::StrCat("must hold token ids, integers between 0 and ",
                                           kVocabMax - 1, "; at index ", ids.size(), " is ",
                                           id.has_value() ? absl::StrCat(*id)
                                                          : std::string(JsonKindName(value))));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

absl::Status CheckPromptText(absl::string_view text, absl::string_view name) {
  if (text.empty()) return FieldError(name, "must not be empty");
  if (text.size() > kPromptBytesMax) {
    return FieldError(name, absl::StrCat("is longer than ", kPromptBytesMax, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status ReadModelName(const DoorContext& doors, FieldReader& fields) {
  const std::string model = fields.String("model").value_or("");
  WEFT_RETURN_IF_ERROR(fields.status());
  return doors.CheckModel(model);
}

absl::StatusOr<boost::json::value> ParseBody(absl::string_view body) {
  absl::StatusOr<boost::json::value> value = ParseJson(body);
  if (value.ok() && !value->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body must be a JSON object, not ", JsonKindName(*value)));
  }
  return value;
}

absl::Status FinishFields(const DoorContext& doors, Door door,
                          absl::Span<FieldReader* const> readers,
                          std::vector<std::string>* ignored) {
  for (const FieldReader* reader : readers) {
    if (!reader->ok()) return reader->status();
  }
  for (const FieldReader* reader : readers) {
    for (std::string& name : reader->Unknown()) ignored->push_back(std::move(name));
  }
  if (ignored->empty()) return absl::OkStatus();
  if (doors.options().strict_fields) return FieldError(ignored->front(), "is unknown");
  doors.probe().IgnoredFields(door, static_cast<uint32_t>(ignored->size()));
  return absl::OkStatus();
}

}  // namespace weft::router
