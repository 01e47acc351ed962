#!/usr/bin/env bash
# Builds the fuzz targets with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer and runs each
# from its corpus. Usage: tests/fuzz/run.sh [option ...] [target ...]; targets are the folders of
# tests/fuzz/corpora, all without any. Exits with 1 when one was made to fail and says how to do so
# again. Options:
#   --seconds N  how long each target runs (10)
#   --jobs J     how many run at the same time (2)
#   --seed S     of the mutations (1)
#   --rust       libFuzzer sees which code runs in Rust, too: tokenizers and templates (builds minutes)
#   --keep       puts what the runs found into the corpora and leaves out what reaches nothing new
#   --no-build   runs what is built
#   --help       this text
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
seconds=10
jobs=2
seed=1
keep=0
rust=OFF
build=1
targets=()

refuse() {
  echo "tests/fuzz/run.sh: $1" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case "$1" in
    --seconds|--jobs|--seed)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || refuse "$1 needs a number above 0"
      printf -v "${1#--}" '%s' "$2"
      shift ;;
    --rust) rust=ON ;;
    --keep) keep=1 ;;
    --no-build) build=0 ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' tests/fuzz/run.sh; exit 0 ;;
    -*) refuse "unknown option $1 (known: --seconds, --jobs, --seed, --rust, --keep, --no-build, --help)" ;;
    *) [[ $1 =~ ^[a-z0-9_]+$ && -d "tests/fuzz/corpora/$1" ]] || refuse "unknown target $1 (known: $(ls -m tests/fuzz/corpora))"
       targets+=("$1") ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/corpora)

# shellcheck source=deploy/env.sh
source deploy/env.sh
# Functions and lines in reports, by what gcc's packages bring along.
addr2line="ASAN_OPTIONS=external_symbolizer_path=$(command -v addr2line)"
export "${addr2line?}" UBSAN_OPTIONS=print_stacktrace=1

if [ "$build" = 1 ]; then
  command -v clang++-19 >/dev/null || deploy/setup.sh --no-model --fuzz
  cmake --preset fuzz "-DWEFT_FUZZ_RUST=$rust" >/dev/null
  cmake --build --preset fuzz --target "${targets[@]/#/weft_fuzz_}"
fi

work=build/fuzz/runs
bytes_max() {  # TARGET: the largest input that is worth its time
  case "$1" in
    gguf|recording|torch_file) echo 16384 ;;
    *) echo 4096 ;;
  esac
}

run_one() {  # TARGET
  local target=$1 folder="$work/$1" dictionary="tests/fuzz/dictionaries/$1.dict" options=()
  mkdir -p "$folder/found" "$folder/faults"
  [ ! -f "$dictionary" ] || options+=("-dict=$dictionary")
  "build/fuzz/bin/weft_fuzz_$target" "$folder/found" "tests/fuzz/corpora/$target" "${options[@]}" \
    -max_total_time="$seconds" -seed="$seed" -max_len="$(bytes_max "$target")" -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix="$folder/faults/" -print_final_stats=1 \
    -verbosity=1 >"$folder/log" 2>&1 && echo 0 >"$folder/exit" || echo $? >"$folder/exit"
}

report() {  # TARGET
  local target=$1 folder="$work/$1" fault runs
  runs="$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/log")"
  # A program that looks at nothing finds nothing.
  [ "${runs:-0}" -gt 0 ] || echo "no runs" >"$folder/exit"
  sed -n "s/.*INITED cov: \([0-9]*\).*/\1/p" "$folder/log" | tail -n 1 >"$folder/before"
  sed -n "s/.*cov: \([0-9]*\).*/\1/p" "$folder/log" | tail -n 1 >"$folder/after"
  printf '%-16s %9s runs %7s/s  coverage %6s -> %-6s %5s new inputs  %s\n' "$target" \
    "$runs" \
    "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$folder/log")" \
    "$(cat "$folder/before")" "$(cat "$folder/after")" \
    "$(sed -n 's/^stat::new_units_added: *//p' "$folder/log")" \
    "$([ "$(cat "$folder/exit")" = 0 ] && echo ok || echo FAULT)"
  [ "$(cat "$folder/exit")" != 0 ] || return 0
  fault="$(sed -n 's/.*Test unit written to //p' "$folder/log" | tail -n 1)"
  echo "$target: $(grep -m 1 -E 'CHECK failed|runtime error: |SUMMARY' "$folder/log" || tail -n 1 "$folder/log")"
  [ -z "$fault" ] || echo "  again:    $addr2line build/fuzz/bin/weft_fuzz_$target $fault"
  echo "  the log:  $folder/log"
  return 1
}

keep_found() {  # TARGET
  local target=$1 folder="$work/$1"
  rm -rf "$folder/merged"
  mkdir "$folder/merged"
  "build/fuzz/bin/weft_fuzz_$target" -set_cover_merge=1 -use_counters=0 -max_len="$(bytes_max "$target")" -timeout=10 \
    -rss_limit_mb=2048 "$folder/merged" "tests/fuzz/corpora/$target" "$folder/found" \
    >"$folder/merge.log" 2>&1
  rm -rf "tests/fuzz/corpora/$target"
  cp -r "$folder/merged" "tests/fuzz/corpora/$target"
}

echo "fuzz: ${#targets[@]} targets, $seconds s each, $jobs at a time, seed $seed"
failed=0
running=0
for target in "${targets[@]}"; do
  if [ "$running" -ge "$jobs" ]; then
    wait -n
    running=$((running - 1))
  fi
  # So that none is judged by the run before.
  mkdir -p "$work/$target"
  rm -f "$work/$target/exit" "$work/$target/log"
  run_one "$target" &
  running=$((running + 1))
done
wait
for target in "${targets[@]}"; do
  report "$target" || failed=1
done
if [ "$keep" = 1 ] && [ "$failed" = 0 ]; then
  for target in "${targets[@]}"; do keep_found "$target"; done
  du -sh --apparent-size tests/fuzz/corpora
fi
exit "$failed"
