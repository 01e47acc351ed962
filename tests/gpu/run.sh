#!/usr/bin/env bash
# Runs everything that needs a GPU on a machine that has one, and prints a table: what passed, then
# the figures. Needs the binaries of a build or an unpacked bundle, Python 3 and, for `device` and
# `serve`, the demo model ($WEFT_DEMO_MODEL). With several GPUs more runs. NVLink multicast stays
# off.
#
#   tests/gpu/run.sh [FOLDER_WITH_BIN] [--only PART,...] [--logs FOLDER] [--limit SECONDS]
#
# FOLDER_WITH_BIN  default build/release
# --only           of: kernels device peers serve memcheck racecheck synccheck initcheck time step;
#                  default all, in this order; the four checks are compute-sanitizer's
# --logs           where each part's output goes; default a temporary folder
# --limit          seconds a part may take, default 600
# Further variables: WEFT_SEED; SERVE_FLAGS, handed to serve_test.py; SHAPES of `step`, folders of
# tests/bench/shapes; CHECKED, the Catch2 filter of what compute-sanitizer looks at.
# Without a GPU only what needs none runs. Exits 0 when all that ran passed, 1 when a part failed,
# 77 when none could run.
set -uo pipefail
cd "$(dirname "$0")/../.."

build=build/release
parts=kernels,device,peers,serve,memcheck,racecheck,synccheck,initcheck,time,step
logs="" limit=600
usage() { echo "run.sh: $1; see the head of tests/gpu/run.sh" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case "$1" in
    --only|--logs|--limit)
      [ $# -ge 2 ] || usage "$1 needs a value"
      case "$1" in
        --only) parts="$2" ;;
        --logs) logs="$2" ;;
        --limit) limit="$2" ;;
      esac
      shift 2 ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' tests/gpu/run.sh; exit 0 ;;
    -*) usage "unknown option $1" ;;
    *) build="$1"; shift ;;
  esac
done
[[ $limit =~ ^[1-9][0-9]*$ ]] || usage "--limit: \"$limit\" is not a number of seconds from 1"
[ -n "${parts//,/}" ] || usage "--only: name a part"
bin="$build/bin"
[ -d "$bin" ] || usage "no folder $bin: build there, or name a build or an unpacked bundle"
for part in ${parts//,/ }; do
  case "$part" in
    kernels|device|peers|serve|memcheck|racecheck|synccheck|initcheck|time|step) ;;
    *) usage "unknown part $part" ;;
  esac
done
logs="${logs:-$(mktemp -d)}"
mkdir -p "$logs"
# The tests look for tests/goldens here, wherever they were built.
export WEFT_SOURCE_DIR="$PWD" NCCL_NVLS_ENABLE=0
gpus="$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)"

# -- CUDA's libraries: where the loader finds none, from a toolkit or a Python's packages ---------
library_folders() {
  ls -d /usr/local/cuda*/targets/x86_64-linux/lib /usr/local/cuda*/lib64 \
    "${WEFT_CACHE:-$HOME/.cache/weft}"/{cuda,nccl}/nvidia/*/lib 2>/dev/null
  python3 - 2>/dev/null <<'PYTHON'
import glob, site, sys
roots = site.getsitepackages() + [site.getusersitepackages()] + [path for path in sys.path if path]
for root in dict.fromkeys(roots):
    print("\n".join(sorted(glob.glob(root + "/nvidia/*/lib"))))
PYTHON
}

find_libraries() {
  local library folder missing
  missing="$(ldd "$bin"/weft* 2>/dev/null |
    sed -n 's/^[[:space:]]*\(lib[^ ]*\) => not found.*/\1/p' | sort -u)"
  for library in $missing; do
    folder="$(library_folders | while read -r folder; do
      [ -e "$folder/$library" ] && echo "$folder" && break
    done)"
    if [ -n "$folder" ]; then
      echo "$library from $folder"
      export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
    else
      echo "$library: not found; what needs it fails (set LD_LIBRARY_PATH)"
    fi
  done
}

# -- Parts: each prints freely and returns whether all of it passed; 77 = it cannot run here ------
run_all() {  # ARGUMENT_OF_TESTS TEST ...: those that are there; at least one has to run
  local filter="$1" test code failed=0 ran=0
  shift
  for test in "$@"; do
    if [ ! -x "$bin/$test" ]; then echo "== $test: not here"; continue; fi
    if [ "$gpus" = 0 ] && [ "$test" != weft_cuda_memory_plan_test ]; then
      echo "== $test: skipped, no GPU"
      continue
    fi
    echo "== $test $filter"
    code=0
    "$bin/$test" "$filter" || code=$?
    [ "$code" != 77 ] || continue
    [ "$code" = 0 ] || failed=1
    ran=1
  done
  [ "$ran" = 1 ] || return 77
  return "$failed"
}

# [.] marks what runs only when it is asked for.
part_kernels() { run_all "~[time]~[.]" weft_cuda_kernels_test; }

part_device() {
  local result=0
  run_all "~[time]~[.]~[gpus]" weft_cuda_device_test weft_cuda_memory_plan_test || result=$?
  if [ "$gpus" != 0 ] && [ -x "$bin/weft_model_matrix" ]; then
    "$bin/weft_model_matrix" --device cuda --worlds 1 || result=1
  fi
  return "$result"
}

part_peers() {
  local result=0 code
  # A kernel that is loaded late may wait for a device that waits for its launch.
  export CUDA_MODULE_LOADING=EAGER
  run_all "~[time]~[.]" weft_cuda_peer_test weft_cuda_comm_test || result=$?
  if [ "$gpus" -ge 2 ]; then
    run_all "[gpus]" weft_cuda_device_test
    code=$?
    if [ "$result" = 0 ] || [ "$result" = 77 ]; then result=$code; fi
  fi
  return "$result"
}

part_serve() {
  [ -x "$bin/weft" ] || return 77
  case "${SERVE_FLAGS:-}" in
    *--device*cpu*) ;;
    *) [ "$gpus" -gt 0 ] || { echo "serve: skipped, no GPU"; return 77; } ;;
  esac
  # shellcheck disable=SC2086  # flags are words
  python3 tests/gpu/serve_test.py --bin "$bin" ${WEFT_SEED:+--seed "$WEFT_SEED"} ${SERVE_FLAGS:-}
}

# compute-sanitizer over the kernels' tests. Not every machine lets it look into the device: that is
# no verdict on the kernels.
check_kernels() {  # TOOL [ARGUMENT ...]
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here"; return 77; }
  [ -x "$bin/weft_cuda_kernels_test" ] && [ "$gpus" -gt 0 ] || return 77
  local said code
  said="$(mktemp)"
  compute-sanitizer --error-exitcode 1 --tool "$@" "$bin/weft_cuda_kernels_test" \
    "${CHECKED:-~[time]~[.]~[long]}" 2>&1 | tee "$said"
  code=${PIPESTATUS[0]}
  if grep -q "Device not supported" "$said"; then
    echo "compute-sanitizer: this machine does not let it see the device"
    code=77
  fi
  rm -f "$said"
  return "$code"
}

part_memcheck() { check_kernels memcheck; }

# Without the kernels whose warps hand a buffer back by one lane, after __syncwarp: racecheck takes
# the other lanes' reads for a race with the next bulk copy. It says the same of twenty lines that
# do nothing else, and nothing of these or of prompt attention when every lane arrives at the
# barrier.
part_racecheck() {
  local without="~[time]~[.]~[long]~[gemv]~[experts]~[prompt_attention]"
  CHECKED="${CHECKED:-$without}" check_kernels racecheck
}

part_synccheck() { check_kernels synccheck; }

part_initcheck() { check_kernels initcheck; }

part_time() {
  export CUDA_MODULE_LOADING=EAGER
  run_all "[time]" weft_cuda_kernels_test weft_cuda_device_test weft_cuda_peer_test \
    weft_cuda_comm_test
}

part_step() {
  local shape failed=0
  [ -x "$bin/weft" ] && [ "$gpus" -gt 0 ] || return 77
  for shape in ${SHAPES:-llama-3.1-8b llama-3.2-1b}; do
    "$bin/weft" bench step --device=cuda --weights=random --model="tests/bench/shapes/$shape" ||
      failed=1
  done
  return "$failed"
}

# -- All of it ------------------------------------------------------------------------------------
if [ "$gpus" -gt 0 ]; then
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
elif command -v nvidia-smi >/dev/null; then
  echo "run.sh: no GPU here ($(nvidia-smi -L 2>&1 | head -n 1)); only what needs none runs"
else
  echo "run.sh: no GPU here (no nvidia-smi, so no NVIDIA driver); only what needs none runs"
fi
find_libraries
export -f run_all check_kernels part_kernels part_device part_peers part_serve part_memcheck \
  part_racecheck part_synccheck part_initcheck part_time part_step
export bin gpus

rows=() failed=() idle=()
for part in ${parts//,/ }; do
  log="$logs/$part.log" begin=$SECONDS
  echo "== $part (log: $log)"
  # A time limit wants a program: the shell again, with the functions above.
  timeout -k 10 "$limit" bash -c "set -uo pipefail; part_$part" >"$log" 2>&1
  code=$?
  case "$code" in
    0) verdict=pass ;;
    77) verdict="not here" idle+=("$part") ;;
    124|137) verdict="FAIL: over $limit s" ;;
    *) verdict=FAIL ;;
  esac
  if [[ $verdict == FAIL* ]]; then
    failed+=("$part")
    tail -n 40 "$log"
  fi
  rows+=("$(printf '%-10s %-16s %5d s' "$part" "$verdict" $((SECONDS - begin)))")
  echo "${rows[-1]}"
done

{
  echo
  echo "part       result             time"
  printf '%s\n' "${rows[@]}"
  if grep -qsE '^(SKIPPED|LEFT OUT|skipped)|: skipped' "$logs"/*.log; then
    printf '\n== left out\n'
    grep -hsE '^(SKIPPED|LEFT OUT|skipped)|: skipped' "$logs"/*.log | sort | uniq -c | head -n 30
  fi
  if [ -f "$logs/serve.log" ]; then printf '\n== serve\n'; cat "$logs/serve.log"; fi
  # A test's table of figures stands between its header and the sum of its cases.
  if [ -f "$logs/time.log" ]; then
    printf '\n== time\n'
    grep -E '^kernel  |[0-9]%$' "$logs/time.log"
  fi
  if [ -f "$logs/step.log" ]; then
    printf '\n== step\n'
    grep -E ' on .*loaded in|^decode |^prompt ' "$logs/step.log"
  fi
} | tee "$logs/summary.txt"
echo
echo "${#rows[@]} parts, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}," \
  "${#idle[@]} not run${idle[*]:+: ${idle[*]}}; logs in $logs"
[ "${#failed[@]}" = 0 ] || exit 1
if [ "${#idle[@]}" = "${#rows[@]}" ]; then
  reason="a GPU was found, but not the binaries: build them, or name them to deploy/bundle.sh"
  [ "$gpus" -gt 0 ] || reason="no GPU here"
  echo "run.sh: nothing ran: $reason" >&2
  exit 77
fi
