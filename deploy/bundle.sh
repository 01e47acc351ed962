#!/usr/bin/env bash
# Packs binaries and the shared libraries that a plain Ubuntu 24.04 or Debian 12 lacks into a tarball
# that runs from any folder: bin/ finds lib/ beside it. Not in it: the C and C++ libraries, and
# CUDA's (cuBLASLt, NCCL), which a GPU machine has; --cuda packs those too.
#   deploy/bundle.sh [--cuda] BUILD_FOLDER OUT.tar.gz [BINARY ...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

with_cuda=0
if [ "${1:-}" = --cuda ]; then with_cuda=1; shift; fi
[ $# -ge 2 ] || { echo "usage: deploy/bundle.sh [--cuda] BUILD_FOLDER OUT.tar.gz [BINARY ...]" >&2; exit 2; }
build="$1" out="$2"
shift 2
binaries=("$@")
[ ${#binaries[@]} -gt 0 ] || binaries=(weft weft-router weft-shard)

system='^(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+|libatomic)\.so'
cuda='^(libcuda|libcudart|libcublas|libcublasLt|libnccl)\.so'
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/weft/bin" "$folder/weft/lib"

for binary in "${binaries[@]}"; do
  [ -x "$build/bin/$binary" ] || { echo "bundle.sh: $build/bin/$binary is not built" >&2; exit 1; }
  cp "$build/bin/$binary" "$folder/weft/bin/"
  strip --strip-debug "$folder/weft/bin/$binary"
  LD_LIBRARY_PATH="$WEFT_CACHE/cuda/nvidia/cu13/lib" ldd "$build/bin/$binary"
done | while read -r name arrow path _; do
  if [ "$arrow" != "=>" ] || [[ $name =~ $system ]]; then continue; fi
  if [[ $name =~ $cuda ]] && [ "$with_cuda" = 0 ]; then continue; fi
  [ "$path" != not ] || { echo "bundle.sh: $name not found" >&2; exit 1; }
  [ -e "$folder/weft/lib/$name" ] || cp -L "$path" "$folder/weft/lib/$name"
done
tar -C "$folder" -czf "$out" weft
echo "$out: ${#binaries[@]} binaries, $(find "$folder/weft/lib" -type f | wc -l) libraries, $(du -h "$out" | cut -f1)"
