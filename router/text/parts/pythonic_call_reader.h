// Reads a call that is written as in Python, with named arguments: f(a=1, b="x"), in a list. Makes
// a JSON object of the arguments.

#pragma once

#include <string>

#include "router/text/parts/call_reader.h"
#include "router/text/parts/python_reader.h"

namespace weft::router {

class PythonicCallReader : public CallReader {
 public:
  void Begin(CallEntry entry) override;
  Step Take(char c, PartWriter* writer) override;
  bool MayFollow(char c) const override;

 private:
  enum class State : uint8_t { kFrame, kName, kFirstKey, kKey, kInKey, kEquals, kValue, kNext };

  Step EndCall(PartWriter* writer);
  Step TakeValue(char c, PartWriter* writer);
  Step Broken(PartWriter* writer);
  Step To(State state) {
    state_ = state;
    return Step::kMore;
  }

  State state_ = State::kFrame;
  bool list_ = false;
  bool has_arguments_ = false;
  std::string text_;
  PythonReader value_;
};

}  // namespace weft::router
