#include "router/text/stream_text.h"

#include <algorithm>
#include <utility>

#include "router/engine/outcome.h"

namespace weft::router {

bool StreamText::Replay(TokenId id, std::string* text) {
  ++resumed_tokens_;
  ++output_tokens_;
  const StopMatcher::Result matched = Match(id);
  *text += matched.text;
  if (matched.matched) resumed_stop_ = matched.stop_index;
  return matched.matched;
}

void StreamText::Begin(StreamBegin&& begin) {
  writer_ = std::move(begin.writer);
  times_ = begin.times;
  prompt_tokens_ = begin.head.prompt_tokens;
  seed_ = begin.head.seed;
  begin.head.reasoning_open = wishes_.reasoning_open;
  writer_.Head(std::move(begin.head));
}

bool StreamText::IsStopToken(TokenId id) const {
  return std::binary_search(wishes_.stop_token_ids.begin(), wishes_.stop_token_ids.end(), id);
}

StopMatcher::Result StreamText::Match(TokenId id) {
  last_token_ = id;
  StopMatcher::Result matched;
  const bool ends_unseen =
      (IsStopToken(id) && !wishes_.include_stop) ||
      std::binary_search(wishes_.unseen_ids.begin(), wishes_.unseen_ids.end(), id);
  std::string text = ends_unseen ? std::string() : detokenizer_.Push(id);
  if (output_tokens_ <= wishes_.min_tokens) {
    matched.text = std::move(text);
  } else {
    matched = stop_matcher_.Push(text);
  }
  if (!wishes_.echo.empty()) {
    matched.text.insert(0, wishes_.echo);
    std::string().swap(wishes_.echo);
  }
  return matched;
}

void StreamText::AddToken(TokenId id, const StreamLogprob* logprob, const Clock& clock,
                          Probe* probe) {
  if (writer_.ended()) return;  // a token that was sampled behind a stop string
  ++output_tokens_;
  const StopMatcher::Result matched = Match(id);
  if (logprob == nullptr) {
    writer_.Token(id, matched.text);
  } else {
    writer_.Token(id, matched.text, logprob->logprob, logprob->top);
  }
  if (!matched.matched) return;
  // The sequence goes on until the engine loop hears of it.
  writer_.answer().Cancel(CancelReason::kStopMatched);
  Finish(FinishReason::kStopSequence, "", stop_matcher_.stop(matched.stop_index), clock, probe);
}

void StreamText::AddEnd(const StreamEnd& end, const Clock& clock, Probe* probe) {
  if (writer_.ended()) return;
  if (!end.status.ok()) {
    AnswerEnd failed = MakeEnd(clock.NowUs());
    failed.status = end.status;
    CountUnfinished(writer_.answer(), CancelPhase::kDecode, end.status, probe);
    writer_.End(std::move(failed));
    return;
  }
  if (resumed_stop_.has_value()) {
    Finish(FinishReason::kStopSequence, "", stop_matcher_.stop(*resumed_stop_), clock, probe);
    return;
  }
  const FinishReason reason = end.reason == FinishReason::kEosToken && IsStopToken(last_token_)
                                  ? FinishReason::kStopToken
                                  : end.reason;
  // Text held back until now: an incomplete character, then what might have become a stop string.
  StopMatcher::Result last = stop_matcher_.Push(detokenizer_.Flush());
  if (last.matched) {
    Finish(FinishReason::kStopSequence, std::move(last.text), stop_matcher_.stop(last.stop_index),
           clock, probe);
  } else {
    // There is an echo still where no token came.
    Finish(reason, wishes_.echo + last.text + stop_matcher_.Flush(), "", clock, probe);
  }
}

AnswerEnd StreamText::MakeEnd(int64_t now_us) const {
  AnswerEnd end;
  end.prompt_tokens = prompt_tokens_;
  end.output_tokens = output_tokens_;
  end.seed = seed_;
  end.validation_us = times_.prepared_us - times_.arrival_us;
  end.queue_us = times_.planned_us - times_.prepared_us;
  end.inference_us = now_us - times_.planned_us;
  return end;
}

void StreamText::Finish(FinishReason reason, std::string text, std::string stop, const Clock& clock,
                        Probe* probe) {
  const int64_t now_us = clock.NowUs();
  AnswerEnd end = MakeEnd(now_us);
  end.reason = reason;
  end.text = std::move(text);
  end.stop_sequence = std::move(stop);
  if (reason == FinishReason::kStopToken) end.stop_token = last_token_;
  FinishedSample sample;
  sample.reason = reason;
  // Work that was done here: what was there before has been read as a prompt is.
  sample.prompt_tokens = prompt_tokens_ + resumed_tokens_;
  sample.output_tokens = output_tokens_ - resumed_tokens_;
  sample.prefill_us = times_.first_token_us - times_.planned_us;
  sample.decode_us = now_us - times_.first_token_us;
  sample.total_us = now_us - times_.arrival_us;
  probe->Finished(sample);
  writer_.End(std::move(end));
}

}  // namespace weft::router
