#include "router/text/pool_out.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/bounded_queue.h"
#include "common/check.h"
#include "router/text/stream_text.h"

namespace weft::router {

class TextOut::Worker {
 public:
  Worker(uint32_t index, size_t batches_max, Probe* probe, const Clock* clock, Executor* executor)
      : index_(index),
        probe_(probe),
        clock_(clock),
        queue_(batches_max),
        loop_(executor->Start(
            absl::StrCat("text-out-", index), [this](bool may_wait) { return Turn(may_wait); },
            /*nice=*/0)) {}

  bool Push(StreamBatch&& batch) {
    if (!queue_.TryPush(std::move(batch))) return false;
    loop_->Wake();
    return true;
  }
  void Stop() {
    queue_.Close();
    loop_->Join();
  }

 private:
  LoopState Turn(bool may_wait);
  void Process(StreamBatch& batch);
  StreamText* Find(SequenceId sequence);
  void Touch(SequenceId sequence, StreamText* stream);
  // Hands over what the batches wrote and wakes each reader's thread once.
  void PublishTouched();

  const uint32_t index_;
  Probe* const probe_;
  const Clock* const clock_;
  BoundedQueue<StreamBatch> queue_;
  // Streams whose end has not been written, and those written to since the last Publish.
  absl::flat_hash_map<SequenceId, std::unique_ptr<StreamText>> streams_;
  std::vector<std::pair<SequenceId, StreamText*>> touched_;
  std::vector<Waker*> wakers_;
  // Sinks that were told the end; a waker may live in its sink.
  std::vector<std::shared_ptr<AnswerSink>> retired_;
  const std::unique_ptr<RunningLoop> loop_;
};

LoopState TextOut::Worker::Turn(bool may_wait) {
  std::vector<StreamBatch> batches =
      queue_.PopAll(may_wait ? absl::InfiniteDuration() : absl::ZeroDuration());
  if (!batches.empty()) {
    TimelineScope scope(&probe_->timeline(), clock_, TimelineKind::kTextOut, /*group=*/0);
    if (TimelineEvent* const event = scope.event()) {
      event->track = static_cast<uint16_t>(index_);
      for (const StreamBatch& batch : batches) {
        event->values[0] += static_cast<uint32_t>(batch.tokens.size());
      }
    }
    for (StreamBatch& batch : batches) Process(batch);
    PublishTouched();
    return LoopState::kWorked;
  }
  if (!queue_.closed()) return LoopState::kIdle;
  // Worked off. Streams that nobody will end any more: their writers say so (invariant end.once).
  streams_.clear();
  return LoopState::kEnded;
}

void TextOut::Worker::Process(StreamBatch& batch) {
  for (StreamBegin& begin : batch.begins) {
    const SequenceId sequence = begin.sequence;
    std::unique_ptr<StreamText> stream(static_cast<StreamText*>(begin.text.release()));
    stream->Begin(std::move(begin));
    streams_[sequence] = std::move(stream);
  }
  for (const StreamToken& token : batch.tokens) {
    StreamText* const stream = Find(token.sequence);
    if (stream == nullptr) continue;  // it ended at a stop string
    const StreamLogprob* const logprob =
        token.logprob < 0 ? nullptr : &batch.logprobs[static_cast<size_t>(token.logprob)];
    stream->AddToken(token.id, logprob, *clock_, probe_);
    Touch(token.sequence, stream);
  }
  for (const StreamEnd& end : batch.ends) {
    StreamText* const stream = Find(end.sequence);
    if (stream == nullptr) continue;
    stream->AddEnd(end, *clock_, probe_);
    Touch(end.sequence, stream);
  }
}

StreamText* TextOut::Worker::Find(SequenceId sequence) {
  const auto it = streams_.find(sequence);
  return it == streams_.end() ? nullptr : it->second.get();
}

void TextOut::Worker::Touch(SequenceId sequence, StreamText* stream) {
  if (stream->dirty()) return;
  stream->SetDirty(true);
  touched_.emplace_back(sequence, stream);
}

void TextOut::Worker::PublishTouched() {
  for (const auto& [sequence, stream] : touched_) {
    stream->SetDirty(false);
    const bool ended = stream->writer().ended();
    Waker* const waker = stream->writer().Publish(&retired_);
    if (waker != nullptr && std::find(wakers_.begin(), wakers_.end(), waker) == wakers_.end()) {
      wakers_.push_back(waker);
    }
    if (ended) streams_.erase(sequence);
  }
  touched_.clear();
  for (Waker* waker : wakers_) waker->Wake();
  wakers_.clear();
  retired_.clear();
}

TextOut::TextOut(uint32_t threads, size_t batches_max, Probe* probe, const Clock* clock,
                 Executor* executor) {
  WEFT_CHECK(threads > 0);
  for (uint32_t i = 0; i < threads; ++i) {
    workers_.push_back(std::make_unique<Worker>(i, batches_max, probe, clock, executor));
  }
}

TextOut::~TextOut() { Stop(); }

bool TextOut::Post(uint32_t worker, StreamBatch&& batch) {
  return workers_[worker]->Push(std::move(batch));
}

void TextOut::Stop() {
  for (auto& worker : workers_) worker->Stop();
}

}  // namespace weft::router
