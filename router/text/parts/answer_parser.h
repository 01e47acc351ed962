// The PartParser of all formats but harmony: text with marks in it. One byte after the other goes
// through one of four states; what each gives out depends on the bytes alone, never on pieces.
//
//   lead      where something else may begin: the answer's beginning, behind reasoning, behind a
//   call.
//             Reasoning opens here, and calls of formats that need no mark. Space is held, or
//             dropped where something stands before.
//   reasoning up to its closing mark. Marks of calls mean nothing in it.
//   content   up to a mark that opens a call. Space in front of such a mark is the frame's, so
//   space is held until what follows is known; it comes back where content goes on behind. call in
//   the hands of a CallReader. Its bytes are kept until it has begun: what turns out to
//             be none is content.
//
// What is not a call: one that breaks before its name is known, one to a tool that the request does
// not have, one that is longer than kToolCallHeldBytesMax before its name. All of it is content as
// it stands. One that breaks later ends with the arguments that it has; text goes on behind.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/text/parts/call_reader.h"
#include "router/text/parts/formats.h"
#include "router/text/parts/mark_matcher.h"
#include "router/text/parts/part.h"
#include "router/text/parts/part_writer.h"

namespace weft::router {

class AnswerParser : public PartParser {
 public:
  // Either format may be nullptr. `tools` outlives this. `reasoning_open`: the prompt has opened
  // it.
  AnswerParser(const ToolFormat* format, const ReasoningFormat* reasoning, const ToolSet* tools,
               bool parallel_calls, bool reasoning_open);

  void Take(absl::string_view text, std::vector<AnswerPart>* out) override;
  void Finish(std::vector<AnswerPart>* out) override;
  bool InReasoning() const override { return state_ == State::kReasoning; }

 private:
  enum class State : uint8_t { kLead, kReasoning, kContent, kCall };
  enum class Effect : uint8_t { kOpenReasoning, kOpenFrame, kOpenCall, kClose };

  // Marks of one state with what they do.
  struct Marks {
    MarkMatcher matcher;
    std::vector<Effect> effects;
    std::vector<absl::string_view> texts;
  };

  static Marks Join(std::vector<std::pair<absl::string_view, Effect>> marks);

  // Bytes at the front of `text` that go to the client as they are.
  size_t PlainBytes(absl::string_view text) const;
  void TakeByte(char c);
  void TakeInLead(char c);
  void TakeInReasoning(char c);
  void TakeInContent(char c);
  void TakeInCall(char c);
  void Apply(Effect effect, absl::string_view mark);
  void BeginCall(CallEntry entry, std::string raw);
  // With the byte that it broke at.
  void CallBroke(std::optional<char> c);
  // Content or reasoning, with the space before it.
  void Give(absl::string_view text);
  // Space in front of something else than content, which comes back if content follows that.
  void DropSpace(std::string space);
  // Space that may be a frame's; false where it is not held.
  bool HoldSpace(char c);
  void Lead(bool after_call);

  const ToolFormat* const format_;
  PartWriter writer_;
  std::unique_ptr<CallReader> reader_;
  Marks lead_marks_;
  Marks after_call_marks_;
  Marks content_marks_;
  Marks reasoning_marks_;
  State state_ = State::kLead;
  bool after_call_ = false;
  // A frame is open: a further call may begin without a mark.
  bool frame_open_ = false;
  // Space is dropped: something that is no content stands before it.
  bool drop_space_ = false;
  // Nothing of this reasoning has been given out.
  bool reasoning_empty_ = true;
  // The call in the reader's hands has begun.
  bool call_begun_ = false;
  bool content_given_ = false;
  bool reasoning_given_ = false;
  std::string space_;
  // What sets content apart from that before a call or reasoning: the space that stood in front of
  // that, or else the first byte of the one behind.
  std::string gap_;
  // The bytes of a call that has not begun, and the space in front of it alone.
  std::string raw_;
  std::string call_space_;
};

}  // namespace weft::router
