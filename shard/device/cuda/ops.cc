#include "shard/device/cuda/ops.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/attention/prompt_attention.h"
#include "kernels/cuda/elementwise/embedding.h"
#include "kernels/cuda/elementwise/rotary_table.h"
#include "kernels/cuda/elementwise/rows.h"
#include "kernels/cuda/sampling/rank_targets.h"
#include "shard/device/cuda/runtime/status.h"

namespace weft::shard {
namespace {

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
      slots_(parts.limits.running_max) {
  CudaPlanFacts facts = FactsOf(spec_, shape_, slice_, limits_.deterministic);
  facts.left_out = parts.left_out;
  nccl_plans_ = MakeCudaPlans(spec_, facts);
  facts.peers = true;
  if (slice_.world > 1) peer_plans_ = MakeCudaPlans(spec_, facts);
}

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(const Parts& parts,
                                                         std::unique_ptr<Gemm> gemm) {
  std::unique_ptr<CudaOps> ops(new CudaOps(parts));
  ops->gemm_ = std::move(gemm);
  if (ops->limits_.deterministic) ops->gemm_->ServeAllRowsAlike();
  WEFT_ASSIGN_OR_RETURN(ops->upload_, StepUpload::Create(ops->limits_));
  // The longest of one start, and enough for the many short ones of a step.
  constexpr uint64_t kStagingBytesMin = uint64_t{1} << 20;
  static_assert(kSlotBiasesMax * sizeof(kernels::cuda::LogitBias) <= kStagingBytesMin);
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
  return FillPositions();
}

absl::Status CudaOps::WidenSinks() {
  if (ws_.sinks == nullptr) return absl::OkStatus();
  std::vector<float> wide(shape_.query_heads);
  std::vector<uint16_t> narrow(shape_.query_heads);
  const bool is_wide = shape_.type == DType::kFloat32;
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    void* const host = is_wide ? static_cast<void*>(wide.data()) : narrow.data();
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(host, weights_.layer(layer).sinks,
                              shape_.query_heads * BytesOf(shape_.type), cudaMemcpyDeviceToHost),
                   "copy of attention sinks"));
    for (uint32_t i = 0; !is_wide && i < shape_.query_heads; ++i) {
      wide[i] = absl::bit_cast<float>(uint32_t{narrow[i]} << 16);
    }
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(ws_.sinks + size_t{layer} * shape_.query_heads, wide.data(),
                              shape_.query_heads * sizeof(float), cudaMemcpyHostToDevice),
                   "copy of attention sinks"));
  }
  return absl::OkStatus();
}

absl::Status CudaOps::FillPositions() {
  const std::vector<float> slopes = AlibiSlopes(spec_);
  if (!slopes.empty()) {
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(ws_.alibi_slopes, slopes.data() + slice_.heads.begin,
                              shape_.query_heads * sizeof(float), cudaMemcpyHostToDevice),
                   "copy of ALiBi's slopes"));
  }
  WEFT_RETURN_IF_ERROR(WidenSinks());
  for (uint32_t kind = 0; kind < spec_.attention_kinds.size(); ++kind) {
    if (ws_.rotary[kind] == nullptr) continue;
    const std::vector<float> frequencies = RopeInverseFrequencies(spec_.attention_kinds[kind].rope);
    WEFT_CHECK_EQ(frequencies.size(), limits_.rotary_pairs[kind]);
    kernels::cuda::RotaryTableParams params;
    WEFT_CHECK_LE(frequencies.size(), std::size(params.inverse_frequencies));
    std::copy(frequencies.begin(), frequencies.end(), params.inverse_frequencies);
    params.factor = spec_.attention_kinds[kind].rope.attention_factor;
    params.pairs = limits_.rotary_pairs[kind];
    params.positions = limits_.context_tokens;
    params.out = ws_.rotary[kind];
    WEFT_RETURN_IF_ERROR(
        CudaStatus(kernels::cuda::FillRotaryTable(params, stream_), "rotary table"));
  }
  return absl::OkStatus();
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
  const size_t biases = params.held_ids.size() + params.logit_bias.size();
  if (biases > 0) {
    WEFT_CHECK_LE(biases, size_t{kSlotBiasesMax});
    WEFT_ASSIGN_OR_RETURN(uint8_t* const memory, TakeStaging(biases * sizeof(LogitBias)));
    auto* staged = reinterpret_cast<LogitBias*>(memory);
    for (const TokenId id : params.held_ids) {
      *staged++ = {id, -std::numeric_limits<float>::infinity()};
    }
    for (const auto& [id, bias] : params.logit_bias) *staged++ = {id, bias};
    WEFT_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(ws_.biases + start.slot * kSlotBiasesMax, memory,
                                   biases * sizeof(LogitBias), cudaMemcpyHostToDevice, stream_),
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
  masked_ = batch.masks != nullptr;
  inputs_ = upload_.Parts(step_, ws_.inputs);
  body_ = {step_.rows, ws_.residual, ws_.attention};
  tail_ = step_.decode_only() ? body_ : Rows{step_.sampled, ws_.residual_kept, ws_.attention_kept};
  kept_rows_ = inputs_.sampled_rows;
  attended_ = false;
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

absl::Status CudaOps::BeginSlice(uint32_t slice) {
  slice_begin_ = slice * limits_.running_max;
  tail_.count = std::min(limits_.running_max, step_.scored - slice_begin_);
  kept_rows_ = inputs_.scored_rows + slice_begin_;
  return absl::OkStatus();
}

absl::Status CudaOps::ScoreSlice(StepResult*) {
  const ScoreBuffers scores = ScoreBuffers::At(ws_.scores, step_.scored);
  kernels::cuda::SamplerParams params = SamplerOfTail();
  params.features = kernels::cuda::kSamplerLogprobs;
  params.row_params = inputs_.scoring + slice_begin_;
  params.targets = inputs_.targets + slice_begin_;
  params.out_ids = scores.ids + slice_begin_;
  params.out_logprobs = scores.logprobs + slice_begin_;
  const size_t first_top = size_t{slice_begin_} * kernels::cuda::kSamplerTopLogprobsMax;
  params.out_top_ids = scores.top_ids + first_top;
  params.out_top_logprobs = scores.top_logprobs + first_top;
  WEFT_RETURN_IF_ERROR(CudaStatus(kernels::cuda::Sample(params, stream_), "scores"));
  kernels::cuda::RankTargetsParams ranks;
  ranks.logits = params.logits;
  ranks.row_stride = params.row_stride;
  ranks.rows = params.rows;
  ranks.vocabulary = params.vocabulary;
  ranks.targets = params.targets;
  ranks.out_ranks = scores.ranks + slice_begin_;
  WEFT_RETURN_IF_ERROR(CudaStatus(kernels::cuda::RankTargets(ranks, stream_), "ranks"));
  tail_.count = step_.sampled;
  kept_rows_ = inputs_.sampled_rows;
  return absl::OkStatus();
}

StepPlan CudaOps::plan() const {
  const auto plan_of = [this](const Rows& rows) -> const LayerPlan& {
    return (*plans_)[static_cast<size_t>(RowClassOf(rows.count))];
  };
  return {plan_of(body_).body, plan_of(tail_).tail};
}

absl::Status CudaOps::Execute(const PlanOp& op, PlanPart part) {
  const Rows& rows = RowsOf(part);
  switch (op.kind) {
    case OpKind::kEmbed:
      return Embed(op);
    case OpKind::kAddPositions:
      return AddPositions();
    case OpKind::kNormResidual:
      return NormalizeResidual(op, rows);
    case OpKind::kNormPartial:
      return NormalizePartial(op, rows);
    case OpKind::kNorm:
      return Normalize(op, rows);
    case OpKind::kRound:
      return Round(op, rows);
    case OpKind::kLinear:
      return op.way == Way::kFewRows ? MultiplyFewRows(op, rows) : Multiply(op, rows);
    case OpKind::kAddBias:
      return AddBias(op, rows);
    case OpKind::kClip:
      return Clip(op, rows);
    case OpKind::kNormHeads:
      return NormalizeHeads(op, rows);
    case OpKind::kNormLatent:
      return NormalizeLatent(op, rows);
    case OpKind::kHeadLinear:
      return MultiplyByHead(op, rows);
    case OpKind::kRotateAppend:
      return shape_.latent ? RotateAndAppendLatent(op, rows) : RotateAndAppend(op, rows);
    case OpKind::kAttend:
      return Attend(op);
    case OpKind::kActivate:
      return Activate(op, rows);
    case OpKind::kSumRanks:
      return SumRanks(op, rows);
    case OpKind::kCapLogits:
      return CapLogits();
    case OpKind::kGatherLogits:
      return GatherLogits();
    case OpKind::kAddResidual:
      return AddResidual(op, rows);
    case OpKind::kRoute:
      return Route(op, rows);
    case OpKind::kExpertLinear:
      return MultiplyByExperts(op, rows);
    case OpKind::kScaleShared:
      return ScaleShared(op, rows);
    case OpKind::kCombine:
      return Combine(op, rows);
    case OpKind::kKeepSampled:
      break;  // always joined to another one (planner.cc)
  }
  return absl::InternalError(
      absl::StrCat("the plan has an operation of no kernel: ", PlanOpText(op)));
}

absl::Status CudaOps::Embed(const PlanOp& op) {
  WEFT_RETURN_IF_ERROR(PrepareAttention());
  kernels::cuda::EmbedParams embed;
  embed.ids = inputs_.ids;
  embed.slot = inputs_.row_slots;
  embed.last_sampled = ws_.last_sampled;
  embed.table = weights_.embedding();
  embed.vocab_begin = slice_.vocab.begin;
  embed.vocab_end = slice_.vocab.end;
  const bool adds_positions = spec_.position == PositionKind::kLearned && slice_.rank == 0;
  if (adds_positions && op.out == Buffer::kResidual) {
    embed.position_table = FirstPosition();
    embed.positions = inputs_.positions;
  }
  embed.scale = spec_.embedding_scale;
  embed.residual = static_cast<float*>(At(op.out, body_, Matrix::kNone));
  embed.rows = body_.count;
  embed.hidden = ColumnsOf(op.out);
  embed.type = shape_.type;
  return CudaStatus(kernels::cuda::Embed(embed, stream_), "embedding");
}

const void* CudaOps::FirstPosition() const {
  return static_cast<const uint8_t*>(weights_.positions()) +
         uint64_t{spec_.position_offset} * shape_.hidden * kernels::cuda::BytesOf(shape_.type);
}

absl::Status CudaOps::AddPositions() {
  kernels::cuda::EmbedParams params;
  params.adds_positions = true;
  params.position_table = FirstPosition();
  params.positions = inputs_.positions;
  params.residual = body_.residual;
  params.rows = body_.count;
  params.hidden = shape_.hidden;
  params.type = shape_.type;
  return CudaStatus(kernels::cuda::Embed(params, stream_), "positions");
}

absl::Status CudaOps::LaunchSampler(bool after_graph) {
  return masked_ ? absl::OkStatus() : LaunchSamplerNow(after_graph);
}

absl::Status CudaOps::SampleMasked(const StepBatch& batch, uint8_t* staging) {
  WEFT_RETURN_IF_ERROR(batch.masks->Wait());
  const uint64_t stride = CudaWorkspace::MaskStride(limits_);
  uint64_t rows = 0;
  for (const StepSequence& sequence : batch.sequences) {
    if (!sequence.masked) continue;
    auto* const out = reinterpret_cast<uint32_t*>(staging) + rows++ * stride;
    const std::vector<uint32_t>& words = batch.masks->Of(sequence.slot).words;
    WEFT_CHECK(words.empty() || words.size() == stride);
    if (words.empty()) {
      std::fill_n(out, stride, ~0u);
    } else {
      std::copy(words.begin(), words.end(), out);
    }
  }
  WEFT_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(ws_.masks, staging, rows * stride * sizeof(uint32_t),
                                 cudaMemcpyHostToDevice, stream_),
                 "copy of masks"));
  return LaunchSamplerNow(/*after_graph=*/true);
}

kernels::cuda::SamplerParams CudaOps::SamplerOfTail() const {
  const bool alone = slice_.world == 1;
  kernels::cuda::SamplerParams params;
  params.logits = alone ? ws_.logits : ws_.joined;
  params.row_stride = alone ? shape_.vocab : CudaWorkspace::VocabStride(limits_);
  params.rows = tail_.count;
  params.vocabulary = limits_.vocab;
  params.workspace = ws_.sampler;
  return params;
}

absl::Status CudaOps::LaunchSamplerNow(bool after_graph) {
  kernels::cuda::SamplerParams params = SamplerOfTail();
  params.features = step_.features;
  params.row_params = inputs_.sampling;
  params.biases = ws_.biases;
  params.masks = ws_.masks;
  params.mask_stride = static_cast<uint32_t>(CudaWorkspace::MaskStride(limits_));
  params.counts = ws_.counts;
  params.count_stride = CudaWorkspace::VocabStride(limits_);
  params.last_sampled = ws_.last_sampled;
  params.out_ids = ws_.out_ids;
  params.out_logprobs = ws_.out_logprobs;
  params.out_top_ids = ws_.out_top_ids;
  params.out_top_logprobs = ws_.out_top_logprobs;
  // What stands in front of it is a graph, or the kernel that joins the ranks' logits behind NCCL's
  // gathering.
  params.dependent = slice_.world == 1 && !after_graph;
  return CudaStatus(kernels::cuda::Sample(params, stream_), "sampler");
}

}  // namespace weft::shard
