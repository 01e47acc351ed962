// Reads a call that is a JSON object: {"name": …, "arguments": {…}}. Its keys come in any order;
// "parameters" is another word for "arguments" (Llama), others ("type", "id") are read over. What
// is read of the arguments before the name is held until the name is known.

#pragma once

#include <string>

#include "router/text/parts/arguments_reader.h"
#include "router/text/parts/call_reader.h"
#include "router/text/parts/json_scanner.h"

namespace weft::router {

class JsonCallReader : public CallReader {
 public:
  void Begin(CallEntry entry) override;
  Step Take(char c, PartWriter* writer) override;
  void Cut(PartWriter* writer) override;
  bool MayFollow(char c) const override { return c == '{'; }

 private:
  enum class State : uint8_t { kFrame, kObject, kFirstKey, kKey, kInKey, kColon, kValue, kNext };
  enum class Role : uint8_t { kName, kArguments, kOther };

  Step TakeKey(char c, PartWriter* writer);
  Step TakeValue(char c, PartWriter* writer);
  ValueStep TakeArguments(char c, PartWriter* writer);
  // The object is complete.
  Step EndObject(PartWriter* writer);
  // The name is; false when no tool has it.
  bool EndName(PartWriter* writer);
  Step Broken(PartWriter* writer);
  Step To(State state) {
    state_ = state;
    return Step::kMore;
  }

  State state_ = State::kFrame;
  bool list_ = false;
  Role role_ = Role::kOther;
  // Of the key being read, then of the name: as they stand in the JSON.
  std::string text_;
  JsonStringReader key_reader_;
  JsonScanner scanner_;
  ArgumentsReader arguments_;
  std::string early_arguments_;
  bool has_name_ = false;
  bool has_arguments_ = false;
};

}  // namespace weft::router
