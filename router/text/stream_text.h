// One answer's way from tokens to text: whole characters, stop strings, and the words in front and
// at the end. Belongs to one worker of text out, and is called by its thread only. Writes to the
// answer and never waits.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  struct Wishes {
    // Goes in front of the first token's text.
    std::string echo;
    // Stop strings are looked for behind the text of so many tokens.
    uint32_t min_tokens = 0;
    // The request's own ids that end its answer, ascending; and whether the text of the one that
    // did so is part of it.
    std::vector<TokenId> stop_token_ids;
    bool include_stop = false;
    // Ids without text, ascending: those that end an answer whose control tokens are text.
    std::vector<TokenId> unseen_ids;
    // Goes with the answer's head.
    bool reasoning_open = false;
  };

  StreamText(Detokenizer detokenizer, StopMatcher stop_matcher, Wishes wishes)
      : detokenizer_(std::move(detokenizer)),
        stop_matcher_(std::move(stop_matcher)),
        wishes_(std::move(wishes)) {}

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
  bool IsStopToken(TokenId id) const;

  Detokenizer detokenizer_;
  StopMatcher stop_matcher_;
  Wishes wishes_;
  // The token that came last; of use once there is one.
  TokenId last_token_ = kNoToken;
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
