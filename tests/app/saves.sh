#!/bin/sh
# A save that fails, in every phase and by every rank's fault, leaves the checkpoint before it whole and in use.
. "$(dirname "$0")/common.sh"

ini run 2
expect 0 'saved .*step-000002.h5' 2 train "$work/run.ini"
sum=$(cksum <"$work/run/checkpoints/step-000002.h5")

untouched() {
  [ "$(cksum <"$work/run/checkpoints/step-000002.h5")" = "$sum" ] || bad "$1 damaged the checkpoint before it"
  [ ! -e "$work/run/checkpoints/step-000004.h5" ] || bad "$1 left a checkpoint that it did not finish"
  [ ! -e "$work/run/lock" ] || bad "$1 left the lock"
}

for phase in save create reserve write digest mark rename; do
  for rank in 0 1; do
    case $phase:$rank in create:1 | mark:1 | rename:1) continue ;; esac  # rank 0 alone does these
    expect 4 'space|disk' 2 train "$work/run.ini" --train.steps 4 --debug.fail $phase:$rank:enospc
    untouched "$phase on rank $rank"
    [ ! -e "$work/run/checkpoints/step-000004.h5.partial" ] || bad "$phase on rank $rank left a partial file"
  done
done
grep -q '"reason": "error: ' "$work/run/status.json" || bad "status.json does not name the error"

# The same beside the training: steps go on, and the run ends when the save has failed.
for phase in create write rename; do
  expect 4 'space|disk' 2 train "$work/run.ini" --train.steps 5 --checkpoint.every 3 --checkpoint.background true \
    --debug.fail $phase:0:enospc
  untouched "$phase in the background"
  [ ! -e "$work/run/checkpoints/step-000003.h5.partial" ] || bad "$phase in the background left a partial file"
done

# kill -9 of one rank in the middle of a save: the launcher ends the job, the next life says what it takes.
got=0
on 2 train "$work/run.ini" --train.steps 4 --debug.fail write:1:kill >"$work/out" 2>"$work/err" || got=$?
[ $got != 0 ] && [ $got != 124 ] || bad "a killed rank ended with $got"
expect 0 'resumed from .*step-000002.h5' 2 train "$work/run.ini" --train.steps 4
grep -q 'step-000004.h5.partial' "$work/out" || bad "nothing is said about the unfinished save"
[ "$(cut -d, -f1 "$work/run/metrics.jsonl" | tr -d '\n')" = '{"step":1{"step":2{"step":3{"step":4' ] ||
  bad "metrics.jsonl has not each step once"

# A step that one rank dies in ends the job too.
got=0
on 2 train "$work/run.ini" --train.steps 6 --debug.fail step:1:kill >"$work/out" 2>"$work/err" || got=$?
[ $got != 0 ] && [ $got != 124 ] || bad "a rank killed in a step ended with $got"

# A damaged checkpoint is passed over, and said.
printf 'x' | dd of="$work/run/checkpoints/step-000004.h5" bs=1 seek=9000 conv=notrunc 2>/dev/null
expect 0 'resumed from .*step-000002.h5' 2 train "$work/run.ini" --train.steps 4
grep -q 'step-000004.h5' "$work/out" || bad "nothing is said about the damaged checkpoint"
finish
