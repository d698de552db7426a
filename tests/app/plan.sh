#!/bin/sh
# Plans as a user asks for them: tables, JSON, what does not fit and what would help, and the sweep over lengths.
. "$(dirname "$0")/common.sh"
cd "$SOURCE" || exit 1
big=bench/qwen3-8b-full.ini

expect 0 'step .* s, .* tokens/s.* MFU' 1 plan $big --ranks 8 --parallel.context 8 --data.sequence 1048576
grep -q 'pinned host memory' "$work/out" || bad "no pinned memory in the tables"
# 128 times 32,768 positions do not reach.
expect 2 'model.rope.factor=153' 1 plan $big --ranks 8 --parallel.context 8 --data.sequence 5000000
expect 0 '"fits":true.*"step_seconds":' 1 plan $big --ranks 64 --parallel.context 16 --json
expect 0 'warning: documents of up to 1025' 1 plan $big --data.sequence 1025 --model.path "$model" --model.rope.type default \
  --model.rope.factor 0 --model.rope.original_positions 0
# A billion tokens cost no more to plan.
expect 4 'does not fit.*ranks would make it fit' 1 plan $big --ranks 8 --parallel.context 8 --model.rope.factor 100000 \
  --data.sequence 1_000_000_000
expect 4 'memory.offload=auto would make it fit' 1 plan bench/qwen3-8b.ini --data.sequence 131072 --memory.offload none

# Two layers take 2/36 of the work of the layers, and the embedding and head as before.
expect 0 '"fits":true' 1 plan $big --ranks 8 --parallel.context 8 --layers 2 --json
expect 2 '--layers is beyond the model.s 36 layers' 1 plan $big --layers 37
expect 2 '--rank must be below --ranks' 1 plan $big --ranks 8 --rank 8
expect 2 '--ranks is "0"' 1 plan $big --ranks 0
expect 2 '--bandwidth is "fast"' 1 plan $big --bandwidth fast
expect 2 '--bandwidth needs a value' 1 plan $big --bandwidth
expect 2 'no abacus.rates beside this program' 1 plan $big --gpu abacus
expect 3 'no_such.rates' 1 plan $big --rates no_such.rates
expect 2 'does not divide' 1 plan $big --ranks 6 --parallel.context 4
expect 2 'without mpirun' 2 plan $big

ini run 2
expect 0 'in all, packed' 1 plan "$work/run.ini" --device.kind cpu --ranks 4 --parallel.context 4
grep -q 'MFU' "$work/out" && bad "a time without rates"
expect 0 'waiting for the ring' 1 rehearse "$work/run.ini" --device.kind cpu --ranks 4 --parallel.context 4 --steps 1 \
  --warmup 0 --bandwidth 0.001

# The processes are the job, or each is a rank of a larger one.
set -- rehearse "$work/run.ini" --device.kind cpu --steps 1 --warmup 0
expect 0 'gradient norm' 1 "$@"
expect 0 '^  mean ' 2 "$@" --parallel.context 2
grep -q 'gradient norm' "$work/out" || bad "real peers have a norm"
expect 0 '"pretended":true.*"rank":2,.*"rank":3,' 2 "$@" --parallel.context 4 --ranks 4 --rank 2 --json
[ "$(wc -l <"$work/out")" = 1 ] || bad "--json prints more than its line"
expect 2 'more than the --ranks 4' 2 "$@" --parallel.context 4 --ranks 4 --rank 3
expect 2 'of a pretended job: give its --ranks' 1 "$@" --rank 1
expect 2 'check knows what pretended peers hold' 2 "$@" --parallel.context 2 --check 3

ANNULUS=$ANNULUS bench/context_sweep --svg "$work/sweep.svg" $big 8 "65536 1048576" >"$work/sweep" ||
  bad "bench/context_sweep failed"
[ "$(grep -c '^| [0-9]' "$work/sweep")" = 2 ] || bad "not two rows: $(cat "$work/sweep")"
tail -n 1 "$work/sweep.svg" | grep -q '</svg>' || bad "no whole plot"
finish
