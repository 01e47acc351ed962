#!/usr/bin/env bash
# Makes the container image of deploy/Dockerfile as an OCI archive, from a build that is there and
# Debian packages: without root, a daemon or a registry. A build with CUDA gives the target cuda,
# one without (cmake -DWEFT_CUDA=OFF) the target cpu. The same input gives the same digest.
#   deploy/image.sh [--uncompressed] BUILD_FOLDER OUT.tar
# --uncompressed   leave the layers unpacked: quicker, for an image that stays on this machine
# Then, for example: podman load -i OUT.tar, or skopeo copy oci-archive:OUT.tar docker://...
# SOURCE_DATE_EPOCH is the time of all files; by default that of the last commit.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

fail() { echo "image.sh: $*" >&2; exit 1; }

compressed=1
words=()
for argument in "$@"; do
  case "$argument" in
    --uncompressed) compressed=0 ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) fail "unknown option $argument (known: --uncompressed)" ;;
    *) words+=("$argument") ;;
  esac
done
[ ${#words[@]} = 2 ] || fail "usage: deploy/image.sh [--uncompressed] BUILD_FOLDER OUT.tar"
build="${words[0]}" out="${words[1]}"
[ -x "$build/bin/weft" ] || fail "$build/bin/weft is not built"
[ -w "$(dirname "$out")/." ] || fail "cannot write to the folder of $out"

version="$(sed -n 's/^project(weft VERSION \([0-9.]*\).*/\1/p' "$here/../CMakeLists.txt")"
revision="$(git -C "$here" rev-parse HEAD 2>/dev/null || echo unknown)"
epoch="${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 0)}"
created="$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
blobs="$work/oci/blobs/sha256"
mkdir -p "$blobs"
"$here/image_root.sh" "$build" "$work/root"

digest_of() { sha256sum "$1" | cut -d' ' -f1; }

# Moves a file to where its digest names it; sets `digest` and `size`.
add_blob() {  # FILE
  digest="$(digest_of "$1")"
  size="$(stat -c %s "$1")"
  mv "$1" "$blobs/$digest"
}

layers="" diff_ids="" history="" unpacked=0 packed=0
add_layer() {  # FOLDER
  local file="$work/layer" type=application/vnd.oci.image.layer.v1.tar diff_id
  tar -C "$work/root/$1" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner \
    --format=gnu -cf "$file" .
  diff_id="$(digest_of "$file")"
  unpacked=$((unpacked + $(stat -c %s "$file")))
  if [ "$compressed" = 1 ]; then
    gzip -n "$file"
    file="$file.gz" type="$type+gzip"
  fi
  add_blob "$file"
  packed=$((packed + size))
  layers+="${layers:+,}{\"mediaType\":\"$type\",\"digest\":\"sha256:$digest\",\"size\":$size}"
  diff_ids+="${diff_ids:+,}\"sha256:$diff_id\""
  history+="${history:+,}{\"created\":\"$created\",\"created_by\":\"deploy/image.sh: $1\"}"
}

target=cpu environment='"PATH=/opt/weft/bin:/usr/bin:/bin","WEFT_HOST=0.0.0.0"'
add_layer system
if [ -d "$work/root/cuda/opt" ]; then
  target=cuda
  # What NVIDIA's container runtime brings in: the driver's libraries for computing, and nvidia-smi.
  environment+=',"NVIDIA_VISIBLE_DEVICES=all","NVIDIA_DRIVER_CAPABILITIES=compute,utility"'
  add_layer cuda
fi
add_layer weft

cat >"$work/config" <<JSON
{"created":"$created","architecture":"amd64","os":"linux",
 "config":{
  "User":"10001:10001","WorkingDir":"/","StopSignal":"SIGTERM",
  "Entrypoint":["/opt/weft/bin/weft","serve"],
  "Env":[$environment],
  "ExposedPorts":{"8080/tcp":{},"8081/tcp":{}},
  "Labels":{
   "org.opencontainers.image.title":"weft",
   "org.opencontainers.image.description":"Serves large language models",
   "org.opencontainers.image.licenses":"Apache-2.0",
   "org.opencontainers.image.version":"$version",
   "org.opencontainers.image.revision":"$revision"}},
 "rootfs":{"type":"layers","diff_ids":[$diff_ids]},
 "history":[$history]}
JSON
add_blob "$work/config"
config="{\"mediaType\":\"application/vnd.oci.image.config.v1+json\",\"digest\":\"sha256:$digest\""
config+=",\"size\":$size}"

manifest_type=application/vnd.oci.image.manifest.v1+json
printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}\n' \
  "$manifest_type" "$config" "$layers" >"$work/manifest"
add_blob "$work/manifest"
printf '{"schemaVersion":2,"manifests":[{"mediaType":"%s","digest":"sha256:%s","size":%s,%s}]}\n' \
  "$manifest_type" "$digest" "$size" \
  "\"annotations\":{\"org.opencontainers.image.ref.name\":\"weft:$version-$target\"}" \
  >"$work/oci/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
tar -C "$work/oci" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner \
  --mode=u=rwX,go=rX --format=gnu -cf "$out" .
echo "$out: weft:$version-$target sha256:$digest, $((packed / 1000000)) MB," \
  "$((unpacked / 1000000)) MB unpacked"
