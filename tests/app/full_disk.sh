#!/bin/sh
# A file system that is really full. Skipped where mounting is not allowed.
. "$(dirname "$0")/common.sh"
mkdir "$work/small"
mount -t tmpfs -o size=400k none "$work/small" 2>/dev/null || { echo "skipped: mount is not allowed here"; exit 77; }
trap 'umount "$work/small"; rm -rf "$work"' EXIT
ini run 2
expect 4 'space' 2 train "$work/run.ini" --run.dir "$work/small/run"
[ -z "$(ls "$work/small/run/checkpoints")" ] || bad "something is left of the checkpoint that did not fit"
expect 0 'step 2/2' 2 train "$work/run.ini"
finish
