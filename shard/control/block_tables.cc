#include "shard/control/block_tables.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace weft::shard {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

void BlockTables::Clear() {
  for (Table& table : tables_) {
    table.first = 0;
    table.blocks.clear();
  }
}

absl::Status BlockTables::Apply(const v1::BlockDelta& delta, const BlockTableLimits& limits,
                                uint64_t step, bool opens, const std::string& field) {
  Table& table = tables_[delta.group()];
  if (table.changed_in == step) {
    return Invalid(field, ".slot: ", delta.slot(), " has another delta of group ", delta.group(),
                   " in this step");
  }
  table.changed_in = step;
  const uint32_t leave = delta.leave_front();
  if (leave > 0 && limits.windows[delta.group()] == 0) {
    return Invalid(field, ".leave_front: ", leave, ", but group ", delta.group(),
                   " has no window and keeps its blocks");
  }
  // In 64 bits: what the wire says may be anything.
  const uint64_t held = table.blocks.size();
  if (!opens && leave > held) {
    return Invalid(field, ".leave_front: ", leave, " blocks, the table has ", held);
  }
  const uint64_t end =
      uint64_t{table.first} + (opens ? leave : held) + static_cast<uint64_t>(delta.blocks_size());
  if (end > limits.blocks_per_sequence_max) {
    return Invalid(field, ".blocks: ", end, " blocks, a whole context has ",
                   limits.blocks_per_sequence_max);
  }
  table.first += leave;
  if (!opens) table.blocks.erase(table.blocks.begin(), table.blocks.begin() + leave);
  for (const BlockId block : delta.blocks()) {
    if (block >= limits.kv_blocks) {
      return Invalid(field, ".blocks: id ", block, " is not below ", limits.kv_blocks);
    }
    table.blocks.push_back(block);
  }
  return absl::OkStatus();
}

absl::Status BlockTables::CheckCover(Position start, Position end, const BlockTableLimits& limits,
                                     const std::string& field, Slot slot) const {
  const uint32_t needed = (end + limits.block_tokens - 1) / limits.block_tokens;
  for (size_t group = 0; group < tables_.size(); ++group) {
    const Table& table = tables_[group];
    const uint64_t known = table.first + table.blocks.size();
    if (known < needed) {
      return Invalid(field, ": slot ", slot, " has ", known, " blocks in group ", group,
                     ", a context of ", end, " tokens needs ", needed);
    }
    const uint32_t window = limits.windows[group];
    const Position seen = window == 0 || window > start ? 0 : start + 1 - window;
    if (table.first > seen / limits.block_tokens) {
      return Invalid(field, ": slot ", slot, " lacks its first ", table.first, " blocks in group ",
                     group, ", but position ", start, " reads from ", seen, " on");
    }
  }
  return absl::OkStatus();
}

void BlockTables::AddTo(StepBatch* batch, Position end, uint32_t block_tokens) const {
  const uint32_t needed = (end + block_tokens - 1) / block_tokens;
  for (const Table& table : tables_) {
    const uint32_t count = needed - table.first;
    batch->tables.push_back({table.first, static_cast<uint32_t>(batch->block_ids.size()), count});
    batch->block_ids.insert(batch->block_ids.end(), table.blocks.begin(),
                            table.blocks.begin() + count);
  }
}

}  // namespace weft::shard
