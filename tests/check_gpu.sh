#!/bin/bash
# usage: check_gpu.sh [FOLDER_OF_annulus_tests]
# All tests on a machine with a GPU, in one process and with 2, 3 and 4 ranks that share what GPUs there are.
# The last line is the record. (Style is judged where the sources are.)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tests=${1:-$here}/annulus_tests
[ -x "$tests" ] || { echo "check-gpu: there is no $tests" >&2; exit 4; }

gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -1)
[ -n "$gpu" ] || { echo "check-gpu: no GPU answers nvidia-smi, so nothing was tested" >&2; exit 4; }

export ANNULUS_TEST_DEVICE=cuda  # whole models too, not the operations alone
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_base_warn_component_unused=0
# NCCL takes ranks of one GPU only when it believes them on different hosts, joined by sockets.
rank_env='export NCCL_HOSTID=annulus-$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo; exec "$0" "$@"'

failed=()
start=$SECONDS
"$tests" --run_test='!style:!@ranks2:!@ranks3:!@ranks4' --log_level=warning --report_level=short || failed+=("1 rank")
for ranks in 2 3 4; do
  echo "check-gpu: $ranks ranks, after $((SECONDS - start)) s"
  mpirun -n $ranks bash -c "$rank_env" "$tests" --run_test="@ranks$ranks" --log_level=error --report_level=short ||
    failed+=("$ranks ranks")
done

if [ ${#failed[@]} -eq 0 ]; then
  echo "check-gpu: passed on $gpu in $((SECONDS - start)) s"
else
  (IFS=,; echo "check-gpu: FAILED with ${failed[*]} on $gpu in $((SECONDS - start)) s")
  exit 1
fi
