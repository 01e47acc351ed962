// Shards without a model as a process of their own, for measurements of the router alone: each
// answers a step after a set time with ids out of a hash. tests/bench/router_streams.py starts it
// with a real router behind it.
//
//   weft_mock_shards FOLDER COUNT STEP_US VOCAB_SIZE CONTEXT_TOKENS
//
// Listens on FOLDER/shard-0, FOLDER/shard-1 ..., each a group of its own, prints "ready" and serves
// until its input ends.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/support/mock_shard.h"

namespace weft::testing {
namespace {

// Of a shard's KV pool: enough for all of its rows.
constexpr uint32_t kRowTokens = 512;

int Serve(const char* folder, uint32_t count, uint32_t step_us, uint32_t vocab_size,
          uint32_t context_tokens) {
  std::vector<std::unique_ptr<MockShard>> shards;
  for (uint32_t i = 0; i < count; ++i) {
    MockShardOptions options;
    options.socket = absl::StrCat(folder, "/shard-", i);
    options.step_us = step_us;
    options.loading_answers = 0;
    MockShape& shape = options.shape;
    shape.running_max = kRunningMax;
    shape.step_tokens_max = 4 * kRunningMax;
    shape.context_tokens = context_tokens;
    shape.kv_blocks = kRunningMax * (kRowTokens / shape.block_tokens);
    shape.vocabulary.size = vocab_size;
    shape.vocabulary.eos = vocab_size - 1;
    shards.push_back(std::make_unique<MockShard>(options));
  }
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  for (const std::unique_ptr<MockShard>& shard : shards) {
    for (const std::string& violation : shard->stats().violations) {
      std::fprintf(stderr, "a rule was broken: %s\n", violation.c_str());
      return EXIT_FAILURE;
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  uint32_t count = 0, step_us = 0, vocab_size = 0, context_tokens = 0;
  if (argc != 6 || !absl::SimpleAtoi(argv[2], &count) || !absl::SimpleAtoi(argv[3], &step_us) ||
      !absl::SimpleAtoi(argv[4], &vocab_size) || !absl::SimpleAtoi(argv[5], &context_tokens)) {
    std::fprintf(stderr,
                 "usage: weft_mock_shards FOLDER COUNT STEP_US VOCAB_SIZE CONTEXT_TOKENS\n");
    return 2;
  }
  return weft::testing::Serve(argv[1], count, step_us, vocab_size, context_tokens);
}
