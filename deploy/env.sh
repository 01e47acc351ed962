# Where setup puts what it installs outside the system's packages; sourced by the other scripts.
# Everything lives under one cache folder, so that removing it undoes it.

WEFT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
WEFT_CACHE="${WEFT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weft}"
WEFT_TOOLS="$WEFT_CACHE/tools"
WEFT_DEMO_MODEL="${WEFT_DEMO_MODEL:-$WEFT_CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf}"
export WEFT_CACHE WEFT_DEMO_MODEL
PATH="$WEFT_TOOLS/bin:$PATH"
export PATH
# One compiler cache for all presets and any checkout: paths inside a checkout count as relative.
export CCACHE_MAXSIZE="${CCACHE_MAXSIZE:-10G}" CCACHE_BASEDIR="$WEFT_ROOT" CCACHE_NOHASHDIR=1

# The nvcc of the system, if there is one.
installed_nvcc() {
  command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; } || true
}

# setup.sh --cuda has brought one: CMake finds it here.
if [ -f "$WEFT_CACHE/cuda/wheels" ]; then
  export CUDACXX="${CUDACXX:-$WEFT_CACHE/cuda/nvidia/cu13/bin/nvcc}"
  export WEFT_NCCL="${WEFT_NCCL:-$WEFT_CACHE/cuda/nvidia/nccl}"
elif [ -n "$(installed_nvcc)" ]; then
  export CUDACXX="${CUDACXX:-$(installed_nvcc)}"
  # NCCL alone, beside an installed CUDA.
  if [ -f "$WEFT_CACHE/nccl/wheels" ]; then
    export WEFT_NCCL="${WEFT_NCCL:-$WEFT_CACHE/nccl/nvidia/nccl}"
  fi
fi
