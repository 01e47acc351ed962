#!/usr/bin/env bash
# Packs binaries and the shared libraries that a plain Ubuntu 24.04 or Debian 12 lacks into a
# tarball that runs from any folder: bin/ finds lib/ beside it. A GPU machine needs NVIDIA's driver
# besides.
#   deploy/bundle.sh [--without-cuda] BUILD_FOLDER OUT.tar.gz|FOLDER/ [BINARY ...]
# FOLDER/          a folder that is not there yet: gets bin/ and lib/ and is not packed
# BINARY           default weft weft-router weft-shard; tests go in by name (weft_cuda_device_test)
# --without-cuda   leave out cuBLASLt, NCCL and CUDA's runtime (0.5 GB packed), for machines that
#                  have CUDA 13 and NCCL 2.28 installed
set -euo pipefail
# shellcheck source=deploy/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

fail() { echo "bundle.sh: $*" >&2; exit 1; }
usage() {
  echo "bundle.sh: $1; usage:" \
    "deploy/bundle.sh [--without-cuda] BUILD_FOLDER OUT.tar.gz|FOLDER/ [BINARY ...]" >&2
  exit 2
}

with_cuda=1
words=()
for argument in "$@"; do
  case "$argument" in
    --without-cuda) with_cuda=0 ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) usage "unknown option $argument" ;;
    *) words+=("$argument") ;;
  esac
done
[ ${#words[@]} -ge 2 ] || usage "name a build folder and a tarball or folder"
build="${words[0]}" out="${words[1]}"
binaries=("${words[@]:2}")
[ ${#binaries[@]} -gt 0 ] || binaries=(weft weft-router weft-shard)
# Said now, not after all the work.
[ -d "$build/bin" ] || fail "no folder $build/bin: build there first"
case "$out" in
  *.tar.gz|*.tgz) ;;
  */) [ ! -e "$out" ] || fail "$out is there already" ;;
  *) usage "$out does not end in .tar.gz, .tgz or /" ;;
esac
[ -w "$(dirname "$out")/." ] || fail "cannot write to the folder of $out"
for binary in "${binaries[@]}"; do
  [ -x "$build/bin/$binary" ] || fail "$build/bin/$binary is not built"
done

# libcuda is the driver's.
system='^(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+|libcuda)\.so'
cuda='^(libcudart|libcublas|libcublasLt|libnccl)\.so'
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/weft/bin" "$folder/weft/lib"

for binary in "${binaries[@]}"; do
  cp "$build/bin/$binary" "$folder/weft/bin/"
  strip --strip-debug "$folder/weft/bin/$binary"
  LD_LIBRARY_PATH="$WEFT_CACHE/cuda/nvidia/cu13/lib" ldd "$build/bin/$binary"
done | while read -r name arrow path _; do
  if [ "$arrow" != "=>" ] || [[ $name =~ $system ]]; then continue; fi
  if [[ $name =~ $cuda ]] && [ "$with_cuda" = 0 ]; then
    echo "$name" >>"$folder/left_out"
    continue
  fi
  [ "$path" != not ] || fail "$name not found"
  [ -e "$folder/weft/lib/$name" ] || cp -L "$path" "$folder/weft/lib/$name"
done
libraries="$(find "$folder/weft/lib" -type f | wc -l)"
case "$out" in
  */) mv "$folder/weft" "$out" ;;
  *) tar -C "$folder" -czf "$out" weft ;;
esac
echo "$out: ${#binaries[@]} binaries, $libraries libraries, $(du -sh "$out" | cut -f1)"
if [ -s "$folder/left_out" ]; then
  echo "not in it, and to be installed where it runs: $(sort -u "$folder/left_out" | paste -sd ' ')"
fi
