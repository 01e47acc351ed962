// Reads a call whose arguments stand one by one between tags, and makes one JSON object of them:
// Qwen3-Coder, GLM-4.5, MiniMax M2, DeepSeek V3.2 (TagForm tells them apart).

#pragma once

#include <string>
#include <utility>

#include "router/text/parts/call_reader.h"
#include "router/text/parts/mark_matcher.h"
#include "router/text/parts/parameter_writer.h"

namespace weft::router {

class TagCallReader : public CallReader {
 public:
  explicit TagCallReader(const TagForm& form);

  void Begin(CallEntry entry) override;
  Step Take(char c, PartWriter* writer) override;
  std::string Unused() override { return std::exchange(strays_, std::string()); }
  void Cut(PartWriter* writer) override;
  // Each call has a mark of its own.
  bool MayFollow(char) const override { return false; }

 private:
  enum class State : uint8_t {
    kFrame,
    kName,
    kNameTail,
    // A parameter or the end of the call is to come.
    kBetween,
    kKey,
    kKeyTail,
    kAttributes,
    kFirstOfValue,
    kValue,
  };

  Step TakeInName(char c, PartWriter* writer);
  Step TakeBetween(char c, PartWriter* writer);
  Step TakeInKey(char c, PartWriter* writer);
  Step TakeInValue(char c, PartWriter* writer);
  // Matches `tail` from tail_at_ on.
  Step TakeTail(absl::string_view tail, char c, PartWriter* writer);
  Step BeginValue(PartWriter* writer);
  Step Broken(PartWriter* writer);
  Step To(State state) {
    state_ = state;
    tail_at_ = 0;
    return Step::kMore;
  }

  const TagForm& form_;
  const std::string value_close_line_;
  State state_ = State::kFrame;
  // Of the name, a key or attributes.
  std::string text_;
  size_t tail_at_ = 0;
  bool has_parameter_ = false;
  std::string key_;
  // Bytes of a tag that came to nothing.
  std::string strays_;
  MarkMatcher frame_;
  MarkMatcher between_;
  MarkMatcher value_;
  ParameterWriter parameter_;
};

}  // namespace weft::router
