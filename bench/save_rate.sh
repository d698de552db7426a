#!/bin/bash
# usage: bench/save_rate.sh [FOLDER] [GB] [RANKS]
# How fast a checkpoint reaches the disk, beside dd with a sync of as many bytes in the same folder, three times in
# turn. A checkpoint beside the training costs it only the copy in memory: that is measured too.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
annulus=${ANNULUS:-$here/${BUILD:-build}/annulus}
folder=${1:-.} gb=${2:-1} ranks=${3:-2}
work=$(mktemp -d "$folder/save-rate-XXXXXX")
trap 'rm -rf "$work"' EXIT

# The vocabulary makes the size: 2 V C parameters of 12 bytes.
vocabulary=$(awk -v gb="$gb" 'BEGIN { print int(gb * 1e9 / 12 / 2 / 512) }')
cat >"$work/config.json" <<JSON
{"model_type": "qwen3", "hidden_size": 512, "intermediate_size": 1100, "num_hidden_layers": 1,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": $vocabulary,
 "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "hidden_act": "silu",
 "attention_bias": false, "tie_word_embeddings": false, "initializer_range": 0.02, "torch_dtype": "bfloat16"}
JSON
for ((i = 0; i < 64; ++i)); do echo "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, $i]}"; done >"$work/rows.jsonl"

# train FLAGS...: prints the lines about saves.
train() {
  rm -rf "$work/run"
  mpirun -n "$ranks" "$annulus" train --model.path "$work" --model.init random --data.train "$work/rows.jsonl" \
    --data.format tokens --data.sequence 8 --data.packing none --checkpoint.final none --run.dir "$work/run" "$@" \
    >"$work/log" 2>&1 || { tail -n 3 "$work/log" >&2; exit 1; }
}

echo "| | GB | s | GB/s |"
echo "|---|---|---|---|"
for round in 1 2 3; do
  train --train.steps 1
  sed -n 's/^saved .*, \([0-9.]*\) GB in \([0-9.]*\) s, \([0-9.]*\) GB\/s.*/| checkpoint, '"$ranks"' ranks | \1 | \2 | \3 |/p' "$work/log"
  bytes=$(stat -c %s "$work"/run/checkpoints/step-*.h5)
  rm -rf "$work/run"
  begun=$(date +%s.%N)
  dd if=/dev/zero of="$work/plain" bs=64M count=$((bytes / 67108864)) conv=fsync 2>/dev/null
  awk -v begun="$begun" -v ended="$(date +%s.%N)" -v bytes="$(stat -c %s "$work/plain")" \
    'BEGIN { s = ended - begun; printf "| dd conv=fsync | %.2f | %.2f | %.2f |\n", bytes * 1e-9, s, bytes * 1e-9 / s }'
  rm "$work/plain"
done
