// What a CPU shard will hold in memory, computed from shapes and flags alone (invariant mem.plan).
// Pure; used by the model runner before it takes anything, by Info, and by `weft inspect` for shard
// counts that are not running.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/tensor_type.h"
#include "kernels/cpu/attention.h"
#include "shard/kv/kv_cache.h"
#include "shard/kv/memory_plan.h"
#include "shard/model/decoder_spec.h"
#include "shard/weights/slice_plan.h"

namespace weft::shard {

// The kernels' name of a resolved KV type. REQUIRES: not kAuto.
kernels::cpu::KvType KernelKvType(NumberType type);

// Activations: bfloat16, but float32 when the files hold F32 or F16 matrices. KV: float32 with
// float32 activations, else float16, which costs what bfloat16 costs and keeps three more bits of
// each key. Whether there are kernels for what was asked for says served.h.
NumberTypes ResolveCpuTypes(NumberType dtype, NumberType kv_dtype, TensorType main_type);

// The type in which a matrix of a file is held: its own, but bfloat16 for F32 and F16 with --dtype
// bfloat16.
TensorType CpuMatrixType(TensorType type, NumberType dtype);

// Of the rank that holds `slice`.
KvShape KvShapeOf(const DecoderSpec& spec, const KvGroups& groups, const SlicePlan& slice,
                  NumberType type);

// Bytes of a rank's tensors in the files (ModelFiles::SliceBytes).
using SliceBytes = absl::FunctionRef<uint64_t(const SlicePlan&)>;

// What `world` shards, their router and their launcher take of the host's memory before they load
// anything.
uint64_t HostProcessBytes(uint32_t world);

// Plans rank `slice.rank` of `slice.world`; all ranks come to the same number of blocks.
// RESOURCE_EXHAUSTED, naming --kv-memory and the least that works, when the pool could not hold one
// block, and naming needs and limit and what would fit when all shards of the host do not fit into
// `flags.host`. A pool that nobody asked for by size shrinks to what fits instead.
absl::StatusOr<MemoryPlan> PlanCpuMemory(const DecoderSpec& spec, const SlicePlan& slice,
                                         uint32_t mlp_multiple, TensorType main_type,
                                         SliceBytes slice_bytes, const MemoryFlags& flags);

}  // namespace weft::shard
