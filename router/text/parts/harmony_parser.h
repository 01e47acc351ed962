// The PartParser of gpt-oss, whose answers are messages with headers (OpenAI's "harmony"):
//   <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary to=functions.f
//   <|constrain|>json<|message|>{…}<|call|>
// Channel analysis is reasoning; a message to functions.NAME is a call when there is such a tool;
// everything else (final, commentary without an addressee, other addressees) is content. Headers
// are given to nobody, unless no message follows one: then it is content as it stands. An answer
// may begin in the middle of a header, behind the prompt's <|start|>assistant, or with plain text.
// A line feed sets messages of one kind apart. Arguments are handed out as they stand, without
// space around them.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/text/parts/mark_matcher.h"
#include "router/text/parts/part.h"
#include "router/text/parts/part_writer.h"

namespace weft::router {

class HarmonyParser : public PartParser {
 public:
  // `tools` outlives this. Without `calls` there are none: messages to tools are content.
  // `reasoning_open`: the prompt ends within a message of analysis.
  HarmonyParser(const ToolSet* tools, bool calls, bool parallel_calls, bool reasoning_open);

  void Take(absl::string_view text, std::vector<AnswerPart>* out) override;
  void Finish(std::vector<AnswerPart>* out) override;
  bool InReasoning() const override { return state_ == State::kBody && body_ == Body::kReasoning; }

 private:
  enum class State : uint8_t { kLead, kHeader, kBody };
  enum class Body : uint8_t { kContent, kReasoning, kCall };

  void TakeByte(char c);
  void TakeMark(int mark);
  void TakeText(absl::string_view text);
  void TakeHeader(absl::string_view text);
  // What `header_` says of the message that begins.
  void BeginBody();
  void EndBody();
  // `header_` has no message: it is content.
  void DropHeader();
  void Give(absl::string_view text);

  const bool calls_;
  PartWriter writer_;
  MarkMatcher marks_;
  State state_ = State::kLead;
  Body body_ = Body::kContent;
  std::string header_;
  // Space that is dropped at a message's end.
  std::string space_;
  bool body_empty_ = true;
  bool any_message_ = false;
  bool has_content_ = false;
  bool has_reasoning_ = false;
};

}  // namespace weft::router
