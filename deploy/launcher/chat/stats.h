// Tokens and times of answers, in words. Pure; main thread.

#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "deploy/launcher/chat/answer.h"

namespace weft::launcher {

class Stats {
 public:
  void Add(const Answer& answer);
  // Nothing is known of the context any more: the conversation was cleared or cut.
  void ForgetContext() { context_used_ = 0; }

  // The last answer in a line: "24 tokens, first after 35 ms, then 81.3 tokens/s; ...".
  std::string LastLine() const;
  // Some lines: the last answer, all of them, the context of `context_tokens`.
  std::string Report(uint32_t context_tokens) const;

 private:
  Answer last_;
  uint32_t answers_ = 0;
  uint64_t output_tokens_ = 0;
  uint64_t prompt_tokens_ = 0;
  uint64_t cached_tokens_ = 0;
  // Of the last prompt and its answer.
  uint32_t context_used_ = 0;
};

}  // namespace weft::launcher
