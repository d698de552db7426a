#!/bin/sh
# A file system that is really full. Skipped where mounting is not allowed.
. "$(dirname "$0")/common.sh"
mkdir "$work/small"
mount -t tmpfs -o size=4M none "$work/small" 2>/dev/null || { echo "skipped: mount is not allowed here"; exit 77; }
trap 'umount "$work/small"; rm -rf "$work"' EXIT
ini run 2
mkdir "$work/run"
ln -s "$work/small" "$work/run/checkpoints"
fill() { dd if=/dev/zero of="$work/small/filling" bs=64k 2>/dev/null; }

# Too small from the start: said before the first step.
fill
expect 4 'a checkpoint takes .* free' 2 train "$work/run.ini"
[ ! -s "$work/run/metrics.jsonl" ] || bad "steps were made for a checkpoint that cannot be saved"

# Full when the checkpoint is due: written now, or beside the training.
for flags in "" "--checkpoint.every 40 --checkpoint.background true"; do
  rm -rf "$work/small/"* "$work/run/metrics.jsonl"
  if start 2 "$work/run.ini" --train.steps 100000 $flags; then
    fill
    [ -n "$flags" ] || kill -USR1 "$(ranks_of $job | tail -n 1)"
    got=0
    wait $job || got=$?
    [ $got = 4 ] || bad "a full disk ended with $got"
    grep -q '^annulus: .*space' "$work/err" || bad "no sentence about the full disk: $(cat "$work/err")"
    [ "$(ls "$work/small")" = filling ] || bad "left of the checkpoint that did not fit: $(ls "$work/small")"
  fi
done
rm "$work/small/filling"
expect 0 'step 2/2' 2 train "$work/run.ini"
finish
