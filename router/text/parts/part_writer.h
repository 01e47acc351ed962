// Where parsers put what they found: makes parts of it, counts calls, knows which tools there are,
// and leaves out all calls but the first where only one is allowed. Owned by one parser.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "router/text/parts/part.h"
#include "router/text/parts/tool_set.h"

namespace weft::router {

class PartWriter {
 public:
  // `tools` outlives this.
  PartWriter(const ToolSet* tools, bool parallel_calls)
      : tools_(tools), parallel_calls_(parallel_calls) {}

  // Where parts go from now on; those there already stay as they are.
  void SetOut(std::vector<AnswerPart>* out);

  void Content(absl::string_view text) { Append(AnswerPart::Kind::kContent, text); }
  void Reasoning(absl::string_view text) { Append(AnswerPart::Kind::kReasoning, text); }

  // Whether a call of this name may begin; false, and nothing was done, when there is no such tool.
  // REQUIRES: !in_call().
  bool BeginCall(absl::string_view name);
  // REQUIRES: in_call().
  void Arguments(absl::string_view json);
  // A complete call without a byte of arguments has the arguments {}. REQUIRES: in_call().
  void EndCall(bool complete);

  bool in_call() const { return in_call_; }
  // Types that the tool of the call allows a parameter. REQUIRES: in_call().
  JsonTypes Types(absl::string_view parameter) const { return ToolSet::Types(tool_, parameter); }

 private:
  void Append(AnswerPart::Kind kind, absl::string_view text);

  const ToolSet* const tools_;
  const bool parallel_calls_;
  std::vector<AnswerPart>* out_ = nullptr;
  // Parts before it are not this Take's.
  size_t first_ = 0;
  uint32_t calls_ = 0;
  bool in_call_ = false;
  bool muted_ = false;
  bool has_arguments_ = false;
  const ToolSet::Tool* tool_ = nullptr;
};

}  // namespace weft::router
