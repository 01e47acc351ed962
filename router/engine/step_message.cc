#include "router/engine/step_message.h"

#include <memory>
#include <string>

#include "common/check.h"

namespace weft::router {
namespace {

namespace wire = weft::shard::v1;

// Holds a decode step of a full batch; larger steps take more blocks.
constexpr size_t kFirstBlockBytes = 64u << 10;

google::protobuf::ArenaOptions ArenaOn(std::vector<char>& block) {
  google::protobuf::ArenaOptions options;
  options.initial_block = block.data();
  options.initial_block_size = block.size();
  return options;
}

void FillHeader(Epoch epoch, const StepPlan& plan, wire::StepHeader* header) {
  header->set_epoch(epoch);
  header->set_step(plan.step);
  header->mutable_drop_slots()->Add(plan.drops.begin(), plan.drops.end());
  for (const PlannedBlocks& blocks : plan.blocks) {
    wire::BlockDelta* delta = header->add_block_deltas();
    delta->set_slot(blocks.slot);
    delta->set_group(blocks.group);
    delta->set_leave_front(blocks.leave_front);
    const auto begin = plan.block_ids.begin() + blocks.begin;
    delta->mutable_blocks()->Add(begin, begin + blocks.count);
  }
}

void FillSampling(const ChunkSource& source, wire::SamplingParams* out) {
  const SamplingParams& in = *source.sampling;
  out->set_temperature(in.temperature);
  out->set_top_k(in.top_k);
  out->set_top_p(in.top_p);
  out->set_min_p(in.min_p);
  out->set_typical_p(in.typical_p);
  out->set_repetition_penalty(in.repetition_penalty);
  out->set_presence_penalty(in.presence_penalty);
  out->set_frequency_penalty(in.frequency_penalty);
  out->set_seed(source.seed);
  for (const auto& [id, bias] : in.logit_bias) {
    auto* entry = out->add_logit_bias();
    entry->set_id(id);
    entry->set_bias(bias);
  }
  out->set_min_tokens(in.min_tokens);
  out->mutable_held_ids()->Add(in.held_ids.begin(), in.held_ids.end());
  out->set_mask_penalty(in.mask_penalty);
  out->set_logprobs(in.logprobs);
  out->set_top_logprobs(in.top_logprobs);
}

void FillScoring(const PlannedChunk& planned, const PromptScores& scores, wire::Chunk* chunk) {
  const PromptScores::Rows rows = scores.Wanted(planned.start, planned.count);
  if (rows.count() == 0) return;
  wire::PromptScoring* scoring = chunk->mutable_scoring();
  scoring->set_start(rows.begin);
  const absl::Span<const TokenId> targets = scores.Targets(rows);
  scoring->mutable_targets()->Add(targets.begin(), targets.end());
  scoring->set_top(scores.top());
}

void FillChunk(const PlannedChunk& planned, const Scheduler& scheduler,
               absl::FunctionRef<ChunkSource(SequenceId)> source, wire::Chunk* chunk) {
  const absl::Span<const TokenId> log = scheduler.Log(planned.id);
  const absl::Span<const TokenId> ids = log.subspan(planned.start, planned.count);
  WEFT_CHECK_EQ(ids.size(), planned.count);
  chunk->set_slot(planned.slot);
  chunk->set_sequence(planned.id);
  chunk->mutable_ids()->Add(ids.begin(), ids.end());
  chunk->set_start(planned.start);
  chunk->set_last(planned.last);
  const ChunkSource from = source(planned.id);
  if (from.scores != nullptr) FillScoring(planned, *from.scores, chunk);
  if (!planned.first) return;
  // Everything the shard needs to build the sequence's sampling state anew (invariant state.log).
  chunk->set_first(true);
  chunk->set_prompt_len(from.prompt_tokens);
  FillSampling(from, chunk->mutable_sampling());
  chunk->set_masked(from.masked);
  if (from.sampling->needs_penalty_ids()) {
    chunk->mutable_penalty_ids()->Add(log.begin(), log.end());
  }
}

}  // namespace

StepMessage::StepMessage() : first_block_(kFirstBlockBytes), arena_(ArenaOn(first_block_)) {}

ShardCall StepMessage::CallOf(StepKind kind) {
  switch (kind) {
    case StepKind::kPrefill:
      return ShardCall::kPrefill;
    case StepKind::kDecode:
      return ShardCall::kDecode;
    case StepKind::kFilter:
      return ShardCall::kFilterBatch;
  }
  WEFT_CHECK_MSG(false, "step kind");
  return ShardCall::kDecode;
}

SharedBytes StepMessage::Build(Epoch epoch, const StepPlan& plan, const Scheduler& scheduler,
                               absl::FunctionRef<ChunkSource(SequenceId)> source) {
  using google::protobuf::Arena;
  auto bytes = std::make_shared<std::string>();
  if (plan.kind == StepKind::kPrefill) {
    auto* request = Arena::CreateMessage<wire::PrefillRequest>(&arena_);
    FillHeader(epoch, plan, request->mutable_header());
    request->set_with_decode(plan.with_decode);
    request->mutable_skip_slots()->Add(plan.skip_slots.begin(), plan.skip_slots.end());
    for (const PlannedChunk& chunk : plan.chunks) {
      FillChunk(chunk, scheduler, source, request->add_chunks());
    }
    request->SerializeToString(bytes.get());
  } else if (plan.kind == StepKind::kDecode) {
    auto* request = Arena::CreateMessage<wire::DecodeRequest>(&arena_);
    FillHeader(epoch, plan, request->mutable_header());
    request->mutable_skip_slots()->Add(plan.skip_slots.begin(), plan.skip_slots.end());
    request->SerializeToString(bytes.get());
  } else {
    auto* request = Arena::CreateMessage<wire::FilterBatchRequest>(&arena_);
    FillHeader(epoch, plan, request->mutable_header());
    request->SerializeToString(bytes.get());
  }
  arena_.Reset();
  return bytes;
}

}  // namespace weft::router
