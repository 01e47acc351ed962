// One answer's way from tokens to text: whole characters, stop strings, and the words in front and
// at the end. Belongs to one worker of text out, and is called by its thread only. Writes to the
// answer and never waits.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "router/engine/stages.h"
#include "router/observe/probe.h"
#include "router/text/detokenizer.h"
#include "router/text/stop_matcher.h"

namespace weft::router {

// Made by text in with the request's wishes.
class StreamText : public TextStage {
 public:
  // `echo` goes in front of the first token's text.
  StreamText(Detokenizer detokenizer, StopMatcher stop_matcher, std::string echo)
      : detokenizer_(std::move(detokenizer)),
        stop_matcher_(std::move(stop_matcher)),
        echo_(std::move(echo)) {}

  // The stream begins; `begin.text` is this very object and is not looked at.
  void Begin(StreamBegin&& begin);
  // A token; nothing happens after the end.
  void AddToken(TokenId id, const StreamLogprob* logprob, const Clock& clock, Probe* probe);
  void AddEnd(const StreamEnd& end, const Clock& clock, Probe* probe);

  AnswerWriter& writer() { return writer_; }
  // Something was written that is not published yet.
  bool dirty() const { return dirty_; }
  void SetDirty(bool dirty) { dirty_ = dirty; }

 private:
  // The last word's figures, with the times as of `now_us`.
  AnswerEnd MakeEnd(int64_t now_us) const;
  void Finish(FinishReason reason, std::string text, std::string stop, const Clock& clock,
              Probe* probe);

  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;
  std::string echo_;
  AnswerWriter writer_;
  AnswerHead head_;
  RequestTimes times_;
  uint32_t output_tokens_ = 0;
  bool dirty_ = false;
};

}  // namespace weft::router
