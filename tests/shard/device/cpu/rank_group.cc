#include "tests/shard/device/cpu/rank_group.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "shard/comm/host_meeting.h"

namespace weft::shard {
namespace {

void Require(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

template <typename T>
T Require(absl::StatusOr<T> value) {
  Require(value.status());
  return std::move(value).value();
}

// Runs body(rank) on a thread each; throws the first rank's error.
template <typename Body>
void OnAllRanks(uint32_t world, Body body) {
  std::vector<absl::Status> statuses(world);
  std::vector<std::thread> threads;
  for (uint32_t rank = 1; rank < world; ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = body(rank); });
  }
  statuses[0] = body(0);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) Require(status);
}

absl::StatusOr<std::unique_ptr<ModelRunner>> MakeRunner(const GroupOptions& options,
                                                        ModelFiles& files, const SlicePlan& slice) {
  MemoryFlags memory;
  memory.dtype = options.dtype;
  memory.kv_dtype = options.kv_dtype;
  memory.kv_memory_bytes = options.kv_memory_bytes;
  memory.running_max = options.running_max;
  memory.step_tokens_max = options.step_tokens_max;
  memory.threads = options.threads;
  memory.deterministic = options.deterministic;
  memory.expert_load = options.expert_load && slice.rank == 0;
  LoadProgress progress;
  const std::atomic<bool> cancel{false};
  if (!options.cuda) {
    return CreateCpuModelRunner({memory, options.isa, options.cpu_rules}, files, slice, progress,
                                cancel);
  }
  const CudaDevice device = Require(FindCudaDevice({slice.rank, slice.rank}));
  constexpr int64_t kStepTimeoutUs = 30000000;
  return CreateCudaModelRunner({memory, device, kStepTimeoutUs, options.cuda_left_out}, files,
                               slice, progress, cancel);
}

}  // namespace

RankGroup::RankGroup(const GroupOptions& options) : options_(options) {
  files_ = Require(ModelFiles::Open(options.model));
  for (Rank rank = 0; rank < options.world; ++rank) {
    const SlicePlan slice =
        Require(MakeSlicePlan(files_->spec(), rank, options.world, files_->mlp_multiple()));
    runners_.push_back(Require(MakeRunner(options, *files_, slice)));
    meetings_.push_back(
        options.cuda ? static_cast<CudaModelRunner&>(*runners_.back()).MakeMeeting()
                     : MakeHostMeeting(int64_t{options.step_tokens_max} * spec().widest_sum()));
  }
  NewEpoch(options.isa);
}

RankGroup::~RankGroup() = default;

void RankGroup::NewEpoch(const std::string& isa) {
  MeetCall call;
  call.epoch = ++epoch_;
  call.world = options_.world;
  call.token = Require(meetings_[0]->Offer(epoch_, options_.world));
  call.deadline = absl::Now() + absl::Seconds(30);
  call.peer_timeout = absl::Seconds(30);
  OnAllRanks(options_.world, [&](uint32_t rank) -> absl::Status {
    MeetCall own = call;
    own.rank = rank;
    if (own.epoch > 1) runners_[rank]->EndEpoch();
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, meetings_[rank]->Meet(own));
    WEFT_RETURN_IF_ERROR(runners_[rank]->BeginEpoch(std::move(communicator), isa));
    WEFT_ASSIGN_OR_RETURN(const WarmupResult warm, runners_[rank]->Warmup());
    if (rank == 0) kv_blocks_ = warm.kv_blocks;
    return absl::OkStatus();
  });
}

StepResult RankGroup::Run(const StepBatch& batch) {
  std::vector<StepResult> results(options_.world);
  OnAllRanks(options_.world, [&](uint32_t rank) -> absl::Status {
    auto result = runners_[rank]->Run(batch);
    if (!result.ok()) return result.status();
    results[rank] = std::move(*result);
    return absl::OkStatus();
  });
  for (const StepResult& result : results) {
    if (result.ids != results[0].ids) throw std::runtime_error("ranks sampled different ids");
    const bool same = result.scores.ranks == results[0].scores.ranks &&
                      result.scores.logprobs == results[0].scores.logprobs &&
                      result.scores.top == results[0].scores.top;
    if (!same) throw std::runtime_error("ranks scored differently");
  }
  return std::move(results[0]);
}

StepMaker RankGroup::Maker() const {
  return StepMaker(kv_blocks_, options_.cuda ? kKvBlockTokensCuda : kKvBlockTokensCpu,
                   MakeKvGroups(spec()).windows());
}

void StepMaker::Start(Slot slot, const SamplingParams& sampling, uint32_t prompt_len,
                      std::vector<TokenId> penalty_ids) {
  WEFT_CHECK(entries_[slot].tables.empty());
  batch_.starts.push_back(
      SequenceStart{slot, SequenceId{slot} + 1, prompt_len, sampling, std::move(penalty_ids)});
}

BlockId StepMaker::NextBlock() {
  if (!free_.empty()) {
    const BlockId block = free_.back();
    free_.pop_back();
    return block;
  }
  WEFT_CHECK_LT(next_block_, kv_blocks_);
  // From the end of the pool, so that ids differ from those that Warmup has used.
  return kv_blocks_ - 1 - next_block_++;
}

void StepMaker::AddTables(uint32_t start, Entry* entry) {
  batch_.kv_groups = static_cast<uint32_t>(windows_.size());
  entry->tables.resize(windows_.size());
  for (size_t group = 0; group < windows_.size(); ++group) {
    Table& table = entry->tables[group];
    // What lies in front of the first row's window leaves, and may come back in this very step.
    const uint32_t window = windows_[group];
    const uint32_t seen = window == 0 || window > start ? 0 : start + 1 - window;
    while (table.first < seen / block_tokens_) {
      const bool own = table.first >= entry->shared_blocks && table.first >= entry->lent_blocks;
      if (own) free_.push_back(table.blocks.front());
      table.blocks.erase(table.blocks.begin());
      ++table.first;
    }
    while ((table.first + table.blocks.size()) * block_tokens_ < entry->length) {
      table.blocks.push_back(NextBlock());
    }
    batch_.tables.push_back({table.first, static_cast<uint32_t>(batch_.block_ids.size()),
                             static_cast<uint32_t>(table.blocks.size())});
    batch_.block_ids.insert(batch_.block_ids.end(), table.blocks.begin(), table.blocks.end());
  }
}

StepSequence& StepMaker::AddRows(Slot slot, uint32_t count) {
  Entry& entry = entries_[slot];
  StepSequence sequence;
  sequence.slot = slot;
  sequence.sequence = SequenceId{slot} + 1;
  sequence.token_begin = static_cast<uint32_t>(batch_.ids.size());
  sequence.token_count = count;
  sequence.start = entry.length;
  entry.length += count;
  AddTables(sequence.start, &entry);
  batch_.sequences.push_back(sequence);
  return batch_.sequences.back();
}

void StepMaker::Chunk(Slot slot, const std::vector<TokenId>& ids, bool sample) {
  AddRows(slot, static_cast<uint32_t>(ids.size())).sample = sample;
  batch_.ids.insert(batch_.ids.end(), ids.begin(), ids.end());
}

void StepMaker::Score(uint32_t first, const std::vector<TokenId>& targets, uint32_t top) {
  batch_.scorings.push_back({static_cast<uint32_t>(batch_.sequences.size() - 1), first,
                             static_cast<uint32_t>(batch_.targets.size()),
                             static_cast<uint32_t>(targets.size()), top});
  batch_.targets.insert(batch_.targets.end(), targets.begin(), targets.end());
}

void StepMaker::Decode(Slot slot) {
  StepSequence& sequence = AddRows(slot, 1);
  sequence.from_last_sample = true;
  sequence.sample = true;
  batch_.ids.push_back(kNoToken);
}

void StepMaker::Drop(Slot slot) {
  Entry& entry = entries_[slot];
  for (const Table& table : entry.tables) {
    for (uint32_t i = 0; i < table.blocks.size(); ++i) {
      if (table.first + i >= entry.shared_blocks) free_.push_back(table.blocks[i]);
    }
  }
  entry = Entry{};
  batch_.drops.push_back(slot);
}

void StepMaker::SharePrefix(Slot slot, Slot other, uint32_t tokens) {
  WEFT_CHECK_EQ(tokens % block_tokens_, 0u);
  Entry& entry = entries_[slot];
  entry.shared_blocks = tokens / block_tokens_;
  entry.tables = entries_[other].tables;
  entries_[other].lent_blocks = entry.shared_blocks;
  for (Table& table : entry.tables) {
    WEFT_CHECK_LE(table.first, entry.shared_blocks);
    table.blocks.resize(entry.shared_blocks - table.first);
  }
  entry.length = tokens;
}

StepBatch StepMaker::Take() {
  batch_.step = ++step_;
  return std::exchange(batch_, StepBatch{});
}

}  // namespace weft::shard
