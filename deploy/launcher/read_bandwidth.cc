#include "deploy/launcher/read_bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/clock.h"
#include "common/thread.h"

namespace weft::launcher {
namespace {

// Eight running sums, so that the adds never wait for each other.
uint64_t Sum(const uint64_t* words, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double MeasureReadBandwidth(int threads, uint64_t bytes, int passes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WEFT_CHECK(memory != MAP_FAILED);
  madvise(memory, bytes, MADV_HUGEPAGE);
  auto* words = static_cast<uint64_t*>(memory);
  const size_t words_each = bytes / sizeof(uint64_t) / static_cast<size_t>(threads);
  std::fill_n(words, words_each * static_cast<size_t>(threads), uint64_t{1});
  std::vector<double> rates;
  for (int pass = 0; pass < passes; ++pass) {
    std::vector<uint64_t> sums(static_cast<size_t>(threads));
    const int64_t start_us = MonotonicClock().NowUs();
    {
      std::vector<Thread> workers;
      for (int i = 0; i < threads; ++i) {
        workers.emplace_back("bandwidth", [&sums, words, words_each, i] {
          sums[static_cast<size_t>(i)] =
              Sum(words + static_cast<size_t>(i) * words_each, words_each);
        });
      }
    }
    const int64_t us = MonotonicClock().NowUs() - start_us;
    for (uint64_t sum : sums) WEFT_CHECK_EQ(sum, words_each / 8 * 8);
    rates.push_back(static_cast<double>(words_each) * 8e-3 * threads / static_cast<double>(us));
  }
  munmap(memory, bytes);
  std::nth_element(rates.begin(), rates.begin() + rates.size() / 2, rates.end());
  return rates[rates.size() / 2];
}

}  // namespace weft::launcher
