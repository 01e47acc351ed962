// Makes the bytes of a step call out of the scheduler's plan: each field is written once, on one
// arena that is used again for every step, and serialised once for all ranks. Owned by the engine
// loop; no I/O. A decoded row that needs no new block costs no byte.

#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "common/ids.h"
#include "google/protobuf/arena.h"
#include "router/prompt_scores.h"
#include "router/request.h"
#include "router/scheduler/scheduler.h"
#include "router/shards/client.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::router {

// What a chunk needs beside the plan and the log.
struct ChunkSource {
  const SamplingParams* sampling = nullptr;
  uint64_t seed = 0;
  // Without what is output of the log that the sequence came with.
  uint32_t prompt_tokens = 0;
  // Its tokens are sampled from what masks allow.
  bool masked = false;
  // What is known of the prompt's own tokens, where it is asked for; null = it is not.
  const PromptScores* scores = nullptr;
};

class StepMessage {
 public:
  StepMessage();

  // The call that carries `plan`.
  static ShardCall CallOf(StepKind kind);
  // Serialises it. Logs are read from `scheduler`, the rest of a chunk from `source`.
  SharedBytes Build(Epoch epoch, const StepPlan& plan, const Scheduler& scheduler,
                    absl::FunctionRef<ChunkSource(SequenceId)> source);

 private:
  std::vector<char> first_block_;
  google::protobuf::Arena arena_;
};

}  // namespace weft::router
