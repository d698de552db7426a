#!/bin/sh
# Stops: a signal to one rank, a second one during the save, the time limit, a stall.
. "$(dirname "$0")/common.sh"

stopped() {  # CODE REASON
  got=0
  wait $job || got=$?
  [ $got = "$1" ] || bad "$2: code $got, not $1"
  grep -q "\"reason\": \"$2\"" "$work/run/status.json" || bad "status.json does not say $2"
  [ -n "$(ls "$work/run/checkpoints")" ] || bad "$2: no checkpoint"
  [ ! -e "$work/run/lock" ] || bad "$2: the lock is left"
}

for signal in USR1 TERM; do
  ini run 100000
  rm -rf "$work/run"
  if start 3 "$work/run.ini"; then
    one=$(ranks_of $job | tail -n 1)
    kill -$signal "$one"
    kill -$signal "$one" 2>/dev/null  # a second one changes nothing
    stopped 75 SIG$signal
    # Goes on: the steps that were done are not done again.
    done_steps=$(wc -l <"$work/run/metrics.jsonl")
    expect 0 "resumed from .* at step $done_steps of" 2 train "$work/run.ini" --train.steps $((done_steps + 1))
    [ "$(wc -l <"$work/run/metrics.jsonl")" = $((done_steps + 1)) ] || bad "SIG$signal: lines after the resume"
  fi
done

# The time limit: enough time for a few steps and the save.
ini run 100000
rm -rf "$work/run"
expect 75 'time limit' 2 train "$work/run.ini" --run.until $(($(date +%s) + 8))
grep -q '"reason": "time limit"' "$work/run/status.json" || bad "status.json does not say time limit"
# The allocation ends earlier than the run was told: the job script writes it down.
rm -rf "$work/run"
if start 2 "$work/run.ini" --run.until $(($(date +%s) + 100000)); then
  echo $(($(date +%s) + 1)) >"$work/run/until"
  stopped 75 'time limit'
fi
# And later: a file of an earlier life says nothing.
echo 1000 >"$work/run/until"
expect 0 'resumed from' 2 train "$work/run.ini" --run.until $(($(date +%s) + 100000)) \
  --train.steps $(($(wc -l <"$work/run/metrics.jsonl") + 1))
# No time at all: stopped before the first step, with a checkpoint of the start.
rm -rf "$work/run"
expect 75 'time limit' 2 train "$work/run.ini" --run.until 1000
[ -e "$work/run/checkpoints/step-000000.h5" ] || bad "no checkpoint of the start"

# All ranks suspended for longer than a stall may last: they go on afterwards.
rm -rf "$work/run"
if start 2 "$work/run.ini" --run.stall_seconds 3; then
  all=$(ranks_of $job)
  kill -STOP $all
  sleep 5
  at=$(wc -l <"$work/run/metrics.jsonl")
  kill -CONT $all
  sleep 3
  [ "$(wc -l <"$work/run/metrics.jsonl")" -gt "$at" ] || bad "nothing went on after the suspension"
  kill -USR1 $(echo "$all" | tail -n 1)
  stopped 75 SIGUSR1
fi

# A rank that stands still: the others say so, and the job ends.
rm -rf "$work/run"
if start 2 "$work/run.ini" --run.stall_seconds 3; then
  frozen=$(ranks_of $job | tail -n 1)
  kill -STOP "$frozen"
  got=0
  wait $job || got=$?
  kill -CONT "$frozen" 2>/dev/null
  [ $got = 1 ] || bad "a stall ended with $got"
  grep -q 'no progress for 3 s in phase "\(end of \)\?step"' "$work/err" || bad "no line about the stall: $(cat "$work/err")"
fi
finish
