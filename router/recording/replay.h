// Plays a recording again: a new scheduler is told the same events, and every plan and answer must
// be what the recorded one's was, to the bit. For `weft replay` and tests; one thread, waits for
// the disk, takes nothing in the files on trust.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::router::recording {

struct ReplayReport {
  // Files that were read, in order.
  std::vector<std::string> parts;
  // Of them, recordings: a router that starts again begins another one.
  uint32_t recordings = 0;
  // What the scheduler was told (calls of Plan() among it), and plans that gave a step.
  uint64_t events = 0;
  uint64_t plans = 0;
  // The first event of the first recording: more than 0 when its beginning was rotated away.
  uint64_t first_event = 0;
  // States at the beginning of parts that were compared with where the events before had led.
  uint64_t states = 0;
  // The last recording has its end. If not, its router was killed or still runs.
  bool complete = false;
  // The first event whose answer differs, with both answers. Empty: all are equal. Nothing behind
  // it was played.
  std::string difference;
  // What the recording was made with: version and revision.
  std::string recorded_by;
};

// `path` as --record had it, for all parts; or one part. Errors name the file: NOT_FOUND when there
// is none, INVALID_ARGUMENT for a foreign one, DATA_LOSS for one that is missing, cut, damaged, or
// tells what no scheduler was ever told; `report` then has what came before.
absl::Status Replay(const std::string& path, ReplayReport* report);

}  // namespace weft::router::recording
