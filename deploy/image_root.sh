#!/usr/bin/env bash
# Lays out what the container image holds: FOLDER/system is the files of the Debian packages in
# deploy/image_packages.txt, FOLDER/cuda CUDA's libraries (nothing after a build without CUDA), and
# FOLDER/weft the rest of the bundle; each becomes a layer. The Dockerfile and deploy/image.sh both
# run it, so that their images hold the same. It needs apt and dpkg of Debian 12, and no root:
# nothing of the packages is executed.
#   deploy/image_root.sh BUILD_FOLDER FOLDER        FOLDER is made and must not be there
# Packages are kept in $WEFT_CACHE/debs and taken from there while apt's index names the same.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=deploy/env.sh
source "$here/env.sh"

fail() { echo "image_root.sh: $*" >&2; exit 1; }

[ $# = 2 ] || fail "usage: deploy/image_root.sh BUILD_FOLDER FOLDER"
build="$1" out="$2"
[ ! -e "$out" ] || fail "$out is there already"
system="$out/system" cuda="$out/cuda" weft="$out/weft"
# What is written has the modes that it gets here, whatever the caller's mask is.
umask 022
mkdir -p "$system" "$cuda" "$weft/opt" "$WEFT_CACHE/debs"

# -- The system: packages, unpacked ---------------------------------------------------------------
mapfile -t packages < <(sed 's/ *#.*//; /^$/d' "$here/image_packages.txt")

is_what_the_index_names() {  # FILE DIGEST
  case "$2" in
    SHA256:*) echo "${2#SHA256:}  $1" | sha256sum --check --status 2>/dev/null ;;
    SHA512:*) echo "${2#SHA512:}  $1" | sha512sum --check --status 2>/dev/null ;;
    *) return 1 ;;
  esac
}

# Where scanners of images look for versions, when no dpkg has installed the package.
state_version() {  # LAYER PACKAGE, the package's control fields on stdin
  mkdir -p "$1/var/lib/dpkg/status.d"
  cat >"$1/var/lib/dpkg/status.d/$2"
}

unpack_packages() {
  local uris name digest deb
  uris="$(apt-get download --print-uris "${packages[@]}")" ||
    fail "apt's index lacks a package of image_packages.txt: run apt-get update"
  while read -r _ name _ digest; do
    deb="$WEFT_CACHE/debs/$name"
    if ! is_what_the_index_names "$deb" "$digest"; then
      echo "image_root.sh: downloading $name"
      rm -f "$deb"
      (cd "$WEFT_CACHE/debs" &&
        apt-get download -q -o APT::Sandbox::User=root "${name%%_*}" >/dev/null) ||
        fail "cannot download $name"
      is_what_the_index_names "$deb" "$digest" ||
        fail "$deb is not what apt's index names ($digest)"
    fi
    # As the caller's files, also where root calls: all of the image belongs to root in the end.
    dpkg-deb --fsys-tarfile "$deb" | tar -C "$system" --no-same-owner -xf -
    dpkg-deb --field "$deb" | state_version "$system" "${name%%_*}"
  done <<<"$uris"
}

# Left out is what nobody reads here; licences stay.
drop_unread() {
  rm -rf "$system"/usr/lib/*/gconv "$system"/usr/share/{man,info,locale,lintian,gcc,bug,base-files} \
    "$system"/usr/sbin/update-ca-certificates "$system"/etc/{ca-certificates,update-motd.d,skel} \
    "$system"/usr/share/ca-certificates
  find "$system/usr/share/doc" -type f ! -name copyright -delete
  find "$system/usr/share/doc" -xtype l -delete
  find "$system/usr/share/doc" -type d -empty -delete
}

# What the packages' scripts would have made, and a user.
complete_system() {
  mkdir -p "$system/etc/ssl/certs"
  find "$system/usr/share/ca-certificates" -name '*.crt' -print0 | LC_ALL=C sort -z |
    xargs -0 cat >"$system/etc/ssl/certs/ca-certificates.crt"
  printf '%s\n' 'root:x:0:0:root:/root:/usr/sbin/nologin' \
    'weft:x:10001:10001:weft:/:/usr/sbin/nologin' >"$system/etc/passwd"
  printf '%s\n' 'root:x:0:' 'weft:x:10001:' >"$system/etc/group"
  echo 'hosts: files dns' >"$system/etc/nsswitch.conf"
}

# -- weft and the libraries of its bundle ---------------------------------------------------------
# The packages that these libraries were taken from: their licences, and versions for scanners.
state_origins() {  # LIBRARY...
  local origins library package
  origins="$(dpkg-query -S "${@/#/*/}" 2>/dev/null | sed 's/[:,].* / /' || true)"
  for library in "$@"; do
    package="$(sed -n "s|^\([^ ]*\) .*/$library\$|\1|p" <<<"$origins" | head -n 1)"
    if [ -z "$package" ]; then
      echo "image_root.sh: $library is of no Debian package; the image states no version of it"
      continue
    fi
    [ ! -e "$weft/usr/share/doc/$package" ] || continue
    mkdir -p "$weft/usr/share/doc/$package"
    cp "/usr/share/doc/$package/copyright" "$weft/usr/share/doc/$package/"
    dpkg-query -s "$package" | state_version "$weft" "$package"
  done
}

unpack_bundle() {
  local library licence libraries=()
  "$here/bundle.sh" "$build" "$weft/opt/weft/" >/dev/null
  mkdir -p "$weft/usr/share/doc/weft"
  cp "$here/../LICENSE" "$weft/usr/share/doc/weft/copyright"
  for library in "$weft"/opt/weft/lib/*; do
    case "$(basename "$library")" in
      libcudart.*|libcublas*|libnccl.*)
        mkdir -p "$cuda/opt/weft/lib"
        mv "$library" "$cuda/opt/weft/lib/"
        ;;
      *) libraries+=("$(basename "$library")") ;;
    esac
  done
  state_origins "${libraries[@]}"
  [ -d "$cuda/opt" ] || return 0
  for licence in "$WEFT_CACHE"/{cuda,nccl}/nvidia_{cublas,cuda_runtime,nccl}*.dist-info/licenses/*; do
    [ -f "$licence" ] || continue
    library="$(basename "${licence%.dist-info/*}")"
    mkdir -p "$cuda/usr/share/doc/$library"
    cp "$licence" "$cuda/usr/share/doc/$library/"
  done
}

# A library that nothing brings would show only when the container starts.
check_needs() {
  local name
  while read -r name; do
    [ "$name" != libcuda.so.1 ] || continue  # the driver's
    compgen -G "$out/*/opt/weft/lib/$name" >/dev/null ||
      compgen -G "$system/lib/x86_64-linux-gnu/$name" >/dev/null ||
      compgen -G "$system/usr/lib/x86_64-linux-gnu/$name" >/dev/null ||
      fail "$name is needed, and neither in the bundle nor in a package of image_packages.txt"
  done < <(find "$out"/*/opt/weft -type f -exec readelf -d {} + |
    sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)
}

unpack_packages
complete_system
drop_unread
unpack_bundle
check_needs
chmod -R u+rwX,go+rX,go-w,a-s "$out"
chmod 1777 "$system/tmp" "$system/var/tmp"
