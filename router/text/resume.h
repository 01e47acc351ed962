// What a thread of text in does for a request that goes on with an answer: reads the tokens that
// its client has had, so that the text stage stands where the broken stream left it (a begun
// character, the beginning of a stop string, the tokens counted), and finds out whether they are
// the whole answer. Stateless; any thread.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "router/admission.h"
#include "router/engine/stages.h"
#include "router/request.h"
#include "router/text/prepare.h"
#include "router/text/stream_text.h"

namespace weft::router {

// Reads input.resume into `text` and the resumed fields of `prepared`, whose limits are set, and
// charges `permit` for its text. INVALID_ARGUMENT names resume.output_ids when they cannot be the
// beginning of the answer: ids that the model has not, more than the answer may have, any behind
// its end.
absl::Status ReadResumed(const TextModel& model, uint32_t vocab_size, const GenerateInput& input,
                         Admission::Permit* permit, StreamText* text, PreparedRequest* prepared);

}  // namespace weft::router
