#!/bin/sh
# PEFT as the other side: an adapter made here gives the same loss there, one made there the same loss here, and
# a merged model is what PEFT's merge gives. Needs torch, transformers and peft in .venv, or in the Python that
# PEFT_PYTHON names; skipped without them.
. "$(dirname "$0")/common.sh"
python=${PEFT_PYTHON:-$SOURCE/.venv/bin/python}
export HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES=
"$python" -c 'import torch, transformers, peft' 2>/dev/null || { echo "skipped: no Python with torch, transformers and peft"; exit 77; }
ini run 4
lora="--lora.rank 3 --lora.alpha 7 --lora.targets all-linear --optimizer.lr 0.02"
# shellcheck disable=SC2086
expect 0 'LoRA of rank 3, scale 2.33.* 21 matrices adapted, 5076 of' 2 train "$work/run.ini" $lora --checkpoint.final hf
expect 0 'wrote' 2 export "$work/run" "$work/exported"
cmp -s "$work/run/adapter/adapter_model.safetensors" "$work/exported/adapter_model.safetensors" || bad "two exports differ"
expect 0 'wrote' 2 export "$work/run" "$work/merged" --merge
expect 0 '42 tensors' 1 inspect "$work/exported"

eval_loss() {  # FLAGS...: the loss that eval prints, all documents of the data
  on 2 eval "$work/run.ini" --data.eval "$data" --data.packing bfd --data.sequence 509 "$@" 2>&1 | sed -n 's/^eval loss \([0-9.]*\).*/\1/p'
}
# shellcheck disable=SC2086
echo "trained_run run/adapter $(eval_loss $lora)" >"$work/losses"
echo "trained_folder run/adapter $(eval_loss --checkpoint.resume "$work/exported")" >>"$work/losses"
echo "trained_merged merged $(eval_loss --checkpoint.resume none --model.path "$work/merged")" >>"$work/losses"
"$python" "$SOURCE/tests/app/peft_side.py" make "$model" "$work/theirs" || bad "PEFT made no adapter"
echo "theirs_folder theirs $(eval_loss --checkpoint.resume "$work/theirs")" >>"$work/losses"
"$python" "$SOURCE/tests/app/peft_side.py" check "$model" "$data" "$work" || bad "PEFT sees something else"
finish
