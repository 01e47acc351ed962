#include "shard/device/cpu/workspace.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "kernels/cpu/attention.h"
#include "shard/sampling/sampler.h"

namespace weft::shard {
namespace {

constexpr uint64_t kAlignment = 64;

// Hands out consecutive aligned pieces; with a null base it only counts.
class Carver {
 public:
  explicit Carver(uint8_t* base) : base_(base) {}

  template <typename T>
  T* Take(uint64_t count) {
    const uint64_t offset = bytes_;
    bytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + offset);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint8_t* base_;
  uint64_t bytes_ = 0;
};

}  // namespace

uint64_t Workspace::Carve(uint8_t* base, const DecoderSpec& spec, const SlicePlan& slice,
                          const WorkspaceLimits& limits) {
  Carver carver(base);
  const uint64_t rows = limits.step_tokens_max;
  const uint64_t query = uint64_t{slice.heads.size()} * spec.head_dim;
  const uint64_t key = uint64_t{slice.kv_heads.size()} * spec.head_dim;
  residual = carver.Take<float>(rows * spec.hidden);
  partial = carver.Take<float>(rows * spec.hidden);
  qkv = carver.Take<float>(rows * (query + 2 * key));
  attention = carver.Take<float>(rows * query);
  gate = carver.Take<float>(rows * slice.mlp.size());
  up = carver.Take<float>(rows * slice.mlp.size());
  logits = carver.Take<float>(uint64_t{limits.running_max} * slice.vocab.size());
  if (slice.world > 1) {
    const uint64_t bytes = Sampler::ExchangeBytes(spec.vocab, slice.world, limits.running_max);
    exchange_mine = carver.Take<uint8_t>(bytes);
    exchange_all = carver.Take<uint8_t>(bytes * slice.world);
  }
  const uint64_t angles = uint64_t{spec.context_tokens} * (spec.rope.dims / 2);
  cosines = carver.Take<float>(angles);
  sines = carver.Take<float>(angles);
  const auto widest =
      static_cast<int64_t>(std::max({uint64_t{spec.hidden}, query, uint64_t{slice.mlp.size()}}));
  for (int type = 0; type < 2; ++type) {
    values[type] = carver.Take<uint8_t>(
        rows * static_cast<uint64_t>(kernels::cpu::ActivationRowBytes(widest)));
    block_sums[type] =
        carver.Take<float>(rows * static_cast<uint64_t>(kernels::cpu::BlockSumCount(widest)));
  }
  threads.resize(limits.threads);
  for (ThreadScratch& thread : threads) {
    thread.row = carver.Take<float>(spec.hidden);
    thread.attention = carver.Take<uint8_t>(
        static_cast<uint64_t>(kernels::cpu::AttentionScratchBytes(spec.head_dim)));
  }
  return carver.bytes();
}

uint64_t Workspace::Bytes(const DecoderSpec& spec, const SlicePlan& slice,
                          const WorkspaceLimits& limits) {
  return Workspace().Carve(nullptr, spec, slice, limits);
}

absl::StatusOr<Workspace> Workspace::Create(const DecoderSpec& spec, const SlicePlan& slice,
                                            const WorkspaceLimits& limits) {
  Workspace workspace;
  WEFT_ASSIGN_OR_RETURN(workspace.memory_, HostMemory::Map(Bytes(spec, slice, limits),
                                                           "activations (--max-step-tokens)"));
  workspace.Carve(workspace.memory_.data(), spec, slice, limits);
  return workspace;
}

}  // namespace weft::shard
