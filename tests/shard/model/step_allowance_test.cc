#include "shard/model/step_allowance.h"

#include <catch2/catch.hpp>

#include "common/limits.h"

namespace weft::shard {
namespace {

constexpr int64_t kSecond = 1'000'000;

DecoderSpec Shape8b() {
  DecoderSpec spec;
  spec.layers = 32;
  spec.hidden = 4096;
  spec.heads = 32;
  spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.mlp_hidden = 14336;
  spec.vocab = 128256;
  return spec;
}

StepBatch Batch(uint32_t sequences, uint32_t tokens, Position start) {
  StepBatch batch;
  for (uint32_t i = 0; i < sequences; ++i) {
    StepSequence& sequence = batch.sequences.emplace_back();
    sequence.start = start;
    sequence.token_count = tokens;
  }
  return batch;
}

TEST_CASE("A step may take several times what it takes, whatever its context", "[shard]") {
  StepAllowance allowance(Shape8b(), 1);
  CHECK(allowance.AllowedUs(Batch(1, 1, 0)) == 5 * kSecond);
  // bfloat16 on an H200.
  allowance.Learn(Batch(1, 8192, 0), 250'000);
  allowance.Learn(Batch(1, 512, 0), 14'000);
  // A chunk at the end of 128k takes about a second.
  CHECK(allowance.AllowedUs(Batch(1, 8192, 120'000)) > 5 * kSecond);
  // Decode steps that hang are found soon.
  CHECK(allowance.AllowedUs(Batch(1, 1, 1000)) < kSecond);
  CHECK(allowance.AllowedUs(Batch(512, 1, 4000)) < 2 * kSecond);
  CHECK(allowance.AllowedUs(Batch(1, 16384, 1'000'000)) == kStepAllowedUsMax);
}

TEST_CASE("The slowest rate of the warm-up counts", "[shard]") {
  StepAllowance allowance(Shape8b(), 1);
  // float32: 25 s for a chunk of 8,192 at 64k.
  allowance.Learn(Batch(1, 8192, 0), 4 * kSecond);
  allowance.Learn(Batch(1, 512, 0), 200'000);
  const int64_t allowed_us = allowance.AllowedUs(Batch(1, 8192, 65'536));
  CHECK(allowed_us > 25 * kSecond);
  allowance.Learn(Batch(1, 512, 0), 1);
  CHECK(allowance.AllowedUs(Batch(1, 8192, 65'536)) == allowed_us);
}

}  // namespace
}  // namespace weft::shard
