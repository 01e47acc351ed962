// What a client wants to know of an answer beside its text, and what it says about the calls of
// tools in it. As plain data: made by a door out of a request, read by text in, which makes the
// grammar that calls have to fit, and by the door itself, which tells the parts apart as the answer
// comes (router/text/parts). Immutable once made; any thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::router {

struct ToolSpec {
  std::string name;
  // The JSON Schema of its arguments as text; empty, or broken: nothing is known of them.
  std::string parameters;
  // Its calls have to fit the schema.
  bool strict = false;
};

struct PartsSpec {
  // The parts are told apart for the client. False: all is text, and only what the answer's calls
  // have to fit counts.
  bool told_apart = true;
  // Names of formats (text/parts/part_parser.h). "none": calls, or reasoning, are content.
  std::string tool_parser = "none";
  std::string reasoning_parser = "none";
  // Those that the answer may call.
  std::vector<ToolSpec> tools;
  // Several calls in one answer.
  bool parallel_calls = true;
  enum class Calls : uint8_t {
    // As many as the model makes, maybe none.
    kAuto,
    // At least one, and nothing else.
    kRequired,
    // One, of the tool `named`.
    kNamed,
  };
  Calls calls = Calls::kAuto;
  std::string named;

  // The answer is held to a grammar for its calls.
  bool HoldsCalls() const {
    if (calls != Calls::kAuto) return true;
    for (const ToolSpec& tool : tools) {
      if (tool.strict) return true;
    }
    return false;
  }
};

}  // namespace weft::router
