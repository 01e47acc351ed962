#include "router/text/pool_out.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/bounded_queue.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/thread.h"
#include "router/text/stream_text.h"

namespace weft::router {

class TextOut::Worker {
 public:
  Worker(uint32_t index, Probe* probe, const Clock* clock)
      : probe_(probe),
        clock_(clock),
        queue_(kStreamBatchesMax),
        thread_(absl::StrCat("text-out-", index), [this] { Loop(); }) {}

  bool Push(StreamBatch&& batch) { return queue_.TryPush(std::move(batch)); }
  void Stop() {
    queue_.Close();
    thread_.Join();
  }

 private:
  void Loop();
  void Process(StreamBatch& batch);
  StreamText* Find(SequenceId sequence);
  void Touch(SequenceId sequence, StreamText* stream);
  // Hands over what the batches wrote and wakes each reader's thread once.
  void PublishTouched();

  Probe* const probe_;
  const Clock* const clock_;
  BoundedQueue<StreamBatch> queue_;
  // Streams whose end has not been written, and those written to since the last Publish.
  absl::flat_hash_map<SequenceId, std::unique_ptr<StreamText>> streams_;
  std::vector<std::pair<SequenceId, StreamText*>> touched_;
  std::vector<Waker*> wakers_;
  // Sinks that were told the end; a waker may live in its sink.
  std::vector<std::shared_ptr<AnswerSink>> retired_;
  Thread thread_;
};

void TextOut::Worker::Loop() {
  while (true) {
    std::vector<StreamBatch> batches = queue_.PopAll();
    if (batches.empty()) break;  // closed and worked off
    for (StreamBatch& batch : batches) Process(batch);
    PublishTouched();
  }
  // Streams that nobody will end any more: their writers say so (invariant end.once).
  streams_.clear();
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

TextOut::TextOut(uint32_t threads, Probe* probe, const Clock* clock) {
  WEFT_CHECK(threads > 0);
  for (uint32_t i = 0; i < threads; ++i) {
    workers_.push_back(std::make_unique<Worker>(i, probe, clock));
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
