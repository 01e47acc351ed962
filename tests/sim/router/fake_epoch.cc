#include "tests/sim/router/fake_epoch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "tests/sim/router/fake_tokenizer.h"

namespace weft::router::sim {
namespace {

// A step's time grows with what is in it.
constexpr int64_t kTokenUs = 3;

}  // namespace

testing::MockShape ShapeOf(const Settings& settings) {
  testing::MockShape shape;
  shape.kv_blocks = static_cast<uint32_t>(settings.kv_blocks);
  shape.block_tokens = static_cast<uint32_t>(settings.block_tokens);
  shape.kv_windows = {0};
  if (settings.window > 0) shape.kv_windows.push_back(static_cast<uint32_t>(settings.window));
  shape.context_tokens = static_cast<uint32_t>(settings.context_tokens);
  shape.running_max = static_cast<uint32_t>(settings.running_max);
  shape.step_tokens_max = static_cast<uint32_t>(settings.step_tokens_max);
  shape.vocabulary.size = kVocabulary;
  shape.vocabulary.first = kFirstSaid;
  shape.vocabulary.count = kSaid;
  shape.vocabulary.eos = kEndId;
  shape.vocabulary.eos_permille = static_cast<uint32_t>(settings.eos_permille);
  return shape;
}

FakeEpoch::FakeEpoch(Epoch epoch, const Settings& settings, Watch* watch)
    : epoch_(epoch),
      settings_(settings),
      watch_(watch),
      joined_(static_cast<size_t>(settings.world)),
      arrived_(static_cast<size_t>(settings.world)),
      slots_(static_cast<size_t>(settings.running_max)) {}

void FakeEpoch::Join(Rank rank, uint32_t kv_blocks) {
  joined_[rank] = true;
  kv_blocks_ = kv_blocks_ == 0 ? kv_blocks : std::min(kv_blocks_, kv_blocks);
}

bool FakeEpoch::Complete() const {
  return std::all_of(joined_.begin(), joined_.end(), [](bool joined) { return joined; });
}

void FakeEpoch::Leave(Rank rank) { joined_[rank] = false; }

void FakeEpoch::Sent(StepNumber step, StepNumber delivered) {
  if (step == sent_) return;  // the same step to another rank
  if (step != sent_ + 1) {
    watch_->Violated("wire.order", absl::StrCat("step ", step, " is sent after step ", sent_));
  }
  sent_ = step;
  if (sent_ - delivered > kStepsInFlightMax) {
    watch_->Violated("ahead.two", absl::StrCat("step ", step, " is sent while rank 0 has answered ",
                                               delivered, " steps"));
  }
  Step& entry = steps_.emplace_back();
  entry.step = step;
  entry.delivered = delivered;
}

bool FakeEpoch::Arrived(Rank rank, StepNumber step, ShardCall call, const SharedBytes& request) {
  if (step != arrived_[rank] + 1) {
    watch_->Violated("wire.order", absl::StrCat("rank ", rank, " gets step ", step, " after step ",
                                                arrived_[rank]));
  }
  arrived_[rank] = step;
  if (step < next_) return false;
  Step& entry = steps_[step - next_];
  if (entry.request == nullptr) {
    entry.call = call;
    entry.request = request;
    if (request->find(kMark) != std::string::npos) {
      watch_->Violated("wire.ids", absl::StrCat("step ", step, " holds a client's text"));
    }
  } else if (entry.call != call || *entry.request != *request) {
    watch_->Violated("rank.same", absl::StrCat("rank ", rank, " gets another step ", step));
  }
  return ++entry.arrived == joined_.size();
}

bool FakeEpoch::MasksArrived(Rank rank, StepNumber step, const SharedBytes& request) {
  weft::shard::v1::MaskRowsRequest masks;
  if (!masks.ParseFromString(*request) || masks.epoch() != epoch_ || masks.step() != step) {
    watch_->Violated("wire.order",
                     absl::StrCat("masks that were sent as of step ", step, " of epoch ", epoch_,
                                  " say ", masks.step(), " of ", masks.epoch()));
  }
  if (step < next_ || step - next_ >= steps_.size()) {
    watch_->Violated("wire.order", absl::StrCat("masks of step ", step, ", where ", next_,
                                                " is next and ", sent_, " was sent last"));
  }
  Step& entry = steps_[step - next_];
  entry.masks.resize(joined_.size());
  entry.masks[rank] += *request;
  // Calls come in order to a rank: what one has is the beginning of what another has.
  for (const std::string& other : entry.masks) {
    const size_t both = std::min(other.size(), entry.masks[rank].size());
    if (other.compare(0, both, entry.masks[rank], 0, both) != 0) {
      watch_->Violated("rank.same", absl::StrCat("rank ", rank, " gets other masks of ", step));
    }
  }
  if (rank == 0) Model().AddMasks(masks);
  return step == next_;
}

bool FakeEpoch::MasksReady() {
  const Step& step = steps_.front();
  const auto same = [&step](const std::string& masks) { return masks == step.masks.front(); };
  if (!std::all_of(step.masks.begin(), step.masks.end(), same)) return false;
  if (step.call == ShardCall::kFilterBatch || !ParseNext()) return true;
  return step.call == ShardCall::kPrefill ? Model().MasksReady(prefill_)
                                          : Model().MasksReady(decode_);
}

testing::MockModel& FakeEpoch::Model() {
  if (model_ == nullptr) {
    testing::MockShape shape = ShapeOf(settings_);
    shape.kv_blocks = kv_blocks_;
    model_ = std::make_unique<testing::MockModel>(shape);
    tenant_of_block_.resize(kv_blocks_);
  }
  return *model_;
}

bool FakeEpoch::ParseNext() {
  const Step& step = steps_.front();
  if (parsed_ == step.step) return parsed_well_;
  parsed_ = step.step;
  if (step.call == ShardCall::kPrefill) {
    parsed_well_ = prefill_.ParseFromString(*step.request);
  } else if (step.call == ShardCall::kDecode) {
    parsed_well_ = decode_.ParseFromString(*step.request);
  } else {
    parsed_well_ = filter_.ParseFromString(*step.request);
  }
  return parsed_well_;
}

bool FakeEpoch::NextReady() const {
  return !steps_.empty() && steps_.front().arrived == joined_.size() && Complete();
}

int64_t FakeEpoch::NextUs() const {
  const Step& step = steps_.front();
  if (step.call == ShardCall::kFilterBatch) return settings_.step_us / 10 + 1;
  return settings_.step_us + kTokenUs * static_cast<int64_t>(step.request->size());
}

weft::shard::v1::StepResponse& FakeEpoch::RunNext() {
  Model();
  const bool parsed = ParseNext();
  Step step = std::move(steps_.front());
  steps_.pop_front();
  ++next_;
  response_.Clear();
  size_t sampled_chunks = 0;
  const weft::shard::v1::StepHeader* header = nullptr;
  if (step.call == ShardCall::kPrefill) {
    header = &prefill_.header();
    RunChunks(step, prefill_);
    CheckBlocks(prefill_);
    model_->Prefill(prefill_, &response_);
    for (const auto& chunk : prefill_.chunks()) {
      step.sequences.push_back(chunk.sequence());
      sampled_chunks += chunk.last() ? 1 : 0;
    }
  } else if (step.call == ShardCall::kDecode) {
    header = &decode_.header();
    CheckDeltas(*header, std::vector<uint32_t>(slots_.size()));
    model_->Decode(decode_, &response_);
  } else {
    header = &filter_.header();
    model_->Filter(filter_);
  }
  if (!parsed || header->epoch() != epoch_ || header->step() != step.step) {
    watch_->Violated("wire.order",
                     absl::StrCat("a step that was sent as ", step.step, " of epoch ", epoch_,
                                  " says ", header->step(), " of ", header->epoch()));
  }
  if (!model_->violations().empty()) {
    watch_->Violated("wire.once", absl::StrCat("epoch ", epoch_, ", ", model_->violations()[0]));
  }
  CheckRows(&step, sampled_chunks);
  response_.set_epoch(epoch_);
  response_.set_step(step.step);
  ran_.push_back(std::move(step));
  if (ran_.size() > 2 * kStepsInFlightMax) ran_.pop_front();
  return response_;
}

void FakeEpoch::RunChunks(const Step& step, const weft::shard::v1::PrefillRequest& request) {
  for (const auto& chunk : request.chunks()) {
    const SeenChunk seen = watch_->OnChunk(chunk);
    if (chunk.first()) {
      // Results of older rows must be there, or they would be lost, or count twice.
      for (const Step& before : ran_) {
        if (before.step <= step.delivered) continue;
        if (std::find(before.sequences.begin(), before.sequences.end(), chunk.sequence()) !=
            before.sequences.end()) {
          watch_->Violated(
              "ahead.count",
              absl::StrCat("sequence ", chunk.sequence(), " begins anew in step ", step.step,
                           " while its row of step ", before.step, " has no result"));
        }
      }
    }
    if (chunk.slot() >= slots_.size()) {
      watch_->Violated("bound.all", absl::StrCat("slot ", chunk.slot(), " of ", slots_.size()));
    }
    SlotState& slot = slots_[chunk.slot()];
    slot.sequence = chunk.sequence();
    slot.length = chunk.start() + static_cast<uint32_t>(chunk.ids_size());
    slot.length_max = seen.length_max;
    slot.tenant = seen.tenant;
  }
}

// Blocks that a sequence begins with hold tokens of its own tenant.
void FakeEpoch::CheckBlocks(const weft::shard::v1::PrefillRequest& request) {
  std::vector<uint32_t> shared_blocks(slots_.size());
  for (const auto& chunk : request.chunks()) {
    if (!chunk.first()) continue;
    shared_blocks[chunk.slot()] = chunk.start() / static_cast<uint32_t>(settings_.block_tokens);
  }
  CheckDeltas(request.header(), shared_blocks);
}

void FakeEpoch::CheckDeltas(const weft::shard::v1::StepHeader& header,
                            const std::vector<uint32_t>& shared_blocks) {
  for (const auto& delta : header.block_deltas()) {
    if (delta.slot() >= slots_.size()) continue;  // the model says so
    const SlotState& slot = slots_[delta.slot()];
    uint32_t place = shared_blocks[delta.slot()] > 0 ? delta.leave_front() : 0;
    for (const BlockId block : delta.blocks()) {
      if (block >= tenant_of_block_.size()) continue;
      if (place++ >= shared_blocks[delta.slot()]) {
        tenant_of_block_[block] = slot.tenant;
      } else if (tenant_of_block_[block] != slot.tenant) {
        watch_->Violated("who.pays",
                         absl::StrCat("sequence ", slot.sequence, " of tenant ", slot.tenant,
                                      " reads a block of tenant ", tenant_of_block_[block]));
      }
    }
  }
}

void FakeEpoch::CheckRows(Step* step, size_t sampled_chunks) {
  const auto rows = static_cast<size_t>(response_.slots_size());
  for (size_t row = 0; row < rows; ++row) {
    SlotState& slot = slots_[response_.slots(static_cast<int>(row))];
    // Chunks have counted their tokens; a row of the running batch writes one.
    if (row + sampled_chunks < rows) {
      ++slot.length;
      step->sequences.push_back(slot.sequence);
    }
    if (slot.length >= slot.length_max) {
      watch_->Violated("ahead.count",
                       absl::StrCat("sequence ", slot.sequence, " has a row for token ",
                                    slot.length + 1, " of at most ", slot.length_max));
    }
  }
}

}  // namespace weft::router::sim
