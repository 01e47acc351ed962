#!/usr/bin/env bash
# From a fresh Debian 12 to a first answer: set-up, release build, `weft serve` with the demo model
# on two CPU shards, one streamed chat answer. Needs no GPU and takes none: README.md says how those
# are used. Keeps serving until Ctrl-C; --once ends after the answer.
set -euo pipefail
cd "$(dirname "$0")/.."
once=0
for argument in "$@"; do
  case "$argument" in
    --once) once=1 ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "quickstart.sh: unknown option $argument (known: --once)" >&2; exit 2 ;;
  esac
done

deploy/setup.sh
# shellcheck source=deploy/env.sh
source deploy/env.sh
cmake --preset release | grep '^-- CUDA:'
cmake --build --preset release --target weft weft-router weft-shard
weft=build/release/bin/weft

http_port="${WEFT_HTTP_PORT:-0}"
grpc_port="${WEFT_GRPC_PORT:-0}"
ready="$(mktemp -u)"
mkfifo "$ready"
# In a process group of its own: Ctrl-C reaches this script only, which passes it on once, because a
# second signal would end running requests instead of letting them finish.
set -m
"$weft" serve --model "$WEFT_DEMO_MODEL" --device cpu --shards 2 --http-port "$http_port" \
  --grpc-port "$grpc_port" >"$ready" &
server=$!
set +m
stop() {
  rm -f "$ready"
  trap 'kill "$server" 2>/dev/null || true' INT TERM
  kill "$server" 2>/dev/null || true
  while kill -0 "$server" 2>/dev/null; do wait "$server" || true; done
}
trap stop EXIT
trap 'exit 130' INT TERM

# The server writes one line when it is ready; end of file means that it could not start.
if ! read -r _ http grpc <"$ready"; then
  echo "quickstart.sh: the server did not start" >&2
  exit 1
fi
http="${http#http=}"
grpc="${grpc#grpc=}"

question="What is the capital of France?"
echo
echo "> $question"
"$weft" chat --connect "$grpc" --prompt "$question" --stats
[ "$once" = 0 ] || exit 0

cat <<TEXT

weft serves the demo model from two CPU shards: HTTP on $http, gRPC on $grpc. Try next:

  curl -N http://$http/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages":[{"role":"user","content":"Tell me about the sea."}],"max_tokens":64,"stream":true}'

  # needs https://github.com/fullstorydev/grpcurl
  grpcurl -plaintext -d '{"text":"The sea is","stopping":{"max_tokens":32}}' \\
    $grpc weft.v1.TextGeneration/Generate

  $weft chat --connect $grpc

TEXT
echo "Ctrl-C ends the server."
wait "$server"
