#!/bin/sh
# bind.sh PROGRAM ARGUMENTS...: one rank, on the processors next to its GPU. All GPUs of the node stay visible
# (NCCL needs to see them); the program takes the one of its local rank, and so does this. Without GPUs, or
# where the topology is not known, the rank runs wherever the scheduler put it.
trap '' USR1  # the program has its own handler; until then the signal must not kill
rank=${SLURM_LOCALID:-0}
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-$rank}
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ] && command -v nvidia-smi >/dev/null 2>&1; then
  count=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | wc -l)
  gpu=$(echo "$CUDA_VISIBLE_DEVICES" | tr ',' '\n' | sed -n "$((rank % count + 1))p")
  # 00000000:1B:00.0 here is 0000:1b:00.0 in the kernel's tree.
  bus=$(nvidia-smi -i "$gpu" --query-gpu=pci.bus_id --format=csv,noheader 2>/dev/null | tr 'A-F' 'a-f' | sed 's/^0000//')
  numa=$(cat "/sys/bus/pci/devices/$bus/numa_node" 2>/dev/null)
  cpus=$(cat "/sys/devices/system/node/node$numa/cpulist" 2>/dev/null)
  if [ -n "$cpus" ] && taskset -c "$cpus" true 2>/dev/null; then exec taskset -c "$cpus" "$@"; fi
fi
exec "$@"
