#!/bin/sh
# Gets ready to build: packages where the distribution has them and we may install, then the configuration.
#   .ci/setup.sh         packages and cmake (CMAKE_ARGS: options of yours, -DANNULUS_CUDA=OFF say)
#   .ci/setup.sh venv    .venv with the Python clients that some tests use
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
packages="g++ make cmake ninja-build openmpi-bin libopenmpi-dev libhdf5-openmpi-dev libboost-program-options-dev
libboost-test-dev libopenblas-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev"
python_packages="python3 python3-venv"

missing_of() {
  for p in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || printf '%s ' "$p"
  done
}

# Installs what is missing; fails when that is not possible here.
install() {
  command -v apt-get >/dev/null 2>&1 || return 1
  missing=$(missing_of "$@")
  [ -n "$missing" ] || return 0
  [ "$(id -u)" = 0 ] || return 1
  echo "installing: $missing"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null; } || return 1
}

if [ "${1:-}" = venv ]; then
  # Each step may be impossible here (no Python, no package index): the tests then say that they are skipped.
  if [ ! -e .venv/ready ]; then
    install $python_packages || true
    if python3 -m venv .venv 2>/dev/null &&
      .venv/bin/pip install -q --disable-pip-version-check h5py safetensors numpy tokenizers; then
      touch .venv/ready
    else
      echo "no Python clients (python3-venv or the package index is not reachable): their tests will be skipped"
    fi
  fi
  exit 0
fi

# A configured build needs nothing more.
[ ! -e "$build/build.ninja" ] || exit 0
# shellcheck disable=SC2086
installed=yes && install $packages || installed=no
if ! command -v cmake >/dev/null 2>&1 || ! cmake -S . -B "$build" -G Ninja ${CMAKE_ARGS:-}; then
  rm -f "$build/build.ninja"
  echo
  if [ $installed = no ]; then
    echo "The build needs these packages (Debian 12, Ubuntu 24.04); as root:"
    echo "  apt-get install $(echo $packages)"
    echo "or, on a cluster, the site's modules of: a C++20 compiler (GCC 12 or later), CMake 3.22 and Ninja,"
    echo "  Open MPI 4.1, HDF5 built with that MPI, Boost (program_options, test), OpenBLAS, nlohmann-json, PCRE2,"
    echo "  utf8proc, zstd; for example: module load gcc cmake ninja openmpi hdf5 boost openblas"
  fi
  exit 1
fi
