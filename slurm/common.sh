# shellcheck shell=bash
# What all jobs of this folder share: a .slurm file sources it and calls one function.
#   annulus_train NAME.ini "$@"    trains; goes on in further lives of the job until the run is done
#   annulus_eval NAME.ini "$@"     evaluates
#   annulus_import FROM TO         imports
# "$@" is what stood behind the .slurm file: first, if wanted, an .ini file that takes NAME.ini's place, then
# flags (--section.key value). NAME.ini in the folder of the submission comes before the installed one.
# Nothing here knows a site: that is in site.sh, beside this file or where ANNULUS_SITE says.

jobs_folder=$(dirname "${BASH_SOURCE[0]}")
# In an array the plain id of the last element is that of the whole array.
job=${SLURM_JOB_ID:?submit this file with sbatch}
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
life=${SLURM_RESTART_COUNT:-0}

say() { echo "job $job: $*"; }

# ---- What the ranks are started with ----

# srun with a PMI that both Slurm and Open MPI have, else Open MPI's own mpirun.
find_launcher() {
  if [ -n "${ANNULUS_MPI:-}" ]; then
    from="site.sh says so"
    return
  fi
  local offered built
  offered=$(srun --mpi=list 2>&1)
  built=$(ompi_info --parsable 2>/dev/null | sed -n 's/^mca:pmix:\([a-z0-9]*\):version.*/\1/p' | sort -u)
  offered=$(echo "$offered" | grep -ow 'pmix\|pmi2' | sort -u)
  from="Slurm offers ${offered//$'\n'/, }; Open MPI has ${built//$'\n'/, }"
  # Open MPI 5 names no component: it always has PMIx.
  if echo "$offered" | grep -qw pmix && { [ -z "$built" ] || echo "$built" | grep -q '^ext\|^pmix'; }; then
    ANNULUS_MPI=pmix
  elif echo "$offered" | grep -qw pmi2 && echo "$built" | grep -qx 's2'; then
    ANNULUS_MPI=pmi2
  else
    ANNULUS_MPI=mpirun
  fi
}

# The end of the allocation in seconds since 1970, from KNOWN or asked of Slurm; nothing when there is none.
allocation_end() {
  local end=${1:-}
  if [ -z "$end" ]; then end=$(date -d "$(squeue -h -j "$job" -o %e)" +%s 2>/dev/null); fi
  if [ -n "$end" ] && [ "$end" -lt $(($(date +%s) + 365 * 86400)) ]; then echo $((end - ANNULUS_MARGIN)); fi
}

prepare() {
  local file=${ANNULUS_SITE:-$jobs_folder/site.sh}
  # shellcheck source=/dev/null
  if [ -r "$file" ]; then . "$file"; fi
  : "${ANNULUS_MARGIN:=0}" "${ANNULUS_ASK:=600}" "${ANNULUS_WAIT:=60}" "${ANNULUS_WRAPPER:=$jobs_folder/bind.sh}"
  if ! command -v annulus >/dev/null; then
    say "annulus is not in PATH: load its module before sbatch, or in $file"
    exit 4
  fi
  find_launcher
  if [ "$ANNULUS_MPI" = mpirun ]; then
    launch=(mpirun --bind-to none "$ANNULUS_WRAPPER" annulus)
  else
    # kill-on-bad-exit=1 would take the exit code from ranks that leave a moment after the first; with --wait they
    # have a minute, and the others of a rank that was killed do not wait for it any longer.
    launch=(srun "--mpi=$ANNULUS_MPI" --kill-on-bad-exit=0 "--wait=$ANNULUS_WAIT" --cpu-bind=none "$ANNULUS_WRAPPER" annulus)
  fi
  if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
  export CUDA_DEVICE_ORDER=PCI_BUS_ID  # bind.sh and the program number GPUs alike
  say "life $life, ${SLURM_NTASKS:-1} ranks on ${SLURM_JOB_NODELIST:-$(hostname)}, started by $ANNULUS_MPI ($from)"
  say "$(annulus --version) in $(dirname "$(command -v annulus)"); modules ${LOADEDMODULES:-none}"
}

# has FLAG ARGUMENTS...: whether the flag is among them.
has() {
  local flag=$1 a
  shift
  for a in "$@"; do
    if [ "$a" = "$flag" ] || [ "${a#"$flag"=}" != "$a" ]; then return 0; fi
  done
  return 1
}

# choose NAME.ini ARGUMENTS...: sets `ini` and `flags`.
choose() {
  local name=$1
  shift
  if [ "${1:-}" != "${1%.ini}" ]; then
    ini=$1
    shift
  elif [ -r "${SLURM_SUBMIT_DIR:-.}/$name" ]; then
    ini=${SLURM_SUBMIT_DIR:-.}/$name
  else
    ini=$jobs_folder/$name
  fi
  flags=("$@")
}

# ---- Running them ----

ranks='' woken='' early=''

# A TERM to srun would kill the ranks unsaved; USR1 it passes on, and they save.
on_signal() {
  woken=yes
  say "the batch script got SIG$1"
  if [ -n "$ranks" ]; then kill -USR1 "$ranks" 2>/dev/null; else early=yes; fi
}

# run_ranks ARGUMENTS...: starts the ranks, waits for them through signals, sets `code`.
run_ranks() {
  local got
  "${launch[@]}" "$@" &
  ranks=$!
  code=127
  while :; do
    woken=''
    wait "$ranks"
    got=$?
    # 127: a signal came just after the end, which was seen before.
    if [ $got != 127 ]; then code=$got; fi
    if [ -z "$woken" ] || [ $got = 127 ]; then break; fi
  done
  ranks=''
}

# The end may be moved while the job runs: asked again every ten minutes, and the run reads it in its folder.
follow_end() {
  local known=$1 end nap
  trap 'kill "$nap" 2>/dev/null; exit' TERM
  while kill -0 $$ 2>/dev/null; do
    sleep "$ANNULUS_ASK" &
    nap=$!
    wait "$nap"
    end=$(allocation_end)
    if [ -z "$end" ] || [ "$end" = "$known" ] || [ ! -d "$run" ]; then continue; fi
    known=$end
    if echo "$end" >"$run/until.new" && mv "$run/until.new" "$run/until"; then
      say "the allocation's end has moved: stops with a checkpoint before $(date -d "@$end" '+%F %T')"
    fi
  done
}

# field NAME: of the run's status.json.
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\).*/\1/p" "$run/status.json" 2>/dev/null; }

# The run has begun in this very life: status.json is ours.
begun() { [ "$(field job)" = "$SLURM_JOB_ID" ] && [ "$(field restart_count)" = "$life" ]; }

# Whether the life before this one, of the same job, ended without a step.
idle_before() {
  [ "$(field job)" = "$SLURM_JOB_ID" ] && [ "$(field restart_count)" = $((life - 1)) ] &&
    [ "$(field step)" = "$(field first_step)" ]
}

# What becomes of the job when its ranks have ended with `code`: requeued, or the exit code.
conclude() {
  local reason step state
  if ! begun; then
    say "ended with code $code before the run had begun; not requeued"
    exit "$code"
  fi
  reason=$(field reason) step=$(field step)
  say "ended with code $code at step $step of $(field total_steps): $reason"
  case $reason in
    "time limit" | SIGUSR1) ;;
    *) exit "$code" ;;
  esac
  state=$(squeue -h -j "$job" -o %T 2>&1)
  if [ "$state" != RUNNING ]; then
    say "not requeued: Slurm says $state"
    exit "$code"
  fi
  if [ "$step" = "$(field first_step)" ]; then
    if [ "$idle" = yes ]; then
      say "not requeued: two lives without a step; give the job more time, or see why it is stopped"
      exit 1
    fi
    say "this life completed no step; one more is tried"
  fi
  say "requeued; goes on from the checkpoint"
  trap - USR1 TERM  # Slurm now ends this script
  if scontrol requeue "$job"; then sleep 120; fi
  say "could not be requeued: submit it again, it goes on from the checkpoint"
  exit 75
}

# Starts the ranks, once or twice more when they end before the run has begun: PMIx can crash there, before
# a line of ours has run. What it leaves of the step, srun ends a minute later (its --wait).
start() {
  local tries=3 begin
  while :; do
    begin=$SECONDS
    run_ranks train "$ini" "${flags[@]}"
    case $code in 0 | 2 | 3 | 4 | 75) return ;; esac
    tries=$((tries - 1))
    if begun || [ -n "$woken" ] || [ $tries = 0 ] || [ $((SECONDS - begin)) -ge 120 ]; then return; fi
    say "RETRY: the ranks ended with code $code before the run had begun; they are started once more"
  done
}

annulus_train() {
  local end idle=no
  trap 'on_signal USR1' USR1
  trap 'on_signal TERM' TERM
  prepare
  choose "$@"
  # Outside srun, by one process: a config that is wrong ends here.
  run=$(annulus train "$ini" "${flags[@]}" --print-config) || exit
  run=$(echo "$run" | sed -n '/^\[run\]/,/^\[/s/^dir *= *//p')
  if idle_before; then idle=yes; fi
  end=$(allocation_end "${SLURM_JOB_END_TIME:-}")
  if [ -n "$end" ] && ! has --run.until "${flags[@]}"; then
    flags+=(--run.until "$end")
    follow_end "$end" &
    # Nothing of the job may outlive its script, whichever way that ends.
    # shellcheck disable=SC2064 # this process, by number
    trap "kill $! 2>/dev/null" EXIT
    say "stops with a checkpoint before $(date -d "@$end" '+%F %T')"
  fi
  say "$ini, run folder $run"
  if [ -n "$early" ]; then
    say "stopped before it began"
    exit 75
  fi
  start
  conclude
}

annulus_eval() {
  prepare
  choose "$@"
  run_ranks eval "$ini" "${flags[@]}"
  exit "$code"
}

annulus_import() {
  prepare
  run_ranks import "$@"
  exit "$code"
}
