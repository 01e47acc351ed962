#include "shard/device/cuda/ops.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/prompt_attention.h"
#include "kernels/cuda/rotary_table.h"
#include "kernels/cuda/rows.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

using kernels::cuda::BytesOf;
using kernels::cuda::DType;

}  // namespace

CudaOps::CudaOps(const Parts& parts)
    : spec_(parts.spec),
      slice_(parts.slice),
      shape_(parts.shape),
      limits_(parts.limits),
      weights_(parts.weights),
      ws_(parts.workspace),
      kv_(parts.kv),
      stream_(parts.stream),
      slots_(parts.limits.running_max) {}

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(const Parts& parts) {
  std::unique_ptr<CudaOps> ops(new CudaOps(parts));
  WEFT_ASSIGN_OR_RETURN(ops->gemm_, Gemm::Create(ops->ws_.gemm, CudaWorkspace::kGemmBytes));
  if (ops->limits_.deterministic) ops->gemm_->ServeAllRowsAlike();
  WEFT_ASSIGN_OR_RETURN(ops->upload_, StepUpload::Create(ops->limits_));
  // The longest of one start, and enough for the many short ones of a step.
  constexpr uint64_t kStagingBytesMin = uint64_t{1} << 20;
  static_assert(kLogitBiasMax * sizeof(kernels::cuda::LogitBias) <= kStagingBytesMin);
  const uint64_t staging_bytes =
      std::max<uint64_t>(ops->limits_.context_tokens * sizeof(uint32_t), kStagingBytesMin);
  WEFT_ASSIGN_OR_RETURN(ops->start_staging_, AllocatePinned(staging_bytes, "penalties and biases"));
  WEFT_ASSIGN_OR_RETURN(ops->staging_read_, MakeEvent());
  WEFT_RETURN_IF_ERROR(ops->FillConstants());
  return ops;
}

absl::Status CudaOps::FillConstants() {
  std::vector<uint32_t> begin(shape_.kv_heads + 1, 0);
  for (uint32_t head = 0; head < shape_.query_heads; ++head) {
    begin[slice_.kv_head_of[head] + 1] = head + 1;
  }
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(ws_.kv_head_begin, begin.data(), begin.size() * sizeof(uint32_t),
                            cudaMemcpyHostToDevice),
                 "copy of the head map"));
  if (slice_.world > 1) {
    std::vector<uint32_t> vocab_begin = {0};
    for (Rank rank = 0; rank < slice_.world; ++rank) {
      WEFT_ASSIGN_OR_RETURN(const SlicePlan other, MakeSlicePlan(spec_, rank, slice_.world, 1));
      vocab_begin.push_back(other.vocab.end);
    }
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(ws_.vocab_begin, vocab_begin.data(),
                              vocab_begin.size() * sizeof(uint32_t), cudaMemcpyHostToDevice),
                   "copy of the vocabulary's slices"));
  }
  return FillRotaryTable();
}

absl::Status CudaOps::FillRotaryTable() {
  const std::vector<float> frequencies = RopeInverseFrequencies(spec_.rope);
  if (frequencies.empty()) return absl::OkStatus();
  WEFT_CHECK_EQ(frequencies.size(), limits_.rotary_pairs);
  kernels::cuda::RotaryTableParams params;
  WEFT_CHECK_LE(frequencies.size(), std::size(params.inverse_frequencies));
  std::copy(frequencies.begin(), frequencies.end(), params.inverse_frequencies);
  params.pairs = limits_.rotary_pairs;
  params.positions = limits_.context_tokens;
  params.out = ws_.rotary;
  return CudaStatus(kernels::cuda::FillRotaryTable(params, stream_), "rotary table");
}

absl::Status CudaOps::BeginSequences(const StepBatch& batch) {
  for (const Slot slot : batch.drops) slots_.Drop(slot);
  for (const SequenceStart& start : batch.starts) {
    WEFT_RETURN_IF_ERROR(slots_.Begin(start));
    WEFT_RETURN_IF_ERROR(UploadStart(start));
  }
  return absl::OkStatus();
}

absl::Status CudaOps::UploadStart(const SequenceStart& start) {
  using kernels::cuda::LogitBias;
  const SamplingParams& params = start.sampling;
  if (!params.logit_bias.empty()) {
    WEFT_CHECK_LE(params.logit_bias.size(), kLogitBiasMax);
    WEFT_ASSIGN_OR_RETURN(uint8_t* const memory,
                          TakeStaging(params.logit_bias.size() * sizeof(LogitBias)));
    auto* const staged = reinterpret_cast<LogitBias*>(memory);
    for (size_t i = 0; i < params.logit_bias.size(); ++i) {
      staged[i] = {params.logit_bias[i].first, params.logit_bias[i].second};
    }
    WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(ws_.biases + start.slot * kLogitBiasMax, staged,
                                                    params.logit_bias.size() * sizeof(LogitBias),
                                                    cudaMemcpyHostToDevice, stream_),
                                    "copy of logit biases"));
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaEventRecord(staging_read_.get(), stream_), "end of a copy"));
  }
  if (!params.has_penalties()) return absl::OkStatus();
  WEFT_CHECK_LE(start.penalty_ids.size(), size_t{limits_.context_tokens});
  const size_t bytes = start.penalty_ids.size() * sizeof(uint32_t);
  WEFT_ASSIGN_OR_RETURN(uint8_t* const staged, TakeStaging(bytes));
  std::copy(start.penalty_ids.begin(), start.penalty_ids.end(),
            reinterpret_cast<uint32_t*>(staged));
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(ws_.penalty_ids, staged, bytes, cudaMemcpyHostToDevice, stream_),
                 "copy of penalty ids"));
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(staging_read_.get(), stream_), "end of a copy"));
  kernels::cuda::CountTokensParams count;
  count.counts = ws_.counts + start.slot * CudaWorkspace::VocabStride(limits_);
  count.vocabulary = limits_.vocab;
  count.ids = ws_.penalty_ids;
  count.count = static_cast<uint32_t>(start.penalty_ids.size());
  count.prompt_count = start.prompt_len;
  return CudaStatus(kernels::cuda::CountTokens(count, stream_), "counting tokens");
}

absl::StatusOr<uint8_t*> CudaOps::TakeStaging(size_t bytes) {
  // Copies are made in the order of the stream: the last one's event speaks for all.
  const MemoryParts all(start_staging_.data(), kStagingAlignment);
  if (cudaEventQuery(staging_read_.get()) == cudaSuccess) staging_parts_ = all;
  if (staging_parts_.used() + bytes > start_staging_.bytes()) {
    WEFT_RETURN_IF_ERROR(AwaitStaging());
    staging_parts_ = all;
  }
  return staging_parts_.Take(bytes);
}

absl::Status CudaOps::AwaitStaging() {
  WEFT_ASSIGN_OR_RETURN(
      const cudaError_t state,
      communicator_->AwaitDevice(
          [this] { return cudaEventQuery(staging_read_.get()); },
          absl::Now() + communicator_->peer_timeout() + absl::Microseconds(kStepAllowedUsMax),
          "the step before did not end in its time"));
  return CudaStatus(state, "waiting for a copy");
}

absl::Status CudaOps::BeginStep(const StepBatch& batch, uint32_t decode_rows) {
  WEFT_ASSIGN_OR_RETURN(step_, upload_.Pack(batch, decode_rows, slots_));
  inputs_ = StepUpload::Parts(step_, ws_.inputs);
  status_ = absl::OkStatus();
  rows_ = step_.rows;
  narrow_ = false;
  partial_pending_ = false;
  pending_norm_ = nullptr;
  pending_sum_.reset();
  no_overlap_ = false;
  residual_ = ws_.residual;
  attention_ = ws_.attention;
  return CudaStatus(
      cudaMemcpyAsync(ws_.inputs, upload_.data(), upload_.bytes(), cudaMemcpyHostToDevice, stream_),
      "copy of step inputs");
}

void CudaOps::WantedLogprobs(const StepBatch& batch, std::vector<uint32_t>* wanted) const {
  wanted->clear();
  for (const StepSequence& sequence : batch.sequences) {
    if (!sequence.sample) continue;
    const kernels::cuda::SamplingRow row = slots_.Row(sequence.slot, 0);
    wanted->push_back(row.logprobs != 0 ? 1 + row.top_logprobs : 0);
  }
}

void CudaOps::Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess && status_.ok()) status_ = CudaStatus(error, what);
}

void CudaOps::Check(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

absl::Status CudaOps::Embed() {
  Check(kernels::cuda::UnpackBlockTables({inputs_.block_ids, inputs_.table_begin, step_.sequences(),
                                          ws_.block_tables, limits_.blocks_per_sequence()},
                                         stream_),
        "block tables");
  if (step_.decode_rows > 0 && shape_.type == DType::kBfloat16) {
    kernels::cuda::DecodeScheduleParams schedule;
    schedule.context_lengths = inputs_.context_lengths;
    schedule.sequences = step_.decode_rows;
    schedule.kv_heads = shape_.kv_heads;
    schedule.group_max = limits_.group_max;
    schedule.grid = limits_.decode_grid;
    schedule.schedule = ws_.decode_schedule;
    schedule.tables = {ws_.block_tables, limits_.blocks_per_sequence()};
    schedule.dependent = Overlaps();
    Check(kernels::cuda::MakeDecodeSchedule(schedule, stream_), "decode schedule");
  }
  if (step_.chunks > 0) {
    kernels::cuda::PromptAttentionParams prompt;
    prompt.attention = AttentionOf(0, step_.decode_rows, step_.chunks);
    prompt.row_begin = inputs_.chunk_row_begin;
    prompt.rows_max = rows_ - step_.decode_rows;
    prompt.tiles = ws_.prompt_tiles;
    prompt.counters = ws_.prompt_counters;
    Check(kernels::cuda::PlanPromptAttention(prompt, stream_), "prompt attention's plan");
  }
  kernels::cuda::EmbedParams embed;
  embed.ids = inputs_.ids;
  embed.slot = inputs_.row_slots;
  embed.last_sampled = ws_.last_sampled;
  embed.table = weights_.embedding();
  embed.vocab_begin = slice_.vocab.begin;
  embed.vocab_end = slice_.vocab.end;
  embed.residual = residual_;
  embed.rows = rows_;
  embed.hidden = shape_.hidden;
  embed.type = shape_.type;
  Check(kernels::cuda::Embed(embed, stream_), "embedding");
  // Each rank has the rows of its slice of the vocabulary, the others zeros.
  if (slice_.world > 1) AllReduce(residual_, DType::kFloat32);
  return status_;
}

bool CudaOps::Overlaps() { return !std::exchange(no_overlap_, false); }

kernels::cuda::RotateAndAppendParams CudaOps::HeadsOf(uint32_t layer) const {
  kernels::cuda::RotateAndAppendParams params;
  params.qkv = ws_.qkv;
  params.qkv_stride = shape_.qkv_columns();
  params.bias = weights_.layer(layer).qkv_bias;
  params.query_heads = shape_.query_heads;
  params.rotary = spec_.rope.dims != 0 ? ws_.rotary : nullptr;
  params.rotary_dim = spec_.rope.dims;
  params.positions = inputs_.positions;
  params.sequences = inputs_.row_sequences;
  params.query = ws_.qkv;
  params.query_stride = shape_.qkv_columns();
  params.kv = kv_.Layer(layer);
  params.tables = {ws_.block_tables, limits_.blocks_per_sequence()};
  params.rows = rows_;
  params.type = shape_.type;
  return params;
}

void CudaOps::RotateAndAppend(uint32_t layer) {
  if (failed() || AppendsInProduct()) return;
  kernels::cuda::RotateAndAppendParams params = HeadsOf(layer);
  params.dependent = Overlaps();
  Check(kernels::cuda::RotateAndAppend(params, stream_), "rotary");
}

kernels::cuda::AttentionParams CudaOps::AttentionOf(uint32_t layer, uint32_t first_sequence,
                                                    uint32_t sequences) const {
  const uint32_t stride = limits_.blocks_per_sequence();
  kernels::cuda::AttentionParams params;
  params.query = ws_.qkv;
  params.query_stride = shape_.qkv_columns();
  params.query_heads = shape_.query_heads;
  params.kv = kv_.Layer(layer);
  params.tables = {ws_.block_tables + size_t{first_sequence} * stride, stride};
  params.context_lengths = inputs_.context_lengths + first_sequence;
  params.sequences = sequences;
  params.kv_head_begin = ws_.kv_head_begin;
  params.group_max = limits_.group_max;
  params.scale = spec_.attention_scale;
  params.out = ws_.attention;
  params.type = shape_.type;
  return params;
}

void CudaOps::AttendDecode(uint32_t layer) {
  kernels::cuda::DecodeAttentionParams params;
  params.attention = AttentionOf(layer, 0, step_.decode_rows);
  params.schedule = ws_.decode_schedule;
  params.grid = limits_.decode_grid;
  params.workspace = ws_.decode_partials;
  params.workspace_bytes = ws_.decode_partials_bytes;
  params.dependent = Overlaps();
  // Decode rows come first, and nobody writes into their sequences but their own last position. The
  // schedule and all keys before were complete when the embedding began.
  params.after_append = params.dependent;
  Check(kernels::cuda::DecodeAttention(params, stream_), "decode attention");
}

void CudaOps::AttendChunks(uint32_t layer) {
  kernels::cuda::PromptAttentionParams params;
  params.attention = AttentionOf(layer, step_.decode_rows, step_.chunks);
  params.row_begin = inputs_.chunk_row_begin;
  params.rows_max = step_.rows - step_.decode_rows;
  params.tiles = ws_.prompt_tiles;
  params.counters = ws_.prompt_counters;
  params.tensor_maps = kv_.TensorMaps(layer);
  Check(kernels::cuda::PromptAttention(params, stream_), "prompt attention");
}

void CudaOps::Attend(uint32_t layer) {
  if (failed()) return;
  if (step_.decode_rows > 0) AttendDecode(layer);
  if (step_.chunks > 0) AttendChunks(layer);
  NarrowToSampled();
}

uint32_t CudaOps::KeepSampledRows() {
  narrow_ = !step_.decode_only();
  return step_.sampled;
}

void CudaOps::NarrowToSampled() {
  if (!narrow_ || failed()) return;
  narrow_ = false;
  const uint64_t hidden_bytes = uint64_t{shape_.hidden} * sizeof(float);
  const uint32_t attention_bytes = shape_.query_columns() * BytesOf(shape_.type);
  Check(kernels::cuda::GatherRows(
            {ws_.residual, hidden_bytes, inputs_.sampled_rows, ws_.residual_kept, step_.sampled,
             static_cast<uint32_t>(hidden_bytes)},
            stream_),
        "sampled rows");
  Check(kernels::cuda::GatherRows({ws_.attention, attention_bytes, inputs_.sampled_rows,
                                   ws_.attention_kept, step_.sampled, attention_bytes},
                                  stream_),
        "sampled rows");
  rows_ = step_.sampled;
  residual_ = ws_.residual_kept;
  attention_ = ws_.attention_kept;
}

void CudaOps::GatherLogits() {
  if (failed()) return;
  const uint32_t rows = step_.sampled;
  Check(communicator_->AllGather(ws_.logits, uint64_t{rows} * shape_.vocab, ws_.gathered, stream_));
  no_overlap_ = true;
  if (failed()) return;
  Check(kernels::cuda::JoinSlices({ws_.gathered, shape_.vocab, ws_.vocab_begin, slice_.world, rows,
                                   ws_.joined, CudaWorkspace::VocabStride(limits_)},
                                  stream_),
        "logits of all ranks");
}

absl::Status CudaOps::Sample(StepResult*) {
  const bool alone = slice_.world == 1;
  if (failed()) return status_;
  kernels::cuda::SamplerParams params;
  params.logits = alone ? ws_.logits : ws_.joined;
  params.row_stride = alone ? shape_.vocab : CudaWorkspace::VocabStride(limits_);
  params.rows = step_.sampled;
  params.vocabulary = limits_.vocab;
  params.features = step_.features;
  params.row_params = inputs_.sampling;
  params.biases = ws_.biases;
  params.counts = ws_.counts;
  params.count_stride = CudaWorkspace::VocabStride(limits_);
  params.last_sampled = ws_.last_sampled;
  params.out_ids = ws_.out_ids;
  params.out_logprobs = ws_.out_logprobs;
  params.out_top_ids = ws_.out_top_ids;
  params.out_top_logprobs = ws_.out_top_logprobs;
  params.workspace = ws_.sampler;
  params.dependent = Overlaps();
  Check(kernels::cuda::Sample(params, stream_), "sampler");
  return status_;
}

}  // namespace weft::shard
