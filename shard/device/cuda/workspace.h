// All device memory of a step but weights and KV blocks: activations, logits, what attention and
// the sampler need between their kernels, and the sampler's state of each slot. One allocation of a
// size that follows from shapes and limits alone (invariant mem.plan). Owned by the model runner;
// contents belong to the device thread's stream.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/memory_parts.h"
#include "kernels/cuda/attention/prompt_attention.h"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/sampling/sampler.h"
#include "shard/device/cuda/runtime/buffer.h"
#include "shard/device/cuda/shape.h"

namespace weft::shard {

struct CudaLimits {
  uint32_t step_tokens_max = 0;
  uint32_t running_max = 0;
  uint32_t context_tokens = 0;
  uint32_t world = 1;
  // Of the whole vocabulary, all ranks.
  uint32_t vocab = 0;
  // CTAs of decode attention (kernels/cuda/attention/decode_attention.h DecodeGrid).
  uint32_t decode_grid = 0;
  // Query heads of the largest group of one KV head.
  uint32_t group_max = 0;
  // Rows are treated alike, however many there are and wherever they come from (--deterministic).
  bool deterministic = false;
  // By attention kind: rotary pairs of a head, 0 for a kind that shares an earlier one's table.
  std::vector<uint32_t> rotary_pairs;
  // KV groups, and what block ids are multiplied by in device tables (kv_cache.h).
  uint32_t kv_groups = 1;
  uint32_t kv_id_stride = 1;
  // Attention has sinks.
  bool sinks = false;
  // Rows of experts are counted.
  bool expert_load = false;

  // Blocks of a whole context: the stride of unpacked block tables.
  uint32_t blocks_per_sequence() const;
  // Block ids in all tables of a step, at most.
  uint64_t block_ids_max() const;
};

// What a step says of its scored rows, on the device and, laid out alike, where it comes back to.
struct ScoreBuffers {
  // What would have been drawn, for kInvalidSampleBit.
  uint32_t* ids = nullptr;        // [rows]
  float* logprobs = nullptr;      // [rows]
  uint32_t* ranks = nullptr;      // [rows]
  uint32_t* top_ids = nullptr;    // [rows, kSamplerTopLogprobsMax]
  float* top_logprobs = nullptr;  // [rows, kSamplerTopLogprobsMax]

  // Those of `rows` rows at `base`, and the bytes that they take, unless null.
  static ScoreBuffers At(uint8_t* base, uint64_t rows, uint64_t* bytes = nullptr);
  static uint64_t Bytes(uint64_t rows);
};

struct CudaWorkspace {
  // Device pointers; element types where they are not T = CudaShape::type. R = running_max,
  // S = step_tokens_max.
  float* residual = nullptr;       // [S, hidden]
  float* residual_kept = nullptr;  // [R, hidden]: of the rows that sample, or of a scored slice
  float* embedded = nullptr;       // [S, embedding]; null where the residual is as wide
  void* normed = nullptr;          // [S, hidden] or [S, embedding] T
  void* qkv = nullptr;             // [S, qkv_columns] T
  void* attention = nullptr;       // [S, attention_columns] T
  void* attention_kept = nullptr;  // [R, attention_columns] T
  // Of latent attention.
  void* query_latent = nullptr;  // [S, query_rank] T
  void* head_query = nullptr;    // [S, query_heads, query_dim] T
  void* latent = nullptr;        // [S, head_stride] T
  void* head_value = nullptr;    // [S, output_columns] T
  void* gate_up = nullptr;       // [S, gate_up_columns] T
  void* mlp = nullptr;           // [S, mlp] T
  // Of layers with experts; P = S times the experts of a row. What takes a row to its places
  // (kernels/cuda/experts/route.h), and the router's numbers.
  float* routes = nullptr;  // [S, router_rows]
  kernels::cuda::ExpertRoutes expert_routes;
  uint8_t* route_workspace = nullptr;
  void* expert_in = nullptr;       // [P, hidden] T: the normed row of each place
  void* expert_gate_up = nullptr;  // [P, 2 * expert_mlp] T
  void* expert_mlp = nullptr;      // [P, expert_mlp] T
  void* expert_out = nullptr;      // [P, hidden] T
  // Where rows of experts are counted: how many there were, and 0 while they are not.
  uint64_t* expert_counts = nullptr;     // [layers, experts]
  uint32_t* counting_experts = nullptr;  // [1]
  float* logits = nullptr;               // [R, vocab]: of this rank's slice
  // With more than one rank, norms behind both halves of a layer, or experts: what is on its way
  // to the residual. With more than one rank: logits of all ranks as they were gathered, and joined
  // to rows.
  void* partial = nullptr;          // [S, hidden] T
  float* gathered = nullptr;        // [world, R, vocab]
  float* joined = nullptr;          // [R, vocabulary of all ranks, padded]
  uint32_t* vocab_begin = nullptr;  // [world + 1]

  uint8_t* inputs = nullptr;         // StepUpload's bytes of one step
  uint32_t* block_tables = nullptr;  // [KV groups, sequences of the step, blocks_per_sequence]
  // Of each KV group.
  std::vector<uint8_t*> decode_schedules;
  uint8_t* decode_partials = nullptr;
  uint64_t decode_partials_bytes = 0;
  kernels::cuda::PromptTile* prompt_tiles = nullptr;
  uint32_t* prompt_counters = nullptr;  // [kPromptCounters]
  // By attention kind, [context, pairs]; null for a kind that shares an earlier one's.
  std::vector<float2*> rotary;
  float* alibi_slopes = nullptr;      // [query heads], used with ALiBi alone
  float* sinks = nullptr;             // [layers, query heads]; null in a model without
  uint32_t* kv_head_begin = nullptr;  // [kv_heads + 1]

  uint8_t* sampler = nullptr;
  uint32_t* last_sampled = nullptr;            // [R slots]
  uint16_t* counts = nullptr;                  // [R slots, vocabulary of all ranks, padded]
  kernels::cuda::LogitBias* biases = nullptr;  // [R slots, kSlotBiasesMax]
  uint32_t* masks = nullptr;                   // [R, MaskStride]: of the step's masked rows
  uint32_t* penalty_ids = nullptr;             // [context]: of a sequence that begins

  // What goes back to the host, in this order and with nothing between. First a word that says
  // whether the step's sums over ranks were made (PeerSum::StatusOf).
  uint32_t* sum_status = nullptr;
  uint32_t* out_ids = nullptr;        // [R]
  float* out_logprobs = nullptr;      // [R]
  uint32_t* out_top_ids = nullptr;    // [R, kSamplerTopLogprobsMax]
  float* out_top_logprobs = nullptr;  // [R, kSamplerTopLogprobsMax]

  uint8_t* scores = nullptr;  // ScoreBuffers of the step's scored rows, at most S

  uint8_t* gemm = nullptr;
  uint8_t* gemv = nullptr;

  static constexpr uint64_t kGemmBytes = uint64_t{64} << 20;

  // Bytes that Create takes.
  static uint64_t Bytes(const CudaShape& shape, const CudaLimits& limits);
  static absl::StatusOr<CudaWorkspace> Create(const CudaShape& shape, const CudaLimits& limits);

  // Elements of a row of all ranks' vocabulary: counts and joined logits.
  static uint64_t VocabStride(const CudaLimits& limits) { return (limits.vocab + 7) / 8 * 8; }
  // Words of one row's mask.
  static uint64_t MaskStride(const CudaLimits& limits) { return (limits.vocab + 31) / 32; }

 private:
  void AssignParts(const CudaShape& shape, const CudaLimits& limits, MemoryParts* parts);
  void AssignAttention(const CudaShape& shape, const CudaLimits& limits, MemoryParts* parts);
  void AssignExperts(const CudaShape& shape, uint64_t rows, MemoryParts* parts);

  DeviceBuffer memory_;
};

}  // namespace weft::shard
