// One choice of an answer as its client sees it: content, reasoning and calls of tools, told apart
// while the text comes (text/parts), or content alone where nobody asked. Made by whoever writes
// the answer for its client, one a choice, and used by the thread that writes it. Never writes
// anything itself.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "router/answer.h"
#include "router/answer_parts.h"
#include "router/text/parts/part.h"
#include "router/text/parts/tool_set.h"

namespace weft::router {

// What all choices of a request share. Immutable.
class PartsContext {
 public:
  // `spec` names parsers that go together (the router's start checks it); null = all is content.
  explicit PartsContext(std::shared_ptr<const PartsSpec> spec);

  const PartsSpec* spec() const { return spec_.get(); }
  const ToolSet& tools() const { return tools_; }

 private:
  const std::shared_ptr<const PartsSpec> spec_;
  const ToolSet tools_;
};

// A call of a tool, as far as it came.
struct AnsweredCall {
  // To be given back with the tool's answer; drawn, in the form that the model's template takes.
  std::string id;
  std::string name;
  // JSON text; of an answer that was cut off its beginning.
  std::string arguments;
};

class ChoiceParts {
 public:
  ChoiceParts() = default;

  // The answer begins: what a resumed one's client has had is passed over.
  void Begin(const PartsContext& context, const AnswerHead& head);
  // The parts that became certain with a token's text, an end's, or both; may be none. They hold
  // until the next call.
  const std::vector<AnswerPart>& Take(const AnswerToken* token, const AnswerEnd* end);
  // Adds what Take gave to what is kept below: of answers that are sent as a whole.
  void Keep();

  // The answer is told apart: its text is not what its client gets.
  bool parsed() const { return parser_ != nullptr; }
  // Tokens of the reasoning, marks around it included; those of a resumed answer's first part are
  // not counted.
  uint32_t reasoning_tokens() const { return reasoning_tokens_; }
  // Any call has begun.
  bool called() const { return !calls_.empty(); }
  // The begun calls. Arguments are there only of those that were kept.
  const std::vector<AnsweredCall>& calls() const { return calls_; }
  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }

 private:
  void Parse(absl::string_view text, bool last);
  void BeginCall(const AnswerPart& part);

  const PartsSpec* spec_ = nullptr;
  // Null: all is content.
  std::unique_ptr<PartParser> parser_;
  std::vector<AnswerPart> parts_;
  std::vector<AnsweredCall> calls_;
  std::string content_;
  std::string reasoning_;
  uint32_t reasoning_tokens_ = 0;
};

}  // namespace weft::router
