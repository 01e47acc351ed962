// One answer's way from tokens to text: whole characters, stop strings, and the words in front and
// at the end. Belongs to one worker of text out, and is called by its thread only. Writes to the
// answer and never waits.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

  // Before the stream begins: a token that the client of a resumed request has had. Appends the
  // text that came with it to `text`; true when it completed a stop string, which ends the answer.
  bool Replay(TokenId id, std::string* text);
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
  // The text that becomes certain with a token.
  StopMatcher::Result Match(TokenId id);
  void Finish(FinishReason reason, std::string text, std::string stop, const Clock& clock,
              Probe* probe);

  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;
  std::string echo_;
  AnswerWriter writer_;
  RequestTimes times_;
  uint32_t prompt_tokens_ = 0;
  uint64_t seed_ = 0;
  // Of the whole answer, and those of them that were there before.
  uint32_t output_tokens_ = 0;
  uint32_t resumed_tokens_ = 0;
  // The stop string that the tokens before end with.
  std::optional<size_t> resumed_stop_;
  bool dirty_ = false;
};

}  // namespace weft::router
