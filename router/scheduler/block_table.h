// The KV blocks that one sequence holds in one KV group: those of blocks first() .. end() - 1 of
// its positions. They enter at the end and, in a group with a window, leave at the front. It also
// counts what the shards have not been told yet. Part of a Sequence, scheduler's thread only. It
// takes and gives back no block itself (that is BlockPool) and, once made, never allocates.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/check.h"
#include "common/ids.h"

namespace weft::router {

class BlockTable {
 public:
  // Room for `blocks_max` blocks at a time. > 0.
  explicit BlockTable(uint32_t blocks_max)
      : capacity_(blocks_max), ring_(std::make_unique_for_overwrite<BlockId[]>(blocks_max)) {}

  uint32_t first() const { return first_; }
  uint32_t end() const { return end_; }
  uint32_t size() const { return end_ - first_; }
  uint32_t capacity() const { return capacity_; }
  bool Covers(uint32_t block) const { return block >= first_ && block < end_; }
  // REQUIRES: Covers(block).
  BlockId operator[](uint32_t block) const { return ring_[Place(block)]; }

  // -- Filling an empty table with a prefix
  // Remembers the id of a block that SetRange() may cover later. A block that is `capacity()` away
  // is forgotten.
  void Note(uint32_t block, BlockId id) { ring_[Place(block)] = id; }
  // The table is now about these blocks, all noted; the shards know nothing of it.
  void SetRange(uint32_t first, uint32_t end) {
    first_ = untold_left_ = first;
    end_ = end;
    untold_appended_ = end - first;
  }
  void Clear() { SetRange(0, 0); }
  // The same for blocks of which the shards know some (scheduler_state.h).
  void Restore(uint32_t first, uint32_t end, uint32_t untold_left, uint32_t untold_appended) {
    SetRange(first, end);
    untold_left_ = untold_left;
    untold_appended_ = untold_appended;
  }

  // -- While it is in use
  void Append(BlockId id) {
    WEFT_CHECK_LT(size(), capacity());
    ring_[Place(end_++)] = id;
    ++untold_appended_;
  }
  // The front block leaves.
  BlockId Leave() {
    WEFT_CHECK_GT(size(), untold_appended_);
    ++untold_left_;
    return ring_[Place(first_++)];
  }

  // What the shards do not know: so many blocks left at the front, so many came at the end.
  uint32_t untold_left() const { return untold_left_; }
  uint32_t untold_appended() const { return untold_appended_; }
  void Told() { untold_left_ = untold_appended_ = 0; }

 private:
  size_t Place(uint32_t block) const { return block < capacity_ ? block : block % capacity_; }

  uint32_t capacity_;
  // Block i is at i modulo the capacity. Not touched before it is used: a queue of long requests
  // takes no memory for tables.
  std::unique_ptr<BlockId[]> ring_;
  uint32_t first_ = 0;
  uint32_t end_ = 0;
  uint32_t untold_left_ = 0;
  uint32_t untold_appended_ = 0;
};

}  // namespace weft::router
