// The records of a recording and their bytes: each is an event that a scheduler was told, with what
// it answered, or the beginning of a part. No token and no text is among them: of a prompt there
// are its length and the low halves of its blocks' hashes, whose key is written nowhere. Plain
// data; the layouts (Code) hold for kFormat and never change under the same number. A kind of
// record may be added under it: an older build names the kind that it does not know.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "router/recording/coder.h"
#include "router/scheduler/events.h"
#include "router/scheduler/scheduler_state.h"
#include "router/scheduler/step_plan.h"

namespace weft::router::recording {

// Of the layouts below and of the files. Another one cannot be read.
inline constexpr uint32_t kFormat = 1;

enum class RecordKind : uint8_t {
  kHead = 1,
  kState,
  kGroupFormed,
  kGroupLost,
  kArrival,
  kCutLimit,
  kCancel,
  kStepDone,
  kPlan,
  // The router stopped in order: nothing follows in this recording.
  kEnd,
  kFlush,
};

// The first record of every part.
struct Head {
  // Random; equal in all parts of a recording.
  uint64_t recording = 0;
  // Of the events and plans before this part.
  uint64_t events = 0;
  uint64_t plans = 0;
  // A kState record follows; otherwise the scheduler is a new one.
  bool has_state = false;
  std::string version;
  std::string revision;
  // Without hash key and EOS ids, of which nothing but results is recorded.
  SchedulerConfig config;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& head);
};

struct GroupFormed {
  Epoch epoch = 0;
  uint32_t kv_blocks = 0;
  std::vector<GroupInfo::Cost> costs;
  uint64_t ended_digest = 0;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& formed) {
    c.Number(formed.epoch);
    c.Number(formed.kv_blocks);
    c.List(formed.costs, [&c](auto& cost) {
      c.Number(cost.rows);
      c.Number(cost.prompt_tokens);
      c.Number(cost.context_tokens);
      c.Number(cost.step_us);
    });
    c.Fixed(formed.ended_digest);
  }
};

struct GroupLost {
  uint64_t ended_digest = 0;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& lost) {
    c.Fixed(lost.ended_digest);
  }
};

struct ArrivalRecord {
  SequenceId id = 0;
  uint32_t prompt_tokens = 0;
  uint32_t max_new_tokens = 0;
  uint32_t tenant = 0;
  double tenant_weight = 0;
  int32_t priority = 0;
  bool ignore_eos = false;
  bool bypass_prefix_cache = false;
  // Code of the answer; 0 is OK.
  uint32_t status = 0;
  // Of its full blocks; empty when it was refused or without a prefix cache.
  std::vector<uint64_t> hashes;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& arrival) {
    c.Number(arrival.id);
    c.Number(arrival.prompt_tokens);
    c.Number(arrival.max_new_tokens);
    c.Number(arrival.tenant);
    c.Double(arrival.tenant_weight);
    c.Signed32(arrival.priority);
    c.Number(arrival.ignore_eos);
    c.Number(arrival.bypass_prefix_cache);
    c.Number(arrival.status);
    c.List(arrival.hashes, [&c](auto& hash) { c.Fixed(hash); });
  }
};

struct CutLimitRecord {
  SequenceId id = 0;
  uint32_t tokens_max = 0;
  uint32_t status = 0;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& cut) {
    c.Number(cut.id);
    c.Number(cut.tokens_max);
    c.Number(cut.status);
  }
};

struct CancelRecord {
  SequenceId id = 0;
  uint64_t ended_digest = 0;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& cancel) {
    c.Number(cancel.id);
    c.Fixed(cancel.ended_digest);
  }
};

// The prefix cache was flushed. What is left of it shows in later plans.
struct Flush {
  template <typename Coder, typename Self>
  static void Code(Coder&, Self&) {}
};

struct StepDone {
  struct Block {
    uint32_t row;
    uint64_t hash;
  };

  StepNumber step = 0;
  uint32_t device_us = 0;
  // Rows whose token ended their sequence as an end of text.
  std::vector<uint32_t> eos_rows;
  // Rows whose token filled a block of a sequence that goes on.
  std::vector<Block> blocks;
  // Of what was emitted and who ended.
  uint64_t digest = 0;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& done) {
    c.Number(done.step);
    c.Number(done.device_us);
    c.List(done.eos_rows, [&c](auto& row) { c.Number(row); });
    c.List(done.blocks, [&c](auto& block) {
      c.Number(block.row);
      c.Fixed(block.hash);
    });
    c.Fixed(done.digest);
  }
};

// What came of a call of Plan(). The counts are for people: the digest covers every field.
struct PlanRecord {
  // 0: there was nothing to do, and the rest is 0 too.
  StepNumber step = 0;
  uint32_t rows = 0;
  uint32_t chunks = 0;
  uint32_t chunk_tokens = 0;
  uint32_t drops = 0;
  uint32_t blocks = 0;
  uint32_t predicted_us = 0;
  uint64_t digest = 0;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& plan) {
    c.Number(plan.step);
    if (plan.step == 0) return;
    c.Number(plan.rows);
    c.Number(plan.chunks);
    c.Number(plan.chunk_tokens);
    c.Number(plan.drops);
    c.Number(plan.blocks);
    c.Number(plan.predicted_us);
    c.Fixed(plan.digest);
  }
};

struct End {
  uint64_t events = 0;
  uint64_t plans = 0;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& end) {
    c.Number(end.events);
    c.Number(end.plans);
  }
};

template <typename Coder, typename Self>
void Head::Code(Coder& c, Self& head) {
  c.Fixed(head.recording);
  c.Number(head.events);
  c.Number(head.plans);
  c.Number(head.has_state);
  c.Text(head.version);
  c.Text(head.revision);
  auto& config = head.config;
  c.Number(config.running_max);
  c.Number(config.step_tokens_max);
  c.Number(config.block_tokens);
  c.List(config.kv_windows, [&c](auto& window) { c.Number(window); });
  c.Number(config.context_tokens_max);
  c.Number(config.waiting_max);
  c.Number(config.inter_token_target_us);
  c.Signed(config.ageing_us);
  c.Number(config.watermark_permille);
  c.Number(config.prefix_cache);
}

// `plan` may be null.
PlanRecord RecordOf(const StepPlan* plan);

// Only the low half of a hash is kept.
void EncodeState(const SchedulerState& state, std::string* out);
void DecodeState(Decoder& decoder, SchedulerState* state);

}  // namespace weft::router::recording
