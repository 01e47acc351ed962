#include "router/engine/mask_maker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "router/engine/mask_row.h"

namespace weft::router {
namespace {

// Fewer rows than this are not worth another thread's waking.
constexpr size_t kRowsPerWorkerMin = 2;
// Pieces of work that may wait for a worker. An engine loop has few steps in flight, each of a
// piece or two; what a lost group has asked for may wait beside them.
constexpr size_t kWorkMax = 1024;
// What has been worked out is handed on once it has so many bytes: a message to a shard has room
// for it, however many rows the work has (MaskedSteps).
constexpr size_t kMadeBytesMax = kShardMessageBytesMax / 16;

}  // namespace

struct MaskMaker::Worker {
  explicit Worker(size_t capacity) : queue(capacity) {}
  BoundedQueue<Work> queue;
  std::vector<uint32_t> words;
  std::unique_ptr<RunningLoop> loop;
};

MaskMaker::MaskMaker(uint32_t threads, Executor* executor) {
  WEFT_CHECK(threads > 0);
  for (uint32_t i = 0; i < threads; ++i) {
    workers_.push_back(std::make_unique<Worker>(kWorkMax));
    Worker* const worker = workers_.back().get();
    worker->loop = executor->Start(
        absl::StrCat("masks-", i),
        [worker](bool may_wait) {
          std::vector<Work> all =
              worker->queue.PopAll(may_wait ? absl::InfiniteDuration() : absl::ZeroDuration());
          if (worker->queue.closed()) return LoopState::kEnded;
          for (Work& work : all) Run(std::move(work), &worker->words);
          return all.empty() ? LoopState::kIdle : LoopState::kWorked;
        },
        /*nice=*/0);
  }
}

MaskMaker::~MaskMaker() { Stop(); }

void MaskMaker::Make(Epoch epoch, StepNumber step, uint32_t vocab_size, std::vector<MaskJob> jobs,
                     const Done& done) {
  const size_t pieces = std::clamp<size_t>(jobs.size() / kRowsPerWorkerMin, 1, workers_.size());
  for (size_t piece = 0; piece < pieces; ++piece) {
    const size_t begin = jobs.size() * piece / pieces;
    const size_t end = jobs.size() * (piece + 1) / pieces;
    Work work;
    work.vocab_size = vocab_size;
    work.jobs.assign(std::make_move_iterator(jobs.begin() + static_cast<ptrdiff_t>(begin)),
                     std::make_move_iterator(jobs.begin() + static_cast<ptrdiff_t>(end)));
    work.made.epoch = epoch;
    work.made.step = step;
    work.done = done;
    Worker& worker = *workers_[(step + piece) % workers_.size()];
    if (!worker.queue.TryPush(std::move(work))) {
      if (!worker.queue.closed()) Refuse(std::move(work));
      continue;
    }
    worker.loop->Wake();
  }
}

void MaskMaker::Refuse(Work work) {
  for (const MaskJob& job : work.jobs) {
    AppendFreeRow(job.slot, &work.made.rows);
    work.made.sequences.push_back(job.sequence);
    work.made.failures.emplace_back(
        job.sequence, absl::ResourceExhaustedError("too many masks wait to be worked out"));
  }
  work.done(std::move(work.made));
}

void MaskMaker::Run(Work work, std::vector<uint32_t>* words) {
  words->resize((size_t{work.vocab_size} + 31) / 32);
  for (const MaskJob& job : work.jobs) {
    absl::Status status = job.log->NextMask(absl::MakeSpan(*words));
    if (status.ok() && !AppendMaskRow(job.slot, *words, work.vocab_size, &work.made.rows)) {
      status = job.log->NothingLeft();
    }
    if (!status.ok()) {
      AppendFreeRow(job.slot, &work.made.rows);
      work.made.failures.emplace_back(job.sequence, std::move(status));
    }
    work.made.sequences.push_back(job.sequence);
    if (work.made.rows.size() < kMadeBytesMax && &job != &work.jobs.back()) continue;
    MadeMasks made;
    made.epoch = work.made.epoch;
    made.step = work.made.step;
    std::swap(made, work.made);
    work.done(std::move(made));
  }
}

void MaskMaker::Stop() {
  for (auto& worker : workers_) worker->queue.Close();
  for (auto& worker : workers_) {
    worker->loop->Wake();
    worker->loop->Join();
  }
}

}  // namespace weft::router
