#!/bin/bash
# The provided jobs in a real Slurm of two nodes on this machine, on the CPU backend; for `make check-slurm`.
#   check.sh [CASE...]    BUILD: the build folder; KEEP=1 leaves the test's folder
# Code 77: not possible here (no root, no Debian or Ubuntu).
# shellcheck disable=SC2034,SC2154  # used and set in the parts
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/annulus-slurm-XXXXXX")
wanted=("$@")
chmod 755 "$work"
# shellcheck source=lib.sh
. "$here/lib.sh"
# shellcheck source=cases.sh
. "$here/cases.sh"
# shellcheck source=modules.sh
. "$here/modules.sh"

# What the Makefile sets to keep Open MPI from Slurm is wrong here.
unset OMPI_MCA_ras OMPI_MCA_plm OMPI_MCA_rmaps_base_oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none

tidy() {
  if [ -n "${KEEP:-}" ]; then cp -r "$work/slurm/log" "$work/log"; fi
  "$here/cluster.sh" down "$work/slurm" >/dev/null 2>&1
  [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap tidy EXIT
"$here/cluster.sh" up "$work/slurm" || exit
eval "$("$here/cluster.sh" env "$work/slurm")"
mkdir -p "$work/needed/needed"  # a module that ours was built with, as it were
printf '#%%Module1.0\nsetenv NEEDED yes\n' >"$work/needed/needed/1.0"
MODULES=needed/1.0 "$top/modules/install.sh" "$top/${BUILD:-build}" "$work/apps" >/dev/null || exit 1
export ANNULUS_HOME=$work/apps PATH=$work/apps/bin:$PATH
jobs=$ANNULUS_HOME/share/annulus/slurm
cd "$work" || exit 1

# Text enough for all steps, and steps long enough to be met by signals.
for _ in $(seq 200); do cat "$jobs/common.sh" "$jobs/README.md"; done >"$work/text.txt"
cat >"$work/pin.sh" <<'SH'
#!/bin/sh
# The nodes share this machine's processors: each rank takes one, and as many threads as it has processors.
exec taskset -c $((SLURM_PROCID % $(nproc))) "$@"
SH
chmod +x "$work/pin.sh"
count=80
size=(--train.steps "$count" --data.sequence 1024)

for case in all_files straight staggered time_limit one_rank moved_end cancelled array_element two_submissions \
  scontrol_requeue killed_rank node_loss slurmd_killed suspended two_idle_lives failed_start mpirun_and_guard wrong_config \
  other_jobs lua_module tcl_module; do
  check $case
done
echo "$failures failures, $skipped skipped, $SECONDS s"
[ "$failures" = 0 ]
