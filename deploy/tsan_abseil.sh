#!/usr/bin/env bash
# Builds the locks of Debian's Abseil with ThreadSanitizer into the cache and prints their folder.
# Why: absl::Mutex waits on futexes by itself, so ThreadSanitizer sees nothing of a lock inside the
# packaged library and reports correct code. With these libraries first in LD_LIBRARY_PATH, our code
# and gRPC share instrumented locks. The packaged sources are used, so the ABI is the same. The rest
# of Abseil stays as packaged: gRPC calls it with data that its own unseen atomics order.
set -euo pipefail
# shellcheck source=deploy/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

version="$(dpkg-query -W -f='${Version}' libabsl-dev)"
libraries="$WEFT_CACHE/tsan-locks/$version"
if [ ! -f "$libraries/done" ]; then
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial" "$libraries"
  # Package lists of their own: the system's configuration stays as it is.
  apt-get indextargets --format 'deb-src $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    sort -u >"$work/sources.list"
  apt_get() {
    apt-get -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
      -o Dir::State::Lists="$work/lists" -o APT::Sandbox::User=root "$@" >&2
  }
  apt_get update
  (cd "$work" && apt_get source --download-only "abseil=$version")
  tar -C "$work" -xf "$work"/abseil_*.orig.tar.gz
  cd "$work"/abseil*/
  tar -xf "$work"/abseil_*.debian.tar.xz
  grep -v '^#' debian/patches/series | while read -r name; do
    patch -s -p1 <"debian/patches/$name"
  done
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_SHARED_LIBS=ON \
    -DCMAKE_CXX_STANDARD=14 -DABSL_PROPAGATE_CXX_STD=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 \
    -DCMAKE_CXX_FLAGS="-fsanitize=thread -O1 -g1" -DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=thread \
    >&2 2>/dev/null
  cmake --build build --target synchronization >&2
  for name in synchronization graphcycles_internal base spinlock_wait; do
    find build -name "libabsl_$name.so.*" -exec cp -a {} "$libraries" \;
  done
  touch "$libraries/done"
fi
echo "$libraries"
