// Reads a call that names its tool in a header of control tokens and has the arguments' JSON behind
// it: DeepSeek V3 and V3.1, Kimi K2, and Mistral from version 11 on. Mistral's older calls are JSON
// objects in a list, which begin behind the same token.

#pragma once

#include <string>

#include "router/text/parts/arguments_reader.h"
#include "router/text/parts/call_reader.h"
#include "router/text/parts/json_call_reader.h"
#include "router/text/parts/mark_matcher.h"

namespace weft::router {

class HeaderCallReader : public CallReader {
 public:
  explicit HeaderCallReader(ToolFormat::Family family);

  void Begin(CallEntry entry) override;
  Step Take(char c, PartWriter* writer) override;
  void Cut(PartWriter* writer) override;
  bool MayFollow(char c) const override;

 private:
  enum class State : uint8_t {
    // Space and the mark of a call are to come.
    kFrame,
    // Mistral: a list, an object or a name is.
    kMistral,
    kJson,
    kName,
    // Mistral: an id that the model gave the call, which is read over.
    kId,
    // DeepSeek: a kind of call has been read where newer models write the name.
    kKind,
    // The name on a line of its own.
    kNameLine,
    // Space, and DeepSeek's fence of a block of code, before the arguments.
    kFence,
    kArguments,
  };

  Step TakeInFrame(char c);
  Step TakeInName(char c, PartWriter* writer);
  // What stands behind the name: the index of a separator.
  Step EndName(int separator, PartWriter* writer);
  Step BeginCall(absl::string_view name, PartWriter* writer);
  Step TakeArguments(char c, PartWriter* writer);
  Step Broken(PartWriter* writer);
  Step To(State state) {
    state_ = state;
    return Step::kMore;
  }

  const ToolFormat::Family family_;
  State state_ = State::kFrame;
  std::string name_;
  MarkMatcher frame_;
  MarkMatcher separators_;
  ArgumentsReader arguments_;
  JsonCallReader json_;
};

}  // namespace weft::router
