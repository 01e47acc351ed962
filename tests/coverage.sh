#!/usr/bin/env bash
# Line coverage of router/ and shard/control by the unit tests and simulations: builds preset
# `coverage` without CUDA, runs them, prints folders and the least covered files, and fails below
# the bound. Options:
#   --at-least P   the bound in percent, default 92
#   --html FOLDER  also the lines themselves, as pages
# Needs deploy/setup.sh --tests.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
source deploy/env.sh
at_least=92 html=()
while [ $# -gt 0 ]; do
  case "$1" in
    --at-least) at_least="${2:?--at-least needs a number}"; shift ;;
    --html) mkdir -p "${2:?--html needs a folder}"; html=(--html-details "$2/index.html"); shift ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' tests/coverage.sh; exit 0 ;;
    *) echo "coverage.sh: unknown option $1 (known: --at-least P, --html FOLDER)" >&2; exit 2 ;;
  esac
  shift
done
[[ $at_least =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "coverage.sh: --at-least $at_least" >&2; exit 2; }

# All that runs router/ or shard/control without whole processes of weft.
tests=(weft_answer_test weft_doors_test weft_engine_test weft_identity_test weft_recording_test
       weft_replay_command_test weft_router_shards_test weft_scheduler_sim weft_scheduler_test
       weft_shard_comm_test weft_shard_control_test weft_shard_ops_test weft_text_test
       weft_tls_test)
build=build/coverage
cmake --preset coverage >/dev/null
cmake --build --preset coverage --target "${tests[@]}" weft-template-server
find "$build" -name '*.gcda' -delete
failed=0
for test in "${tests[@]}"; do
  echo "== $test"
  "$build/bin/$test" "~[time]~[.]" >"$build/$test.log" 2>&1 || { tail -n 30 "$build/$test.log"; failed=1; }
done

# gcovr writes one summary; the folders' sums and the worst files are read out of it.
"$WEFT_CACHE/test-venv/bin/gcovr" --root . --object-directory "$build" -j "$(nproc)" \
  --filter 'router/' --filter 'shard/control/' --exclude 'router/text/ffi/' --exclude-throw-branches \
  --gcov-ignore-parse-errors=negative_hits.warn --merge-mode-functions=merge-use-line-min \
  --json-summary "$build/summary.json" "${html[@]}" "$build"
"$WEFT_CACHE/test-venv/bin/python3" - "$build/summary.json" "$at_least" <<'PYTHON' || failed=1
import collections, json, os, sys
summary, at_least = json.load(open(sys.argv[1])), float(sys.argv[2])
folders = collections.defaultdict(lambda: [0, 0])
for file in summary["files"]:
    for folder in (os.path.dirname(file["filename"]), "all"):
        folders[folder][0] += file["line_covered"]
        folders[folder][1] += file["line_total"]
print(f"{'folder':32} {'lines':>6} {'run':>6}       %")
for folder, (run, lines) in sorted(folders.items()):
    print(f"{folder:32} {lines:6} {run:6} {100 * run / max(lines, 1):7.1f}")
print("most lines that never ran:")
missed = sorted(summary["files"], key=lambda file: file["line_covered"] - file["line_total"])
for file in missed[:15]:
    print(f"  {file['line_total'] - file['line_covered']:4} of {file['line_total']:4}  {file['filename']}")
percent = 100 * folders["all"][0] / folders["all"][1]
print(f"coverage: {percent:.1f} % of {folders['all'][1]} lines (at least {at_least:g} %)")
sys.exit(percent < at_least)
PYTHON
exit "$failed"
