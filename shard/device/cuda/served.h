// What the CUDA kernels serve, as data (shard/device/served_ops.h). CheckCudaServes of planning.h
// holds a model against it. Constants, any thread.

#pragma once

#include "shard/device/served_ops.h"

namespace weft::shard {

const ServedOps& CudaServedOps();

}  // namespace weft::shard
