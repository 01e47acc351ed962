#!/usr/bin/env bash
# Runs everything that needs a GPU, on a machine that has one, and prints one table of kernels. Needs
# CUDA's libraries there and the binaries of a build or an unpacked bundle:
#   tests/gpu/run.sh [FOLDER_WITH_BIN]          (default: build/release)
# What wants several GPUs says so and is left out where there is one. NVLink multicast stays off.
set -euo pipefail
cd "$(dirname "$0")/../.."
build="${1:-build/release}"
# The tests look for tests/goldens here, wherever they were built.
export WEFT_SOURCE_DIR="$PWD"
export NCCL_NVLS_ENABLE=0
tests=(weft_cuda_kernels_test weft_cuda_device_test weft_cuda_peer_test)
[ ! -x "$build/bin/weft_cuda_comm_test" ] || tests+=(weft_cuda_comm_test)

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
failed=0
for test in "${tests[@]}"; do
  printf '\n== %s\n' "$test"
  "$build/bin/$test" "~[time]" || failed=1
done
if command -v compute-sanitizer >/dev/null; then
  printf '\n== compute-sanitizer\n'
  compute-sanitizer --error-exitcode 1 "$build/bin/weft_cuda_kernels_test" "~[time]~[long]" ||
    failed=1
fi
for test in "${tests[@]}"; do
  "$build/bin/$test" "[time]" || failed=1
done
exit "$failed"
