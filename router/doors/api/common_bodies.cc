// Fields that several doors have.

#include <utility>

#include "common/limits.h"
#include "router/doors/api/bodies.h"

namespace weft::router::api {

std::vector<ApiBody> AllBodies() {
  std::vector<ApiBody> all;
  for (auto bodies :
       {OpenAiBodies(), ResponsesBodies(), TgiBodies(), AnthropicBodies(), OllamaBodies()}) {
    for (ApiBody& body : bodies) all.push_back(std::move(body));
  }
  return all;
}

ApiFields CommonFields() {
  const std::string bad_word = R"("type":"string","minLength":1)";
  return {
      // The defaults of these and of temperature are the server's own: /info says them.
      Whole("top_k", -1, kVocabMax),
      Real("top_p", kPositiveShareRange),
      Real("min_p", kShareRange),
      Real("typical_p", kPositiveShareRange),
      Real("repetition_penalty", kRepetitionPenaltyRange),
      Real("presence_penalty", kPenaltyRange, 0),
      Real("frequency_penalty", kPenaltyRange, 0),
      Json("logit_bias",
           absl::StrCat(R"("type":"object","maxProperties":)", kLogitBiasMax,
                        R"(,"propertyNames":{"pattern":"^[0-9]+$"},"additionalProperties":{)",
                        Real("", {-kLogitBiasAbsMax, kLogitBiasAbsMax}).schema, "}")),
      Json("seed", R"("type":"integer","description":"any 64-bit number")"),
      Flag("ignore_eos", false),
      Whole("priority", -kPriorityAbsMax, kPriorityAbsMax),
      List("stop_token_ids", TokenIdSchema(), kStopTokenIdsMax),
      List("allowed_token_ids", TokenIdSchema(), kAllowedIdsMax),
      List("bad_words", bad_word, kBadWordsMax),
      Flag("skip_special_tokens", true),
      Json("cache_salt", absl::StrCat(R"("type":"string","maxLength":)", kCacheSaltBytesMax)),
      Whole("deadline_ms", 1, kDeadlineMsMax),
      Flag("add_special_tokens", true),
      Flag("watermark", false),
  };
}

ApiField StopField(absl::string_view name) {
  const std::string one =
      absl::StrCat(R"("type":"string","minLength":1,"maxLength":)", kStopSequenceBytesMax);
  return Json(name, absl::StrCat(R"("anyOf":[{)", one, "},{",
                                 List("", one, kStopSequencesMax).schema, "}]"));
}

ApiField ResumeField() {
  return Json("resume", ObjectSchema({Must(List("output_ids", TokenIdSchema(), kContextTokensMax)),
                                      Json("seed", R"("type":"integer")"), Text("fingerprint")}));
}

ApiField TokenCountField(absl::string_view name) { return Whole(name, 1, kContextTokensMax); }

std::string TextOrIdsSchema() {
  return absl::StrCat(R"("anyOf":[{"type":"string","minLength":1},{)",
                      List("", TokenIdSchema(), kContextTokensMax).schema, R"(,"minItems":1}])");
}

}  // namespace weft::router::api
