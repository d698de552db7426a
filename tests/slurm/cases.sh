# shellcheck shell=bash disable=SC2154
# The cases of check.sh, each a function. `id` and `run` are those of the last job submitted.

# Slurm takes the header of every file; their .ini files have known keys only.
all_files() {
  local file ini
  for file in "$jobs"/*.slurm; do
    sbatch --test-only "$file" x y 2>"$work/all.err" || grep -qi 'node count\|not available' "$work/all.err" ||
      bad "$(basename "$file"): $(cat "$work/all.err")"
  done
  for ini in "$jobs"/*.ini; do
    annulus train "$ini" --print-config >"$work/all.out" 2>&1 ||
      grep -q 'is not given, but\|not supported by this build' "$work/all.out" ||
      bad "$(basename "$ini"): $(cat "$work/all.out")"
  done
}

straight() {
  submit straight -- || return
  straight_id=$id
  ended "$id" COMPLETED 0:0
  [ "$(grep -c '^rank . on smoke[ab]' "$run/facts.txt")" = 2 ] || bad "facts.txt does not name two hosts"
  [ "$(curve "$run" | cut -d ' ' -f 1 | paste -sd ' ')" = "$(seq -s ' ' "$count")" ] || bad "not every step once"
  [ "$(status "$run" reason)" = "done" ] || bad "status.json says $(status "$run" reason)"
  [ ! -e "$run/lock" ] || bad "the lock is left"
}

# Ranks that leave seconds apart: the code is still theirs.
staggered() {
  cat >"$work/late.sh" <<'SH'
#!/bin/sh
trap '' USR1
"${0%/*}/pin.sh" "$@"
code=$?
sleep $((SLURM_PROCID * 2))
exit $code
SH
  chmod +x "$work/late.sh"
  site late "ANNULUS_WRAPPER=$work/late.sh"
  submit late -- || return
  started || return
  scancel --signal=USR1 --batch "$id"
  eventually 40 "job $id requeued" requeued "$id" 1
  says late 'ended with code 75 at step [0-9]+ of .*SIGUSR1' || bad "the code is not 75"
  scancel "$id"
}

# The program stops by itself before the limit; Slurm's limit cannot be shorter than a minute, so most of it is
# left to a slow epilog.
time_limit() {
  local lives=0 start size=(--train.steps $((3 * count)) --data.sequence 1024)
  # A run three times as long as the uninterrupted one, whose steps it begins with, so that a machine that is
  # faster or slower by then does not matter: what that one took to start, and three quarters of its training.
  start=$(date -d "$(job_field "$straight_id" StartTime)" +%s)
  site limit "ANNULUS_MARGIN=$(awk -v start="$start" -v began="$(stat -c %Y "$work/straight/facts.txt")" '
    { match($0, /"step_seconds":[0-9.]+/); train += substr($0, RSTART + 15, RLENGTH - 15) }
    END { printf "%d", 60 - 1.5 * (began - start) - 0.75 * train - 1.5 }' "$work/straight/metrics.jsonl")"
  submit limit --time=1 --signal=B:USR1@0 -- || return
  until ! eventually 90 "the end of a life" life_over "$id" $((lives + 1)) || is_state "$id" 'COMPLETED|FAILED|TIMEOUT'; do
    lives=$((lives + 1))
    next_life "$id" $lives || break
  done
  ended "$id" COMPLETED 0:0
  [ $lives -ge 1 ] || bad "it was not stopped"
  says limit 'time limit: saving the state' || bad "no stop by the time limit"
  says limit "resumed from .* at step" || bad "it did not resume"
  same_curve "$run" $((3 * count))
}

life_over() { requeued "$1" "$2" || is_state "$1" 'COMPLETED|FAILED|TIMEOUT'; }

one_rank() {
  submit one -- || return
  started || return
  kill -USR1 "$(rank_of "$id" 1)"
  next_life "$id" 1 && ended "$id" COMPLETED 0:0
  [ "$(status "$run" restart_count)" = 1 ] || bad "status.json has restart $(status "$run" restart_count)"
  same_curve "$run"
}

# The end of the allocation is moved while the job runs: it stops before the new one.
moved_end() {
  site asks "ANNULUS_ASK=1"
  submit moved -- || return
  started || return
  scontrol update JobId="$id" TimeLimit=+1 || bad "the time limit could not be moved"
  eventually 30 "the new end" says moved "the allocation's end has moved"
  says moved "the allocation's end is now [0-9]+" || eventually 20 "the run's word on it" says moved "the allocation's end is now [0-9]+"
  ended "$id" COMPLETED 0:0
  same_curve "$run"
}

cancelled() {
  submit cancelled -- || return
  started || return
  scancel "$id"
  eventually 40 "the end of job $id" is_state "$id" CANCELLED
  eventually 20 "the end of its processes" no_rank_of "$id"
  [ "$(status "$run" reason)" = SIGTERM ] || bad "status.json says $(status "$run" reason)"
  [ -s "$run/checkpoints/step-$(printf %06d "$(status "$run" step)").h5" ] || bad "no checkpoint"
  [ "$(steps "$run")" = "$(status "$run" step)" ] || bad "the checkpoint is not the last step's"
  sleep 2
  is_state "$id" CANCELLED || bad "it came back"
}
no_rank_of() { [ -z "$(rank_of "$1" 0)$(rank_of "$1" 1)" ]; }

# The last element's plain id is that of the whole array: it must requeue itself alone.
array_element() {
  local flags=(--device.kind cpu --memory.offload none --data.tokenizer bytes --parallel.context 1)
  run=$work/array
  id=$(sbatch --parsable --array=0-1 --ntasks-per-node=1 --gpus-per-node=1 --mem=2G --output="$work/array-%a.out" \
    "$jobs/bench-sweep.slurm" --model.path "$jobs/smoke-model" --data.train "$work/text.txt" "${flags[@]}" "${size[@]}")
  eventually 60 "both elements at step 5" both_at 5 || return
  scancel --signal=USR1 --batch "${id}_1"
  next_life "${id}_1" 1
  ended "${id}_0" COMPLETED 0:0
  ended "${id}_1" COMPLETED 0:0
  [ "$(job_field "${id}_0" Restarts)" = 0 ] || bad "the other element was requeued too"
  [ "$(steps "$work/runs/bench-sweep-0")" = "$count" ] || bad "element 0 lacks steps"
  cmp -s <(curve "$work/runs/bench-sweep-0") <(curve "$work/runs/bench-sweep-1") || bad "the elements' curves differ"
}
both_at() { has_steps "$work/runs/bench-sweep-0" "$1" && has_steps "$work/runs/bench-sweep-1" "$1"; }

two_submissions() {
  local first
  submit two -- || return
  first=$id
  started || return
  id=$(sbatch --parsable --ntasks=2 --output="$work/second.out" "$jobs/cpu-smoke.slurm" \
    --data.train "$work/text.txt" --run.dir "$run" "${size[@]}")
  ended "$id" FAILED 4:0
  says second "the run folder is in use: .* \(job \"$first\"\)" || bad "no sentence about the lock"
  ended "$first" COMPLETED 0:0
  same_curve "$run"
}

scontrol_requeue() {
  submit requeue -- --checkpoint.every 5 || return
  started 12 || return
  scontrol requeue "$id"
  next_life "$id" 1 && ended "$id" COMPLETED 0:0
  says requeue 'resumed from .* at step' || bad "it began anew"
  same_curve "$run"
}

# A rank that is killed ends the job, and what it left behind stops nobody.
killed_rank() {
  site impatient "ANNULUS_WAIT=3"
  submit killed -- --checkpoint.every 5 || return
  started 12 || return
  kill -KILL "$(rank_of "$id" 0)"
  ended "$id" FAILED 137:0 40
  [ -e "$run/lock" ] || bad "there is no lock to take over"
  cp "$run.out" "$run.first"
  submit killed -- --checkpoint.every 5 && ended "$id" COMPLETED 0:0
  says killed 'took over a stale lock' || bad "no line about the lock"
  says killed 'resumed from .* at step' || bad "it began anew"
  same_curve "$run"
}

# A node that is lost takes its ranks with it.
node_loss() {
  submit lost -- --checkpoint.every 5 || return
  started 12 || return
  local gone
  gone=$(rank_of "$id" 1)
  scontrol update nodename=smokeb state=down reason=test
  kill -KILL "$gone" 2>/dev/null
  eventually 40 "job $id requeued" requeued "$id" 1 || return
  scontrol update nodename=smokeb state=resume 2>/dev/null  # unless it is back already
  next_life "$id" 1 && ended "$id" COMPLETED 0:0
  same_curve "$run"
}

slurmd_killed() {
  submit daemon -- || return
  started || return
  kill -KILL "$(cat "$work/slurm/run/slurmd.smokeb.pid")"
  sleep 2
  "$here/cluster.sh" node "$work/slurm" smokeb
  ended "$id" COMPLETED 0:0
  [ "$(job_field "$id" Restarts)" = 0 ] || bad "it was requeued"
  same_curve "$run"
}

# Suspended, as by a preemption, for longer than a stall may last.
suspended() {
  submit suspended -- --run.stall_seconds 4 || return
  started || return
  scontrol suspend "$id"
  local at
  sleep 1
  at=$(steps "$run")
  sleep 8
  [ "$(steps "$run")" = "$at" ] || bad "it went on"
  scontrol resume "$id"
  ended "$id" COMPLETED 0:0
  same_curve "$run"
}

two_idle_lives() {
  submit idle -- --run.until 1000 || return
  next_life "$id" 1 && ended "$id" FAILED 1:0
  says idle 'two lives without a step' || bad "no sentence about it"
}

failed_start() {
  cat >"$work/once.sh" <<SH
#!/bin/sh
mkdir "$work/failed.\$SLURM_PROCID" 2>/dev/null && exit 1
exec "$work/pin.sh" "\$@"
SH
  chmod +x "$work/once.sh"
  site once "ANNULUS_WRAPPER=$work/once.sh"
  submit failed -- || return
  ended "$id" COMPLETED 0:0
  says failed 'RETRY: the ranks ended with code 1' || bad "the retry is not visible"
}

# Without a PMI in common the site says mpirun. A plain srun without PMI stops, and does not run two trainings.
mpirun_and_guard() {
  site mpirun "ANNULUS_MPI=mpirun"
  submit mpirun -- || return
  started || return
  scancel --signal=USR1 --batch "$id"
  next_life "$id" 1 && ended "$id" COMPLETED 0:0
  same_curve "$run"
  ! timeout 60 srun --mpi=none -n 2 annulus train "$jobs/cpu-smoke.ini" --model.path "$jobs/smoke-model" \
    --data.train "$work/text.txt" --parallel.context 1 >"$work/plain.out" 2>&1 || bad "a plain srun was not refused"
  says plain 'Slurm started 2 tasks and MPI sees 1|PMI support' || bad "no sentence about it: $(tail -n 2 "$work/plain.out")"
  [ ! -e runs/cpu-smoke ] || bad "a plain srun began to train"
}

wrong_config() {
  submit wrong -- --optimizer.lrr 1 || return
  ended "$id" FAILED 2:0
  says wrong 'optimizer.lrr.*optimizer.lr' || bad "the nearest key is not named"
}

other_jobs() {
  id=$(sbatch --parsable --ntasks-per-node=2 --output="$work/import.out" "$jobs/import.slurm" \
    "$top/tests/oracle/qwen3/model" "$work/weights.h5")
  ended "$id" COMPLETED 0:0
  [ -s "$work/weights.h5" ] || bad "import wrote nothing"
  printf '%s\n' '[model]' "path = $jobs/smoke-model" 'init = random' '[data]' "eval = $work/text.txt" \
    'take = 1' 'tokenizer = bytes' 'sequence = 512' '[device]' 'kind = cpu' '[run]' "dir = $work/straight" >"$work/own.ini"
  id=$(sbatch --parsable --ntasks-per-node=1 --gpus-per-node=1 --output="$work/eval.out" "$jobs/eval.slurm" own.ini)
  ended "$id" COMPLETED 0:0
  says eval 'loss' || bad "eval says nothing"
}
