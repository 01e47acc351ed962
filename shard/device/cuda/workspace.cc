#include "shard/device/cuda/workspace.h"

#include <algorithm>

#include "common/limits.h"
#include "common/status.h"
#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/gemm/gemv.h"
#include "kernels/cuda/kv.h"
#include "shard/device/cuda/runtime/status.h"
#include "shard/device/cuda/step_upload.h"

namespace weft::shard {

using kernels::cuda::kKvBlockTokens;
using kernels::cuda::kSamplerTopLogprobsMax;

uint32_t CudaLimits::blocks_per_sequence() const {
  return (context_tokens + kKvBlockTokens - 1) / kKvBlockTokens;
}

uint64_t CudaLimits::block_ids_max() const {
  return uint64_t{running_max} * blocks_per_sequence() * kv_groups;
}

ScoreBuffers ScoreBuffers::At(uint8_t* base, uint64_t rows, uint64_t* bytes) {
  MemoryParts parts(base, kDeviceAlignment);
  ScoreBuffers scores;
  scores.ids = parts.Take<uint32_t>(rows);
  scores.logprobs = parts.Take<float>(rows);
  scores.ranks = parts.Take<uint32_t>(rows);
  scores.top_ids = parts.Take<uint32_t>(rows * kSamplerTopLogprobsMax);
  scores.top_logprobs = parts.Take<float>(rows * kSamplerTopLogprobsMax);
  if (bytes != nullptr) *bytes = parts.used();
  return scores;
}

uint64_t ScoreBuffers::Bytes(uint64_t rows) {
  uint64_t bytes = 0;
  At(nullptr, rows, &bytes);
  return bytes;
}

void CudaWorkspace::AssignExperts(const CudaShape& shape, uint64_t rows, MemoryParts* parts) {
  const uint64_t element = kernels::cuda::BytesOf(shape.type);
  const uint32_t per_token = shape.experts_per_token;
  const uint64_t places = rows * per_token;
  const auto rows_max = static_cast<uint32_t>(rows);
  routes = parts->Take<float>(rows * shape.router_rows);
  expert_routes.weights = parts->Take<float>(places);
  expert_routes.places = parts->Take<uint32_t>(places);
  expert_routes.row_of_place = parts->Take<uint32_t>(places);
  expert_routes.expert_of_place = parts->Take<uint32_t>(places);
  expert_routes.tiles = parts->Take<kernels::cuda::ExpertTile>(kernels::cuda::ExpertTilesMax(
      rows_max, shape.experts, per_token, kernels::cuda::kExpertTileRowsMin));
  expert_routes.tile_count = parts->Take<uint32_t>(1);
  route_workspace =
      parts->Take(kernels::cuda::RouteWorkspaceBytes(rows_max, shape.experts, per_token));
  expert_in = parts->Take(places * shape.hidden * element);
  expert_gate_up = parts->Take(places * 2 * shape.expert_mlp * element);
  expert_mlp = parts->Take(places * shape.expert_mlp * element);
  expert_out = parts->Take(places * shape.hidden * element);
}

void CudaWorkspace::AssignAttention(const CudaShape& shape, const CudaLimits& limits,
                                    MemoryParts* parts) {
  if (shape.latent) {
    const uint64_t rows_bytes = limits.step_tokens_max * uint64_t{BytesOf(shape.type)};
    query_latent = parts->Take(rows_bytes * shape.query_rank);
    head_query = parts->Take(rows_bytes * shape.query_heads * shape.query_dim);
    latent = parts->Take(rows_bytes * shape.head_stride);
    head_value = parts->Take(rows_bytes * shape.output_columns());
    return;
  }
  decode_schedules.resize(limits.kv_groups);
  for (uint8_t*& schedule : decode_schedules) {
    schedule = parts->Take(kernels::cuda::DecodeScheduleBytes(
        limits.running_max, shape.kv_heads, limits.group_max, limits.decode_grid));
  }
  decode_partials_bytes =
      kernels::cuda::DecodeWorkspaceBytes({limits.running_max, shape.kv_heads, limits.group_max,
                                           shape.head_stride, limits.decode_grid, 0, 0});
  decode_partials = parts->Take(decode_partials_bytes);
  prompt_tiles = parts->Take<kernels::cuda::PromptTile>(
      kernels::cuda::PromptTilesMax(limits.step_tokens_max, limits.running_max));
  prompt_counters = parts->Take<uint32_t>(kernels::cuda::kPromptCounters);
}

void CudaWorkspace::AssignParts(const CudaShape& shape, const CudaLimits& limits,
                                MemoryParts* parts) {
  const uint64_t rows = limits.step_tokens_max;
  const uint64_t running = limits.running_max;
  const uint64_t element = kernels::cuda::BytesOf(shape.type);
  residual = parts->Take<float>(rows * shape.hidden);
  residual_kept = parts->Take<float>(running * shape.hidden);
  if (shape.projects) embedded = parts->Take<float>(rows * shape.embedding);
  normed = parts->Take(rows * shape.widest_normed() * element);
  qkv = parts->Take(rows * shape.qkv_columns() * element);
  attention = parts->Take(rows * shape.attention_columns() * element);
  attention_kept = parts->Take(running * shape.attention_columns() * element);
  gate_up = parts->Take(rows * std::max(shape.gate_up_columns(), 2 * shape.shared_mlp) * element);
  mlp = parts->Take(rows * shape.widest_mlp() * element);
  if (shape.experts > 0) AssignExperts(shape, rows, parts);
  if (limits.expert_load) {
    expert_counts = parts->Take<uint64_t>(uint64_t{shape.layers} * shape.experts);
    counting_experts = parts->Take<uint32_t>(1);
  }
  logits = parts->Take<float>(running * shape.vocab);
  if (limits.world > 1 || shape.post_norms || shape.experts > 0) {
    partial = parts->Take(rows * shape.hidden * element);
  }
  if (limits.world > 1) {
    gathered = parts->Take<float>(limits.world * running * shape.vocab);
    joined = parts->Take<float>(running * VocabStride(limits));
    vocab_begin = parts->Take<uint32_t>(limits.world + 1);
  }

  inputs = parts->Take(StepUpload::Bytes(limits));
  block_tables = parts->Take<uint32_t>(limits.block_ids_max());
  AssignAttention(shape, limits, parts);
  rotary.assign(limits.rotary_pairs.size(), nullptr);
  for (size_t kind = 0; kind < rotary.size(); ++kind) {
    const uint64_t angles = uint64_t{limits.context_tokens} * limits.rotary_pairs[kind];
    if (angles > 0) rotary[kind] = parts->Take<float2>(angles);
  }
  alibi_slopes = parts->Take<float>(shape.query_heads);
  if (limits.sinks) sinks = parts->Take<float>(uint64_t{shape.layers} * shape.query_heads);
  kv_head_begin = parts->Take<uint32_t>(shape.kv_heads + 1);

  sampler = parts->Take(kernels::cuda::SamplerWorkspaceBytes(limits.running_max, limits.vocab,
                                                             kernels::cuda::kSamplerAllFeatures));
  last_sampled = parts->Take<uint32_t>(running);
  counts = parts->Take<uint16_t>(running * VocabStride(limits));
  biases = parts->Take<kernels::cuda::LogitBias>(uint64_t{running} * kSlotBiasesMax);
  masks = parts->Take<uint32_t>(uint64_t{running} * MaskStride(limits));
  penalty_ids = parts->Take<uint32_t>(limits.context_tokens);

  // Every part is a multiple of the alignment, so that one copy takes them all.
  const uint64_t out_rows = (running + 63) / 64 * 64;
  sum_status = parts->Take<uint32_t>(1);
  out_ids = parts->Take<uint32_t>(out_rows);
  out_logprobs = parts->Take<float>(out_rows);
  out_top_ids = parts->Take<uint32_t>(out_rows * kSamplerTopLogprobsMax);
  out_top_logprobs = parts->Take<float>(out_rows * kSamplerTopLogprobsMax);

  scores = parts->Take(ScoreBuffers::Bytes(rows));

  gemm = parts->Take(kGemmBytes);
  gemv = parts->Take(kernels::cuda::kGemvWorkspaceBytes);
}

uint64_t CudaWorkspace::Bytes(const CudaShape& shape, const CudaLimits& limits) {
  CudaWorkspace workspace;
  MemoryParts parts(nullptr, kDeviceAlignment);
  workspace.AssignParts(shape, limits, &parts);
  return parts.used();
}

absl::StatusOr<CudaWorkspace> CudaWorkspace::Create(const CudaShape& shape,
                                                    const CudaLimits& limits) {
  CudaWorkspace workspace;
  WEFT_ASSIGN_OR_RETURN(workspace.memory_, AllocateDevice(Bytes(shape, limits), "the workspace"));
  MemoryParts parts(workspace.memory_.data(), kDeviceAlignment);
  workspace.AssignParts(shape, limits, &parts);
  // Tickets and counters begin at zero.
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMemset(workspace.memory_.data(), 0, workspace.memory_.bytes()),
                 "clearing the workspace"));
  return workspace;
}

}  // namespace weft::shard
