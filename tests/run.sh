#!/usr/bin/env bash
# The one test command: installs what is missing, checks format, builds, runs tests: what every
# change needs. Needs no GPU: CUDA code is compiled, and tests/gpu/run.sh runs it where there is one.
# Options:
#   --quick      for daily work: format, build, unit tests that take less than seconds
#   --full       everything: each header alone, ten minutes of each fuzzer, all sanitizers, long
#                simulations, mutants, coverage, all tests
#   --only P,... of what is run so, only these parts: format build sanitizers fuzz tests; with --full
#                also headers simulation mutants coverage
#   --label L    only tests with this ctest label: unit, sim or integration; given again: this, too
#   --help       this text
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
labels=(unit sim integration)
all_parts=(format build headers sanitizers fuzz simulation mutants coverage tests)
mode=change only="" label="" ctest_arguments=()

refuse() {
  echo "tests/run.sh: $1 (known: --quick, --full, --only P,..., --label L, --help)" >&2
  exit 2
}

one_of() {  # WORD WORDS...
  local word="$1" known
  shift
  for known in "$@"; do [ "$word" != "$known" ] || return 0; done
  return 1
}

add_label() {
  one_of "$1" "${labels[@]}" || refuse "--label \"$1\" is not one of ${labels[*]}"
  label+="${label:+|}$1"
}

set_only() {
  local part
  for part in ${1//,/ }; do
    one_of "$part" "${all_parts[@]}" || refuse "--only \"$part\" is not one of ${all_parts[*]}"
  done
  [ -n "${1//,/}" ] || refuse "--only needs one of ${all_parts[*]}"
  only+=",$1"
}

set_mode() {
  [ "$mode" = change ] || refuse "--quick and --full exclude each other"
  mode="$1"
}

while [ $# -gt 0 ]; do
  case "$1" in
    --quick|--full) set_mode "${1#--}" ;;
    --only) [ $# -gt 1 ] || refuse "--only needs one of ${all_parts[*]}"; set_only "$2"; shift ;;
    --only=*) set_only "${1#--only=}" ;;
    --label) [ $# -gt 1 ] || refuse "--label needs one of ${labels[*]}"; add_label "$2"; shift ;;
    --label=*) add_label "${1#--label=}" ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' tests/run.sh; exit 0 ;;
    *) refuse "unknown option $1" ;;
  esac
  shift
done
case "$mode" in
  quick) parts=(format build tests); ctest_arguments+=(-LE '^(long|full|sim|integration)$') ;;
  change) parts=(format build sanitizers fuzz tests); ctest_arguments+=(-LE '^full$') ;;
  full) parts=("${all_parts[@]}") ;;
esac
[ -z "$label" ] || ctest_arguments+=(-L "^($label)\$")

for part in ${only//,/ }; do
  one_of "$part" "${parts[@]}" || refuse "--only \"$part\" is no part of this mode: ${parts[*]}"
done

wanted=(--tests --cuda --fuzz)
[ "$mode" != full ] || wanted+=(--images --kubernetes --browser --clients)
deploy/setup.sh "${wanted[@]}"
# shellcheck source=deploy/env.sh
source deploy/env.sh
export WEFT_CARGO_TARGET_DIR="$WEFT_CACHE/cargo"

part_format() {
  # New files, too, which no commit has yet.
  git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' |
    xargs -P "$(nproc)" -n 50 clang-format-14 --dry-run -Werror
}

part_build() {
  cmake --preset ci | grep '^-- CUDA:'
  cmake --build --preset ci
}

part_headers() { cmake --build --preset ci --target weft_header_check; }

part_sanitizers() {
  if [ "$mode" = full ]; then tests/sanitizers.sh; else tests/sanitizers.sh tsan weft_shard_comm_test; fi
}

part_fuzz() {
  if [ "$mode" = full ]; then tests/fuzz/run.sh --rust --seconds 600; else tests/fuzz/run.sh; fi
}

# Seeds of its own, beyond those of ctest.
part_simulation() { WEFT_ROUTER_SIM_SECONDS=600 build/ci/bin/weft_router_sim "[seconds]"; }

part_mutants() { python3 tests/mutants/run.py; }

part_coverage() { tests/coverage.sh; }

# That nothing is left of what was asked for, or that nothing is built, is no success.
part_tests() {
  ctest --preset ci -j "$(nproc)" --timeout 1200 --no-tests=error "${ctest_arguments[@]}"
}

for part in "${parts[@]}"; do
  [ -z "$only" ] || one_of "$part" ${only//,/ } || continue
  printf '\n== %s (%s)\n' "$part" "$(date +%H:%M:%S)"
  "part_$part"
done
