#!/bin/bash
# usage: bench/bundle.sh BUILD_FOLDER BUNDLE_FOLDER
# Packs the programs that were built, and every library they need, into one folder that runs wherever it is put.
# What belongs to the machine stays out: glibc and the compiler's run-time, MPI with its own libraries, the CUDA
# toolkit, NCCL, cuDNN and the driver. A GPU node needs those (Open MPI 4.1) and nothing else.
set -euo pipefail
build=$1 bundle=$2
here=$(cd "$(dirname "$0")/.." && pwd)

# File names of libraries that are the machine's own.
machine='^(ld-linux|lib(c|m|dl|rt|pthread|resolv|util|nsl|anl|stdc\+\+|gcc_s|gomp)\.so'
machine+='|libmpi|libopen-|liboshmem|libhwloc|libevent|libpmix|libprrte|libucp|libucs|libuct|libucm|libfabric|libpsm|libibverbs|librdmacm|libmlx|libefa|libmunge|libnl-|libnuma'
machine+='|libcuda\.so|libcudart|libcublas|libnvrtc|libnvJitLink|libnccl|libcudnn|libnvidia)'

command -v patchelf > /dev/null || { echo "bundle: patchelf is missing: apt-get install patchelf" >&2; exit 4; }

rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/share/annulus/tests/data" "$bundle/share/annulus/rates"

programs=()
for program in annulus tests/annulus_tests bench/annulus_bench; do
  if [ -x "$build/$program" ]; then
    install -m 755 "$build/$program" "$bundle/bin/"
    programs+=("$bundle/bin/$(basename "$program")")
  else
    echo "bundle: $build/$program was not built, left out" >&2
  fi
done
[ ${#programs[@]} -gt 0 ] || { echo "bundle: nothing was built in $build" >&2; exit 4; }
if [ -f "$build/libannulus_cuda.so" ]; then
  install -m 644 "$build/libannulus_cuda.so" "$bundle/lib/"
fi

# Each file's own needs, one after the other: what a machine library needs in turn is the machine's too, so ldd's
# whole list would be too long.
queue=("${programs[@]}")
if [ -f "$bundle/lib/libannulus_cuda.so" ]; then queue+=("$bundle/lib/libannulus_cuda.so"); fi
while [ ${#queue[@]} -gt 0 ]; do
  file=${queue[0]}
  queue=("${queue[@]:1}")
  found=$(ldd "$file")
  for name in $(patchelf --print-needed "$file"); do
    if [[ $name =~ $machine ]] || [ -e "$bundle/lib/$name" ]; then continue; fi
    path=$(awk -v name="$name" '$1 == name && $3 ~ /^\// { print $3 }' <<< "$found")
    [ -n "$path" ] || { echo "bundle: $file needs $name, which this machine lacks" >&2; exit 4; }
    install -m 644 "$(readlink -f "$path")" "$bundle/lib/$name"
    queue+=("$path")
  done
done

strip --strip-unneeded "$bundle"/bin/annulus* "$bundle"/lib/*
for program in "${programs[@]}"; do patchelf --set-rpath '$ORIGIN/../lib' "$program"; done
for library in "$bundle"/lib/*; do
  # The backend also looks where the toolkit usually is; modules and LD_LIBRARY_PATH come before that.
  if [ "$(basename "$library")" = libannulus_cuda.so ]; then
    patchelf --set-rpath '$ORIGIN:/usr/local/cuda/lib64' "$library"
  else
    patchelf --set-rpath '$ORIGIN' "$library"
  fi
done

cp -r "$here/tests/oracle" "$bundle/share/annulus/tests/"
cp -r "$here/tests/data/chat" "$bundle/share/annulus/tests/data/"
cp "$here"/bench/results/*.rates "$bundle/share/annulus/rates/"
# Jobs to measure, by the names that they have here: for whoever stands in the bundle, and for the tests, which look
# beside their other data.
for place in "$bundle/bench" "$bundle/share/annulus/bench"; do
  mkdir -p "$place/results"
  cp -r "$here"/bench/models "$here"/bench/*.ini "$place/"
  cp "$here"/bench/results/*.rates "$place/results/"
done
install -m 755 "$here/bench/multi_gpu" "$here/bench/context_sweep" "$bundle/bench/"
install -m 755 "$here/tests/check_gpu.sh" "$bundle/bin/"

packed=$(tar -C "$bundle" -cz . | wc -c)
echo "$bundle: $(ls "$bundle/lib" | wc -l) libraries, $(du -sm "$bundle" | cut -f1) MB, $((packed / 1000000)) MB packed"
