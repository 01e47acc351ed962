// What an answer consists of for a client that asked for tools or reasoning apart: pieces of
// content, of reasoning, and of calls. Made by a PartParser out of the answer's text as it streams.
// Plain data; whoever has it owns it.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::router {

struct AnswerPart {
  enum class Kind : uint8_t { kContent, kReasoning, kToolBegin, kToolArguments };

  Kind kind = Kind::kContent;
  // Of parts of a call: 0, 1, .. in the order of their beginnings.
  uint32_t call = 0;
  // Of kToolBegin: the tool's name.
  std::string name;
  // The next piece of the content, of the reasoning, or of the JSON of the call's arguments.
  std::string text;
};

// One for each answer (choice) of a request, used by one thread at a time: whoever writes the
// answer for its client. Never blocks, never fails: any bytes give parts.
//
// What comes out, joined kind by kind and call by call, does not depend on how the text is cut into
// pieces. Whole UTF-8 characters in give whole ones out.
class PartParser {
 public:
  virtual ~PartParser() = default;

  // The next piece of the answer's text, control tokens spelled out, without those that end an
  // answer. Appends the parts that became certain.
  virtual void Take(absl::string_view text, std::vector<AnswerPart>* out) = 0;
  // The end of the answer: appends what was still held back. Nothing may follow.
  virtual void Finish(std::vector<AnswerPart>* out) = 0;
  // What was taken ends inside of reasoning, behind its opening mark.
  virtual bool InReasoning() const = 0;
};

}  // namespace weft::router
