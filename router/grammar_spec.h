// What an answer has to fit, as plain data. Made by a door (text/grammar/spec.h reads it out of
// JSON), compiled by text in.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::router {

struct GrammarSpec {
  enum class Kind : uint8_t {
    // texts[0] is a JSON schema.
    kJsonSchema,
    // Any JSON object; no text.
    kJsonObject,
    // texts[0] is a Lark grammar as llguidance reads it.
    kLark,
    // texts[0] is a regular expression that the whole answer fits.
    kRegex,
    // The answer is one of the texts.
    kChoice,
    // texts[0] is a JSON document of type structural_tag.
    kStructuralTag,
  };

  Kind kind = Kind::kJsonObject;
  std::vector<std::string> texts;
  // Of a schema: objects that list properties and do not speak of others take no others.
  bool closed_objects = false;

  bool operator==(const GrammarSpec&) const = default;
  // Of all texts.
  size_t bytes() const {
    size_t sum = 0;
    for (const std::string& text : texts) sum += text.size();
    return sum;
  }
};

}  // namespace weft::router
