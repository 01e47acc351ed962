#include "router/text/pool_in.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"

namespace weft::router {
namespace {

// Tokenising takes about 0.3 us a byte: what is shorter holds a thread for 5 ms at most.
constexpr size_t kLongTextBytes = 16u << 10;
// Behind the compute threads of shards on the same machine, too.
constexpr int kLongLaneNice = 19;

}  // namespace

TextIn::TextIn(uint32_t threads) : short_(kTextJobsMax), long_(kTextJobsMax) {
  WEFT_CHECK(threads > 0);
  Start(&short_, "text-in", threads, 0);
  Start(&long_, "text-in-long", std::max(threads / 2, 1u), kLongLaneNice);
}

TextIn::~TextIn() { Stop(); }

void TextIn::Start(Lane* lane, const char* name, uint32_t threads, int nice) {
  for (uint32_t i = 0; i < threads; ++i) {
    lane->threads.emplace_back(
        absl::StrCat(name, "-", i),
        [lane] {
          while (std::optional<Job> job = lane->queue.Pop()) (*job)();
        },
        nice);
  }
}

bool TextIn::Run(size_t bytes, Job&& job) {
  Lane& lane = bytes < kLongTextBytes ? short_ : long_;
  return lane.queue.TryPush(std::move(job));
}

void TextIn::Stop() {
  for (Lane* lane : {&short_, &long_}) lane->queue.Close();
  for (Lane* lane : {&short_, &long_}) {
    for (Thread& thread : lane->threads) thread.Join();
  }
}

}  // namespace weft::router
