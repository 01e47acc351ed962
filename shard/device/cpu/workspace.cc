#include "shard/device/cpu/workspace.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "kernels/cpu/attention.h"
#include "shard/sampling/sampler.h"

namespace weft::shard {
namespace {

constexpr uint64_t kAlignment = 64;

void TakePrepared(uint64_t rows, uint64_t inputs, MemoryParts& parts, Workspace::Prepared* out) {
  const auto widest = static_cast<int64_t>(inputs);
  for (int type = 0; type < 2; ++type) {
    out->values[type] =
        parts.Take<uint8_t>(rows * static_cast<uint64_t>(kernels::cpu::ActivationRowBytes(widest)));
    out->block_sums[type] =
        parts.Take<float>(rows * static_cast<uint64_t>(kernels::cpu::BlockSumCount(widest)));
  }
}

}  // namespace

void Workspace::AssignExperts(const DecoderSpec& spec, const SlicePlan& slice, uint64_t rows,
                              MemoryParts& parts) {
  const uint64_t places = rows * spec.experts.per_token;
  const uint64_t columns = slice.expert.size();
  experts.routes = parts.Take<float>(rows * spec.experts.count);
  TakePrepared(places, spec.hidden, parts, &experts.normed);
  TakePrepared(places, columns, parts, &experts.made);
  experts.gate = parts.Take<float>(places * columns);
  experts.up = parts.Take<float>(places * columns);
  experts.out = parts.Take<float>(places * spec.hidden);
  experts.scales = parts.Take<float>(rows);
}

void Workspace::AssignLatent(const DecoderSpec& spec, uint64_t heads, uint64_t rows,
                             MemoryParts& parts) {
  latent.query = parts.Take<float>(rows * spec.latent.query_rank);
  latent.head_query = parts.Take<float>(rows * heads * spec.query_dim());
  latent.row = parts.Take<float>(rows * spec.head_dim);
  latent.head_value = parts.Take<float>(rows * heads * spec.output_dim());
  TakePrepared(rows * heads, std::max(spec.latent.rank, spec.latent.plain_dim), parts,
               &latent.by_head);
}

uint64_t Workspace::AssignParts(uint8_t* base, const DecoderSpec& spec, const SlicePlan& slice,
                                const WorkspaceLimits& limits) {
  MemoryParts parts(base, kAlignment);
  const uint64_t rows = limits.step_tokens_max;
  const bool latents = spec.latent.rank > 0;
  const uint64_t heads = slice.heads.size();
  const uint64_t query = heads * spec.head_dim;
  const uint64_t key = latents ? 0 : uint64_t{slice.kv_heads.size()} * spec.head_dim;
  residual = parts.Take<float>(rows * spec.hidden);
  partial = parts.Take<float>(rows * spec.hidden);
  if (spec.embedding_dim > 0) embedded = parts.Take<float>(rows * spec.embedding_dim);
  qkv = parts.Take<float>(rows * (query + 2 * key));
  waiting_residual = parts.Take<float>(uint64_t{limits.running_max} * spec.hidden);
  waiting_query = parts.Take<float>(uint64_t{limits.running_max} * query);
  attention = parts.Take<float>(rows * heads * spec.attention_dim());
  const uint64_t mlp = std::max(slice.mlp.size(), slice.shared.size());
  gate = parts.Take<float>(rows * mlp);
  if (spec.gated_mlp) up = parts.Take<float>(rows * mlp);
  logits = parts.Take<float>(uint64_t{limits.running_max} * slice.vocab.size());
  if (slice.world > 1) {
    const uint64_t bytes = Sampler::ExchangeBytes(spec.vocab, slice.world, limits.running_max);
    exchange_mine = parts.Take<uint8_t>(bytes);
    exchange_all = parts.Take<uint8_t>(bytes * slice.world);
  }
  rotary.resize(spec.attention_kinds.size());
  for (uint32_t kind = 0; kind < rotary.size(); ++kind) {
    if (spec.RopeKind(kind) != kind) continue;
    const uint32_t pairs = spec.attention_kinds[kind].rope.dims / 2;
    const uint64_t angles = uint64_t{spec.context_tokens} * pairs;
    rotary[kind].cosines = parts.Take<float>(angles);
    rotary[kind].sines = parts.Take<float>(angles);
  }
  const uint64_t widest =
      std::max({uint64_t{spec.hidden}, uint64_t{spec.embedding_dim}, heads * spec.output_dim(), mlp,
                uint64_t{spec.latent.query_rank}});
  TakePrepared(rows, widest, parts, &normed);
  made = normed;
  if (spec.parallel_residual || spec.experts.shared_hidden > 0) {
    TakePrepared(rows, widest, parts, &made);
  }
  if (spec.experts.count > 0) AssignExperts(spec, slice, rows, parts);
  if (latents) AssignLatent(spec, heads, rows, parts);
  const int64_t scratch = latents ? kernels::cpu::LatentScratchBytes(spec.latent.rank)
                                  : kernels::cpu::AttentionScratchBytes(spec.head_dim);
  threads.resize(limits.threads);
  for (ThreadScratch& thread : threads) {
    thread.row = parts.Take<float>(spec.hidden);
    thread.attention = parts.Take<uint8_t>(static_cast<uint64_t>(scratch));
  }
  return parts.used();
}

uint64_t Workspace::Bytes(const DecoderSpec& spec, const SlicePlan& slice,
                          const WorkspaceLimits& limits) {
  return Workspace().AssignParts(nullptr, spec, slice, limits);
}

absl::StatusOr<Workspace> Workspace::Create(const DecoderSpec& spec, const SlicePlan& slice,
                                            const WorkspaceLimits& limits) {
  Workspace workspace;
  WEFT_ASSIGN_OR_RETURN(workspace.memory_, HostMemory::Map(Bytes(spec, slice, limits),
                                                           "activations (--step-tokens-max)"));
  workspace.AssignParts(workspace.memory_.data(), spec, slice, limits);
  return workspace;
}

}  // namespace weft::shard
