// The generation parameters that have one name and one meaning on all HTTP doors, and the checks of
// values that several doors take under different names. Pure functions over a FieldReader.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/json/value.hpp"
#include "router/doors/chat_json.h"
#include "router/doors/door_context.h"
#include "router/doors/http/fields.h"
#include "router/request.h"

namespace weft::router {

// top_k, top_p, min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty,
// logit_bias, seed, ignore_eos, stop_token_ids, allowed_token_ids, bad_words, watermark, priority,
// add_special_tokens, skip_special_tokens, cache_salt, deadline_ms (which begins here). Temperature
// and the limit on tokens differ by door: `input` has the default of the first afterwards.
// top_k = -1 also means off, as in vLLM.
void ReadCommonParameters(const SamplingParams& defaults, FieldReader& fields,
                          GenerateInput* input);

// `name` (stop): a string or a list of strings.
void ReadStop(FieldReader& fields, absl::string_view name, GenerateInput* input);

// The least length of the answer, after its limit was read: 0 .. that limit.
void ReadMinTokens(FieldReader& fields, absl::string_view name, GenerateInput* input);

// A limit on new tokens, or on prompt tokens: 1 .. kContextTokensMax.
std::optional<uint32_t> ReadTokenCount(FieldReader& fields, absl::string_view name);

// `resume`, read after the sampling parameters. `is_stream`: a whole answer has no part that a
// client could have had. Names inside of it that are unknown go to `unknown`.
void ReadResume(FieldReader& fields, bool is_stream, GenerateInput* input,
                std::vector<std::string>* unknown);

// What is told apart in the answers to `input`, a chat whose request chooses so among its tools.
void ReadParts(const DoorContext& doors, FieldReader& fields, ToolChoice choice,
               GenerateInput* input);

// Token ids of a prompt given as a list of numbers. `name` for errors.
absl::StatusOr<std::vector<TokenId>> ReadTokenIds(const boost::json::array& array,
                                                  absl::string_view name);

// Text of a prompt: not empty, at most kPromptBytesMax.
absl::Status CheckPromptText(absl::string_view text, absl::string_view name);

// `model`, one that is served (DoorContext::CheckModel).
absl::Status ReadModelName(const DoorContext& doors, FieldReader& fields);

// Parses `body` into an object. Errors are INVALID_ARGUMENT without a field.
absl::StatusOr<boost::json::value> ParseBody(absl::string_view body);

// Ends the reading: the first error of `readers`, or that of an unknown field when the server is
// strict. Otherwise `ignored` holds the unknown names, which are counted for `door`.
absl::Status FinishFields(const DoorContext& doors, Door door,
                          absl::Span<FieldReader* const> readers,
                          std::vector<std::string>* ignored);

}  // namespace weft::router
