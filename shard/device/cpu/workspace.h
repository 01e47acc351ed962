// The activations of the largest step of a CPU shard: one piece of memory cut into buffers, sized
// by the flags alone, so that the memory plan can state it without taking it (invariant mem.plan).
// Taken at load, touched as steps need it; used by CpuOps.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/memory_parts.h"
#include "kernels/cpu/linear.h"
#include "shard/device/host/host_memory.h"
#include "shard/model/decoder_spec.h"
#include "shard/weights/slice_plan.h"

namespace weft::shard {

struct WorkspaceLimits {
  uint32_t step_tokens_max = 0;
  uint32_t running_max = 0;
  uint32_t threads = 1;
};

class Workspace {
 public:
  Workspace() = default;
  static uint64_t Bytes(const DecoderSpec& spec, const SlicePlan& slice,
                        const WorkspaceLimits& limits);
  static absl::StatusOr<Workspace> Create(const DecoderSpec& spec, const SlicePlan& slice,
                                          const WorkspaceLimits& limits);

  // [rows, hidden]
  float* residual = nullptr;
  // [rows, embedding_dim]; null where embedding and head are as wide as the layers.
  float* embedded = nullptr;
  // [rows, (heads + 2 * kv_heads) * head_dim]: query, key, value of a row side by side. Of latent
  // attention [rows, heads * head_dim], the query alone.
  float* qkv = nullptr;
  // [rows, heads * attention_dim]
  float* attention = nullptr;
  // [rows, MLP columns] each; what the activation makes of them goes to gate. Without gates there
  // is no `up`: what is activated lies in gate from the beginning.
  float* gate = nullptr;
  float* up = nullptr;
  // [rows, hidden]: partial sums in a group of one.
  float* partial = nullptr;
  // [running_max, hidden] and [running_max, query columns]: rows that sample, while others that are
  // scored take their places.
  float* waiting_residual = nullptr;
  float* waiting_query = nullptr;
  // [running_max, vocabulary slice]
  float* logits = nullptr;
  // The sampler's exchange: own records, and those of all ranks. Null in a group of one.
  uint8_t* exchange_mine = nullptr;
  uint8_t* exchange_all = nullptr;
  // By attention kind, [context, rope.dims / 2] each; kinds with the rotary settings of an earlier
  // one have none of their own.
  struct RotaryParts {
    float* cosines = nullptr;
    float* sines = nullptr;
  };
  std::vector<RotaryParts> rotary;
  // Linear inputs prepared for the kernels, by ActivationType, wide enough for the widest input:
  // bases and bytes only, CpuOps sets rows and inputs.
  struct Prepared {
    uint8_t* values[2] = {nullptr, nullptr};
    float* block_sums[2] = {nullptr, nullptr};
  };
  // What a norm has made, and what attention or an activation has. They are the same memory but
  // where one is read after the other was made: with a parallel residual, where the MLP's norm
  // comes between attention and its product, and with a MLP beside experts, which goes first.
  Prepared normed;
  Prepared made;

  // Of layers with experts; `places` are rows times the experts of a row.
  struct ExpertParts {
    // [rows, experts]: the router's numbers.
    float* routes = nullptr;
    // A normed row at each place, and what the activation has made of it.
    Prepared normed;
    Prepared made;
    // [places, columns of an expert] each; what is activated goes to gate.
    float* gate = nullptr;
    float* up = nullptr;
    // [places, hidden]
    float* out = nullptr;
    // [rows]: of the MLP beside experts.
    float* scales = nullptr;
  };
  ExpertParts experts;

  // Of latent attention.
  struct LatentParts {
    // [rows, query_rank]
    float* query = nullptr;
    // [rows, heads * query_dim]
    float* head_query = nullptr;
    // [rows, head_dim]: what goes into the cache.
    float* row = nullptr;
    // [rows, heads * value_dim]
    float* head_value = nullptr;
    // [heads, rows]: each head's part of a row, as wide as its matrices' inputs.
    Prepared by_head;
  };
  LatentParts latent;

  // Per-thread scratch.
  struct ThreadScratch {
    // One row as wide as `hidden`.
    float* row = nullptr;
    void* attention = nullptr;
  };
  std::vector<ThreadScratch> threads;

 private:
  void AssignLatent(const DecoderSpec& spec, uint64_t heads, uint64_t rows, MemoryParts& parts);
  void AssignExperts(const DecoderSpec& spec, const SlicePlan& slice, uint64_t rows,
                     MemoryParts& parts);
  // Sets all pointers as if memory began at `base`; returns the bytes needed.
  uint64_t AssignParts(uint8_t* base, const DecoderSpec& spec, const SlicePlan& slice,
                       const WorkspaceLimits& limits);

  HostMemory memory_;
};

}  // namespace weft::shard
