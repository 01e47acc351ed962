// Fuzz target: the router's reading of config.json, generation_config.json and
// tokenizer_config.json of any bytes (an input is all three at once, so that each of its keys is
// met by its reader). They are refused by name, or give facts within the limits.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "common/check.h"
#include "common/limits.h"
#include "router/text/model_text.h"
#include "tests/support/memory_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::test::MemoryFolder folder;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"}) {
    folder.Put(name, data, size);
  }
  const auto text = weft::router::LoadModelText(folder.path());
  if (!text.ok()) {
    WEFT_CHECK_MSG(
        absl::IsInvalidArgument(text.status()) || absl::IsResourceExhausted(text.status()),
        text.status().ToString());
    WEFT_CHECK_MSG(absl::StrContains(text.status().message(), "config.json"),
                   text.status().ToString());
    return 0;
  }
  WEFT_CHECK_LE(text->context_tokens, weft::kContextTokensMax);
  for (size_t i = 1; i < text->eos_ids.size(); ++i) {
    WEFT_CHECK_LT(text->eos_ids[i - 1], text->eos_ids[i]);
  }
  WEFT_CHECK_LE(text->chat_template.size(), size);
  return 0;
}
