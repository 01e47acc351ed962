# Where setup puts what it installs outside the system's packages; sourced by the other scripts.
# Everything lives under one cache folder, so that removing it undoes it.

WEFT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
WEFT_CACHE="${WEFT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weft}"
WEFT_TOOLS="$WEFT_CACHE/tools"
WEFT_DEMO_MODEL="${WEFT_DEMO_MODEL:-$WEFT_CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf}"
export WEFT_CACHE WEFT_DEMO_MODEL
PATH="$WEFT_TOOLS/bin:$PATH"
export PATH
