#include "router/text/pool_in.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"

namespace weft::router {
namespace {

// Behind the compute threads of shards on the same machine, too.
constexpr int kLongLaneNice = 19;

}  // namespace

TextIn::TextIn(uint32_t threads, Executor* executor) : short_(kTextJobsMax), long_(kTextJobsMax) {
  WEFT_CHECK(threads > 0);
  Start(&short_, "text-in", threads, 0, executor);
  Start(&long_, "text-in-long", std::max(threads / 2, 1u), kLongLaneNice, executor);
}

TextIn::~TextIn() { Stop(); }

void TextIn::Start(Lane* lane, const char* name, uint32_t threads, int nice, Executor* executor) {
  const auto turn = [lane](bool may_wait) {
    const absl::Duration wait = may_wait ? absl::InfiniteDuration() : absl::ZeroDuration();
    if (std::optional<Job> job = lane->queue.Pop(wait)) {
      (*job)();
      return LoopState::kWorked;
    }
    return lane->queue.closed() ? LoopState::kEnded : LoopState::kIdle;
  };
  for (uint32_t i = 0; i < threads; ++i) {
    lane->loops.push_back(executor->Start(absl::StrCat(name, "-", i), turn, nice));
  }
}

bool TextIn::Run(size_t bytes, Job&& job) {
  Lane& lane = bytes < kLongTextBytes ? short_ : long_;
  if (!lane.queue.TryPush(std::move(job))) return false;
  for (const auto& loop : lane.loops) loop->Wake();
  return true;
}

void TextIn::Stop() {
  for (Lane* lane : {&short_, &long_}) lane->queue.Close();
  for (Lane* lane : {&short_, &long_}) {
    for (const auto& loop : lane->loops) loop->Join();
  }
}

}  // namespace weft::router
