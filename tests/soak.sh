#!/usr/bin/env bash
# A soak run: one server under mixed load and a fault every so often, and gates on what must not
# grow, leak or be wrong meanwhile (docs/TESTING.md). An hour unless --minutes says otherwise; the
# other options are those of tests/integration/soak.py --help. WEFT_BIN_DIR names the build's
# programs (build/ci/bin).
#   --plants     instead: short runs, each with a fault of its own that its gate has to find
#   --overload   instead: gaps of running streams at ten times the load beside 80 %
#                (soak_overload.py --help)
set -euo pipefail
root="$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=deploy/env.sh
source "$root/deploy/env.sh"
export PYTHONDONTWRITEBYTECODE=1
python="${WEFT_TEST_PYTHON:-$WEFT_CACHE/test-venv/bin/python3}"

soak() { "$python" "$root/tests/integration/soak.py" "$@"; }

case "${1:-}" in
  --plants) shift ;;
  --overload) shift; exec "$python" "$root/tests/integration/soak_overload.py" "$@" ;;
  *) soak "$@"; exit ;;
esac
missed=()
for plant in memory descriptors threads blocks gaps log tokens; do
  printf '\n== planted: %s\n' "$plant"
  soak --minutes 2 --period-s 6 --plant "$plant" "$@" || missed+=("$plant")
done
[ ${#missed[@]} -eq 0 ] || { echo "not found: ${missed[*]}" >&2; exit 1; }
