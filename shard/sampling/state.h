// What sampling remembers of the sequence in a slot: its parameters, the token sampled last, and,
// for penalties, which ids occurred in prompt and output. Rebuilt from the router's log when a
// sequence is prefilled again (invariant state.log). Owned by the Sampler, device thread only.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "shard/step_batch.h"

namespace weft::shard {

class SlotState {
 public:
  // Occurrences of one id. Repetition penalty looks at both, presence and frequency at the output.
  struct Count {
    TokenId id;
    bool in_prompt;
    uint32_t output;
  };

  bool active() const { return active_; }
  const SamplingParams& params() const { return params_; }
  TokenId last_token() const { return last_token_; }
  uint32_t prompt_len() const { return prompt_len_; }
  const std::vector<Count>& counts() const { return counts_; }

  void Begin(const SequenceStart& start);
  void End();
  // The slot's sequence goes on with `id`, sampled in this step.
  void Append(TokenId id);

 private:
  Count& CountOf(TokenId id);

  bool active_ = false;
  SamplingParams params_;
  TokenId last_token_ = kNoToken;
  uint32_t prompt_len_ = 0;
  // Counts as a list, for the penalties' walk; and each id's place in it.
  std::vector<Count> counts_;
  absl::flat_hash_map<TokenId, uint32_t> index_of_;
};

}  // namespace weft::shard
