// TGI's answers: one JSON object, or a stream of events that each carry a token, the last one also
// the whole text. Formats follow huggingface/text-generation-inference's router/src/lib.rs.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "router/doors/http/generate.h"

namespace weft::router {

struct TgiFormat {
  bool stream = false;
  bool details = false;
  // Answers, of which the best is given; 1 in streams.
  uint32_t best_of = 1;
  // Top tokens are listed with each token.
  bool top_tokens = false;
  // POST /: the answer is wrapped in a list.
  bool wrap_in_list = false;
  // return_full_text: generated_text begins with it.
  std::string text_prefix;
};

std::unique_ptr<ResponseFormatter> NewTgiFormatter(TgiFormat format);

}  // namespace weft::router
