#!/bin/sh
# bench/multi_gpu from end to end, with what there is: without a GPU tiny jobs on the CPU.
. "$(dirname "$0")/common.sh"
cd "$work" || exit 1
programs=$work/programs
mkdir "$programs"
ln -s "$ANNULUS" "$programs/annulus"
ln -s "$(dirname "$ANNULUS")/tests/annulus_tests" "$programs/annulus_tests"

# call CODE ARGUMENTS...
call() {
  code=$1 got=0
  shift
  timeout 500 "$SOURCE/bench/multi_gpu" --bin "$programs" --out "$work/out" "$@" >"$work/said" 2>&1 || got=$?
  [ $got = "$code" ] || { bad "code $got, not $code: multi_gpu $*"; cat "$work/said"; }
}
has() { grep -qE -- "$1" "$work/out/multi_gpu.md" || bad "no \"$1\" in the report"; }

call 0 --seconds 400
tail -n 20 "$work/out/multi_gpu.md" | grep -q '^## In short' || bad "the short table is not the last"
number='[0-9.]+'
has '^\| 1 \| layout and oracle tests that passed \| [1-9][0-9]* on 2 ranks \|'
has "^\| 2 \| all weights, [0-9]* tokens, all layers: s/step \| $number \|"
has "^\| 2 \| exposed communication, s \| -?$number \|"
has "^\| 3 \| [0-9]* tokens over 1, all layers: s/step \(speed-up\) \| $number \(1.00\) \|"
has "^\| 3 \| [0-9]* tokens over 2, all layers: s/step \(speed-up\) \| $number \($number\) \|"
has "^\| 4 \| [0-9]* tokens, all layers: s/step \| $number \|"
has "^\| 5 \| adapters, experts over 2, all layers: tokens/s a GPU \| $number \|"
has "^\| 5 \| dispatch and combine, GB/s sent a GPU \| $number \|"
has '^\| 6 \| a rank killed, mpirun ends the others \| over in [0-9]* s, code\(s\) 137 \|'
has '^\| 6 \| a rank killed, the others find out .* \| over in [0-9]* s, code\(s\) 1 137 \|'
has 'said: rank 0 on .*: no progress for|said: rank 0 on .*: NCCL '
grep -q FAILED "$work/out/multi_gpu.md" && bad "the report has a failure"
for kind in 'exchange on ring' 'all-gather on gather' 'exchange on dispatch'; do has "^\| $kind: s on its lane \| $number \|"; done

# Eight experts do not go over three ranks; no time is left for what is asked last.
call 1 --ranks 3 --items 5 --seconds 60
has '^5-real FAILED: annulus: .*does not divide'
has '^\| 5 \| .*tokens/s a GPU \| - \|'
call 1 --items '2 6' --seconds 5
has '^\| 6 \| .* \| not run: no time is left \|'
# On paper, for machines that are not here: what does not fit the time keeps fewer layers.
call 0 --dry --ranks 8 --items 4 --seconds 590
has 'tokens, all layers: s/step \| - \| 25[0-9]'
call 0 --dry --ranks 8 --items 4 --seconds 100
has 'tokens, [1-9][0-9]? of 36 layers: s/step \| - \|'
grep -q -- '--layers [1-9][0-9]* --warmup 0 --steps 1 --profile' "$work/said" || bad "layers that no command keeps"
call 2 --items 7
call 2 --ranks
finish
