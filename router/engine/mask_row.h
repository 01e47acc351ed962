// Which ids a row may sample, in the words of the shard wire: the shortest of three forms. Pure.

#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/ids.h"

namespace weft::router {

// Appends to `rows`, a serialised MaskRowsRequest without epoch and step, the row of `slot` that
// may sample the ids whose bits are set. Bits at `vocab_size` and above do not count.
// False, and nothing is appended, when none is set.
bool AppendMaskRow(Slot slot, absl::Span<const uint32_t> words, uint32_t vocab_size,
                   std::string* rows);
// The same where every id may be sampled: nobody wants the result.
void AppendFreeRow(Slot slot, std::string* rows);

}  // namespace weft::router
