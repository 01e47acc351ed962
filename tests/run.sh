#!/usr/bin/env bash
# The one test command: installs what is missing, checks format, builds, runs every test. Needs no
# GPU: CUDA code is compiled, and tests/gpu/run.sh runs it where there is one. Options:
#   --sanitize   first build and run the tests of router, common and shard under AddressSanitizer
#                with UndefinedBehaviorSanitizer, and under ThreadSanitizer
#   --label L    build all, but run only the tests with this ctest label: unit, sim or integration
#   --help       this text
set -euo pipefail
cd "$(dirname "$0")/.."
labels=(unit sim integration)
sanitize=0
ctest_arguments=()

refuse() {
  echo "tests/run.sh: $1 (known: --sanitize, --label L, --help)" >&2
  exit 2
}

add_label() {
  local known
  for known in "${labels[@]}"; do
    [ "$1" = "$known" ] || continue
    ctest_arguments+=(-L "^$1\$")
    return
  done
  refuse "--label \"$1\" is not one of ${labels[*]}"
}

while [ $# -gt 0 ]; do
  case "$1" in
    --sanitize) sanitize=1 ;;
    --label) [ $# -gt 1 ] || refuse "--label needs one of ${labels[*]}"; add_label "$2"; shift ;;
    --label=*) add_label "${1#--label=}" ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' tests/run.sh; exit 0 ;;
    *) refuse "unknown option $1" ;;
  esac
  shift
done

deploy/setup.sh --tests --cuda
# shellcheck source=deploy/env.sh
source deploy/env.sh
# The cache serves any checkout: paths inside it count as relative.
export CCACHE_MAXSIZE="${CCACHE_MAXSIZE:-5G}" CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1

step() { printf '\n== %s (%s)\n' "$1" "$(date +%H:%M:%S)"; }

step "format"
git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run -Werror

step "build"
cmake --preset ci | grep '^-- CUDA:'
cmake --build --preset ci
cmake --build --preset ci --target weft_header_check

# Test executables that run once more under a sanitizer: everything that parses input or has threads.
asan_tests=(weft_common_test weft_scheduler_test weft_text_test weft_doors_test weft_engine_test
            weft_weights_test weft_shard_control_test weft_shard_comm_test weft_compute_test
            weft_launcher_test weft_identity_test weft_tls_test weft_key_command_test)
tsan_tests=(weft_common_test weft_doors_test weft_engine_test weft_shard_control_test
            weft_shard_comm_test weft_compute_test weft_identity_test weft_tls_test)
run_sanitized() {
  local preset=$1
  shift
  step "$preset: build"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" --target "$@"
  for test in "$@"; do
    step "$preset: $test"
    env "${test_environment[@]}" "build/$preset/bin/$test" "~[demo]~[slow]$test_filter"
  done
}
if [ "$sanitize" = 1 ]; then
  test_filter=""
  test_environment=(ASAN_OPTIONS=detect_stack_use_after_return=1
                    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1)
  run_sanitized asan "${asan_tests[@]}"
  test_filter='~"Draws follow the distribution that the filters leave"'  # minutes, and one thread
  test_environment=("TSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/tests/support/tsan.supp"
                    "LD_LIBRARY_PATH=$(deploy/tsan_abseil.sh)")
  run_sanitized tsan "${tsan_tests[@]}"
fi

step "tests"
ctest --preset ci --timeout 1200 "${ctest_arguments[@]}"
