#!/usr/bin/env bash
# Runs tests under AddressSanitizer with UndefinedBehaviorSanitizer (preset asan) and under
# ThreadSanitizer (preset tsan): all that parse input or have threads, or those that are named.
#   tests/sanitizers.sh [asan|tsan [TEST ...]]
# Leaves out tests tagged [demo], [long] and [slow]: a sanitizer makes them take minutes, or they
# hold times that it changes. ThreadSanitizer also leaves out [no_tsan]: a forked process that starts
# a thread meets in its tables the threads of the process that it is a copy of.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
source deploy/env.sh

asan_tests=(weft_common_test weft_scheduler_test weft_text_test weft_doors_test weft_engine_test
            weft_answer_test weft_router_shards_test weft_recording_test weft_weights_test
            weft_shard_control_test weft_shard_comm_test weft_compute_test weft_launcher_test
            weft_identity_test weft_tls_test weft_key_command_test weft_convert_test)
tsan_tests=(weft_common_test weft_doors_test weft_engine_test weft_answer_test
            weft_router_shards_test weft_recording_test weft_text_test weft_shard_control_test
            weft_shard_comm_test weft_compute_test weft_identity_test weft_tls_test)

failed=()

run_under() {  # PRESET TEST ...
  local preset="$1" test environment suppressions="$PWD/tests/support/tsan.supp"
  local cases="~[demo]~[slow]~[long]~[.]"
  shift
  if [ "$preset" = asan ]; then
    environment=(ASAN_OPTIONS=detect_stack_use_after_return=1
                 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1)
  else
    cases+="~[no_tsan]"
    # Tests fork processes that start threads.
    environment=("TSAN_OPTIONS=halt_on_error=1:die_after_fork=0:suppressions=$suppressions"
                 "LD_LIBRARY_PATH=$(deploy/tsan_abseil.sh)")
  fi
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" --target "$@"
  for test in "$@"; do
    printf '\n== %s: %s (%s)\n' "$preset" "$test" "$(date +%H:%M:%S)"
    env "${environment[@]}" "build/$preset/bin/$test" "$cases" ||
      failed+=("$preset: $test")
  done
}

preset="${1:-}"
case "$preset" in
  "") run_under asan "${asan_tests[@]}"; run_under tsan "${tsan_tests[@]}" ;;
  asan|tsan)
    shift
    for test in "$@"; do
      [[ $test == weft* ]] || { echo "sanitizers.sh: no test program: $test" >&2; exit 2; }
    done
    declare -n all="${preset}_tests"
    run_under "$preset" "${@:-${all[@]}}" ;;
  -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' tests/sanitizers.sh ;;
  *) echo "sanitizers.sh: unknown preset $preset (known: asan, tsan)" >&2; exit 2 ;;
esac

[ ${#failed[@]} = 0 ] || { printf 'sanitizers.sh: failed: %s\n' "${failed[@]}" >&2; exit 1; }
