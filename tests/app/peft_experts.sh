#!/bin/sh
# PEFT as the other side of a mixture of experts: adapters beside the experts, on them, and on a dense layer of
# the same model, made here and made there. Skipped as peft.sh is.
. "$(dirname "$0")/common.sh"
python=${PEFT_PYTHON:-$SOURCE/.venv/bin/python}
export HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES=
"$python" -c 'import torch, transformers, peft' 2>/dev/null || { echo "skipped: no Python with torch, transformers and peft"; exit 77; }
model=$SOURCE/tests/oracle/moe_mixed/model
data=$SOURCE/tests/oracle/moe_mixed/data.jsonl
ini run 5
ini attention 5
lora="--lora.rank 3 --lora.alpha 7 --optimizer.lr 0.02 --parallel.expert 2 --checkpoint.final hf"
# 3 x 4 of the attention, 3 of the dense layer, 2 x 4 of each of two layers of experts.
# shellcheck disable=SC2086
expect 0 'mlp.experts.gate_up_proj, mlp.experts.down_proj: 31 matrices adapted' 2 train "$work/run.ini" $lora --lora.targets all-linear
# shellcheck disable=SC2086
expect 0 'on q_proj, o_proj: 6 matrices adapted' 2 train "$work/attention.ini" $lora --lora.targets q_proj --lora.targets o_proj
expect 0 'wrote' 1 export "$work/run" "$work/exported"
cmp -s "$work/run/adapter/adapter_model.safetensors" "$work/exported/adapter_model.safetensors" || bad "two exports differ"
expect 0 'wrote' 2 export "$work/run" "$work/merged" --merge
expect 2 'gate_proj.*mlp.experts.gate_up_proj' 1 train "$work/run.ini" --run.dir "$work/none" \
  --model.path "$SOURCE/tests/oracle/moe/model" --lora.rank 3 --lora.targets gate_proj

eval_loss() {  # INI FLAGS...: the loss that eval prints, all documents of the data
  from=$1
  shift
  on 2 eval "$work/$from.ini" --data.eval "$data" --data.packing bfd --data.sequence 61 --parallel.expert 2 "$@" 2>&1 | sed -n 's/^eval loss \([0-9.]*\).*/\1/p'
}
"$python" "$SOURCE/tests/app/peft_side.py" make "$model" "$work/theirs" \
  mlp.experts.gate_up_proj mlp.experts.down_proj mlp.up_proj.weight || bad "PEFT made no adapter"
"$python" "$SOURCE/tests/app/peft_side.py" make "$model" "$work/theirs_one" mlp.experts.gate_up_proj || bad "PEFT made no adapter"
"$python" "$SOURCE/tests/app/peft_side.py" make "$model" "$work/theirs_modules" modules || bad "PEFT made no adapter"
ini joined 5
# shellcheck disable=SC2086
expect 0 'mlp.experts.gate_proj, mlp.experts.up_proj: 11 matrices adapted' 2 train "$work/joined.ini" $lora \
  --lora.targets mlp.experts.gate_proj --lora.targets mlp.experts.up_proj --lora.targets q_proj
expect 0 'wrote' 2 export "$work/joined" "$work/joined_merged" --merge
{
  echo "trained run/adapter $(eval_loss run --lora.rank 3 --lora.alpha 7 --lora.targets all-linear)"
  echo "trained_folder run/adapter $(eval_loss run --checkpoint.resume "$work/exported")"
  echo "trained_merged merged $(eval_loss run --checkpoint.resume none --model.path "$work/merged")"
  echo "beside_experts attention/adapter $(eval_loss attention --checkpoint.resume "$work/attention/adapter" --parallel.context 2)"
  echo "theirs theirs $(eval_loss run --checkpoint.resume "$work/theirs")"
  echo "joined joined/adapter $(eval_loss joined --checkpoint.resume "$work/joined/adapter")"
  echo "joined_merged joined_merged $(eval_loss joined --checkpoint.resume none --model.path "$work/joined_merged")"
  echo "theirs_modules theirs_modules $(eval_loss run --checkpoint.resume "$work/theirs_modules")"
  echo "theirs_one theirs_one $(eval_loss run --checkpoint.resume "$work/theirs_one")"
} >"$work/losses"
"$python" "$SOURCE/tests/app/peft_side.py" check "$model" "$data" "$work" || bad "PEFT sees something else"
finish
