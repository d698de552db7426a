# shellcheck shell=bash disable=SC2034,SC2154,SC2002
# For check.sh: jobs are submitted as users do, watched through Slurm's own commands, and ended without waiting
# longer than Slurm makes one wait. work: the test's folder.
failures=0 skipped=0

bad() {
  echo "  FAILED: $*"
  failures=$((failures + 1))
}

# eventually SECONDS WHAT COMMAND...: until the command succeeds.
eventually() {
  local left=$(($1 * 5)) what=$2
  shift 2
  until "$@"; do
    left=$((left - 1))
    if [ $left -lt 0 ]; then
      bad "not within its time: $what"
      return 1
    fi
    sleep 0.2
  done
}

# job_field ID NAME: of scontrol's record, also of an array's element (ID_1) and after the end.
job_field() { scontrol show job -o "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
is_state() { [[ $(job_field "$1" JobState) =~ ^($2)$ ]]; }

# status RUN KEY: of its status.json.
status() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" "$1/status.json" 2>/dev/null; }
steps() { cat "$1/metrics.jsonl" 2>/dev/null | wc -l; }
has_steps() { [ "$(steps "$1")" -ge "$2" ]; }
says() { grep -qE -- "$2" "$work/$1.out"; }

# submit NAME SBATCH_FLAGS... -- FLAGS...: the smoke job on two nodes, its run folder $work/NAME and its log
# $work/NAME.out; sets `id` and `run`.
submit() {
  local name=$1 slurm_flags=()
  shift
  while [ "$1" != -- ]; do
    slurm_flags+=("$1")
    shift
  done
  shift
  run=$work/$name
  id=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --output="$work/$name.out" "${slurm_flags[@]}" \
    "$jobs/cpu-smoke.slurm" --data.train "$work/text.txt" --run.dir "$run" "${size[@]}" "$@")
}

started() { eventually 60 "$run at step ${1:-5}" has_steps "$run" "${1:-5}"; }

# next_life ID LIVES: waits for the requeue, and spares the two minutes that Slurm holds a requeued job.
next_life() {
  eventually "${3:-40}" "job $1 requeued" requeued "$1" "$2" || return 1
  sleep 2  # the nodes refuse what is started in the second in which it was ended
  scontrol update "jobid=$1" StartTime=now 2>/dev/null || true
}
requeued() { [ "$(job_field "$1" Restarts)" = "$2" ] && is_state "$1" PENDING; }

ended() { # ID STATE CODE [SECONDS]
  eventually "${4:-90}" "the end of job $1" is_state "$1" 'COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL' || return 1
  is_state "$1" "$2" || bad "job $1 is $(job_field "$1" JobState), not $2"
  [ "$(job_field "$1" ExitCode)" = "$3" ] || bad "job $1 ended with $(job_field "$1" ExitCode), not $3"
}

# same_curve RUN [STEPS]: all steps, each once and in order, those that the uninterrupted run has with its loss to
# the last digit.
curve() { sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
same_curve() {
  local steps=${2:-$count}
  cmp -s <(curve "$1" | cut -d' ' -f1) <(seq "$steps") || bad "$1 has not each of $steps steps once"
  cmp -s <(curve "$1" | head -n "$count") <(curve "$work/straight") ||
    bad "the curve differs from the uninterrupted run's: $(diff <(curve "$work/straight") <(curve "$1") | head -n 3)"
}

# The number of the process that is rank RANK of the job.
rank_of() { # ID RANK
  local environ
  for environ in /proc/[0-9]*/environ; do
    if [ "$(cat "${environ%/environ}/comm" 2>/dev/null)" = annulus ] &&
      tr '\0' '\n' <"$environ" 2>/dev/null | grep -qx "SLURM_JOB_ID=$1" &&
      tr '\0' '\n' <"$environ" 2>/dev/null | grep -qx "SLURM_PROCID=$2"; then
      basename "${environ%/environ}"
      return
    fi
  done
}

# site NAME LINES...: a site file for the jobs submitted from here on.
site() {
  printf '%s\n' "ANNULUS_WRAPPER=$work/pin.sh" "${@:2}" >"$work/$1.site"
  export ANNULUS_SITE=$work/$1.site
}

# check NAME FUNCTION: runs it, says how long it took, and shows the job's log when it failed.
check() {
  local before=$failures begin=$SECONDS
  if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $1 "* ]]; then return; fi
  site usual
  id='' run=''
  "$1"
  if [ $failures = "$before" ]; then
    echo "ok $1 ($((SECONDS - begin)) s)"
  else
    echo "FAILED $1 ($((SECONDS - begin)) s)"
    if [ -n "$run" ]; then tail -n 25 "$run.out" 2>/dev/null | sed 's/^/  | /'; fi
    if [ -n "$id" ]; then
      scontrol show job "$id" 2>/dev/null | grep -o 'JobState.*' | sed 's/^/  | /'
      sinfo -N -O nodelist,statelong,cpusstate,allocmem | sed 's/^/  | /'
      scancel "$id" 2>/dev/null
    fi
  fi
}
