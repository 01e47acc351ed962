// The check of weft.shard.v1.RowMask and its translation. Part of the shard's wire parser, on RPC
// threads. Pure.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "shard/step_masks.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

// The rows of a request by slot. INVALID_ARGUMENT names the field: no row, a slot that is not below
// `running_max`, an id or a bit that is not below `vocab_size`, ids that do not ascend, a mask that
// allows nothing or says nothing.
absl::StatusOr<std::vector<std::pair<Slot, RowMask>>> ParseMaskRows(
    const v1::MaskRowsRequest& request, uint32_t running_max, uint32_t vocab_size);

}  // namespace weft::shard
