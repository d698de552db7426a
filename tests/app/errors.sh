#!/bin/sh
# Every bad input ends with its exit code and one sentence, on one rank and on several, and damages nothing.
. "$(dirname "$0")/common.sh"

both() {  # the same on one rank and on two
  c=$1 t=$2
  shift 2
  expect "$c" "$t" 1 "$@"
  expect "$c" "$t" 2 "$@"
}

# --- usage
expect 2 'nearest is train' 1 trian
expect 2 'usage: annulus import' 1 import only-one
expect 2 'usage: annulus info' 1 info --verbose
expect 2 'no_such.ini' 1 train "$work/no_such.ini"
ini run 2
expect 2 'optimizer.lrr.*optimizer.lr' 1 train "$work/run.ini" --optimizer.lrr 1
expect 2 'train.steps.*ten' 1 train "$work/run.ini" --train.steps ten
expect 2 'context' 2 train "$work/run.ini" --parallel.context 3
both 2 'lora.targets.*q_prj.*nearest is q_proj' train "$work/run.ini" --lora.rank 4 --lora.targets q_prj
both 2 'lora.base.*fp8' train "$work/run.ini" --lora.rank 4 --lora.base fp8
expect 2 'lora.alpha.*lora.rank' 1 train "$work/run.ini" --lora.alpha 16
expect 2 'model.path.*--merge' 1 export "$work/run" "$work/out_folder" --model.path "$model"
[ ! -e "$work/run" ] || [ -z "$(ls "$work/run/checkpoints" 2>/dev/null)" ] || bad "a usage error left checkpoints"

# --- the printed config is the config
on 1 train "$work/run.ini" --train.seed 7 --print-config >"$work/printed.ini" || bad "--print-config failed"
on 1 train "$work/printed.ini" --print-config >"$work/again.ini"
cmp -s "$work/printed.ini" "$work/again.ini" || bad "--print-config is not the identity"

# --- the model's files
broken() {  # NAME: a fresh copy of the model
  rm -rf "$work/model"
  cp -r "$model" "$work/model"
}
with_model() { both 3 "$1" train "$work/run.ini" --model.path "$work/model"; }
both 3 'no_model' train "$work/run.ini" --model.path "$work/no_model"
broken
size=$(wc -c <"$work/model/model.safetensors")
head -c $((size - 1)) "$model/model.safetensors" >"$work/model/model.safetensors"
with_model 'model.safetensors'
broken
printf '\377\377\377\377\377\377\377\177' | cat - "$model/model.safetensors" >"$work/model/model.safetensors"
with_model 'model.safetensors.*header'
header='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}'
length=$(printf %s "$header" | wc -c)
# shellcheck disable=SC2059
{ printf "\\$(printf %o "$length")\\0\\0\\0\\0\\0\\0\\0"; printf '%s123456789012' "$header"; } >"$work/model/model.safetensors"
with_model 'overlap|data_offsets|bytes'
header='{"model.norm.weight":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}}'
length=$(printf %s "$header" | wc -c)
# shellcheck disable=SC2059
{ printf "\\$(printf %o "$length")\\0\\0\\0\\0\\0\\0\\0"; printf '%s1234' "$header"; } >"$work/model/model.safetensors"
with_model 'I16'
broken
rm "$work/model/model.safetensors"
echo '{"metadata":{},"weight_map":{"model.norm.weight":"gone.safetensors"}}' >"$work/model/model.safetensors.index.json"
with_model 'gone.safetensors'
echo '{"metadata":{},"weight_map":{"model.norm.weight":"../model.safetensors"}}' >"$work/model/model.safetensors.index.json"
with_model '\.\.'
broken
echo '{"model_type": "qwen3", ' >"$work/model/config.json"
with_model 'config.json'
sed 's/"qwen3"/"gpt_neox"/' "$model/config.json" >"$work/model/config.json"
with_model 'gpt_neox'
sed 's/"intermediate_size": *[0-9]*/"intermediate_size": 33/' "$model/config.json" >"$work/model/config.json"
with_model 'shape.*33'

# --- data
{ head -n 2 "$data"; echo '{"input_ids": [1, 2,'; } >"$work/broken.jsonl"
both 3 'broken.jsonl.*line 3.*byte' train "$work/run.ini" --data.train "$work/broken.jsonl"
echo '{"input_ids": [1, 2, 1000000]}' >"$work/far.jsonl"
both 3 'far.jsonl.*1000000|1000000.*far.jsonl' train "$work/run.ini" --data.train "$work/far.jsonl"
both 3 'no_data' train "$work/run.ini" --data.train "$work/no_data.jsonl"

# --- the environment
echo text >"$work/file"
both 4 "$work/file/run" train "$work/run.ini" --run.dir "$work/file/run"
expect 4 'GPU|CUDA|cuda' 1 train "$work/run.ini" --device.kind cuda --run.dir "$work/gpu"
mkdir -p "$work/held"
printf '{"job":"","host":"elsewhere","pid":1,"start":"1","space":"x","heartbeat":%s}\n' "$(date +%s)" >"$work/held/lock"
both 4 'in use.*elsewhere' train "$work/run.ini" --run.dir "$work/held"
[ -e "$work/held/lock" ] || bad "another job's lock was removed"

# --- ranks that were not started alike
unlike() { # CODE TEXT FIRST SECOND [PROGRAM]: arguments of the first rank, and of the second with its program
  got=0
  timeout 120 mpirun -n 1 "$ANNULUS" train $3 : -n 1 "${5:-$ANNULUS}" train $4 >"$work/out" 2>"$work/err" || got=$?
  [ $got = "$1" ] || bad "code $got, not $1: ranks started with \"$3\" and \"$4\""
  grep '^annulus: ' "$work/err" | grep -qE -- "$2" || bad "no \"$2\" in: $(grep '^annulus: ' "$work/err")"
}
unlike 4 'rank 1 on host .*lr = 0.002.*lr = 0.001' "$work/run.ini" "$work/run.ini --optimizer.lr 0.002"
unlike 2 'no_config.ini' "$work/run.ini" "$work/no_config.ini"
# The same commit, linked again: its note (16 bytes of heading, then the hash) has another hash.
cp "$ANNULUS" "$work/other"
note=$(readelf -SW "$ANNULUS" | sed -n 's/.*\.note\.gnu\.build-id *NOTE *[0-9a-f]* *\([0-9a-f]*\) .*/\1/p')
printf 'other' | dd of="$work/other" bs=1 seek=$((0x$note + 16)) conv=notrunc 2>/dev/null
unlike 4 'rank 1 on host .* runs annulus .*, build 6f74686572[0-9a-f]+ and rank 0 .*, build [0-9a-f]+;' "$work/run.ini" "$work/run.ini" "$work/other"

# --- other subcommands
both 3 'no_file' inspect "$work/no_file.h5"
both 3 'file' inspect "$work/file"
expect 3 'holds no whole checkpoint|no_run' 1 export "$work/held" "$work/out_folder"

# --- after all of this a good run works in the same folder
expect 0 'step 2/2' 2 train "$work/run.ini"
[ "$(wc -l <"$work/run/metrics.jsonl")" = 2 ] || bad "metrics.jsonl has not one line a step"
[ ! -e "$work/run/lock" ] || bad "the lock is left behind"
both 4 'held' export "$work/run" "$work/held"
finish
