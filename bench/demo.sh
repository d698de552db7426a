#!/bin/sh
# The main job in small, on real text: a book is tokenized, a random Qwen3 made and trained with its rows cut over
# four ranks, stopped half way by a signal, resumed on two, and written as a Hugging Face folder.
#   TEXT=/path/to/book.txt bench/demo.sh     another text
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
annulus=$PWD/$build/annulus
work=$build/demo
steps=${STEPS:-40}
package=jargon-text  # The Jargon File: 1.6 MB of English in the public domain, in Debian and Ubuntu alike

die() {
  echo "demo: $1" >&2
  exit 1
}

# Neither root nor an installed package: images of containers leave documentation out when they install.
fetch_text() {
  mkdir -p "$build/text"
  [ -s "$build/text/book.txt" ] && return
  (cd "$build/text" && apt-get download -q "$package" >apt.log 2>&1) ||
    die "cannot download the Debian package $package ($(tail -n 1 "$build/text/apt.log")); give a text by TEXT=FILE"
  dpkg -x "$build"/text/${package}_*.deb "$build/text"
  gzip -dc "$build"/text/usr/share/doc/$package/jargon.txt.gz >"$build/text/book.txt"
}

# A field of the metrics' lines, one a line.
field() { sed -n "s/.*\"$1\":\([-+.0-9e]*\).*/\1/p" "$work/run/metrics.jsonl"; }
lines() { [ -e "$work/run/metrics.jsonl" ] && wc -l <"$work/run/metrics.jsonl" || echo 0; }

if [ -z "${TEXT:-}" ]; then
  fetch_text
  TEXT=$build/text/book.txt
fi
rm -rf "$work"
mkdir -p "$work/source"

cat >"$work/source/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 176,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 260,
 "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "rope_scaling": null,
 "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false, "use_sliding_window": false,
 "initializer_range": 0.02, "eos_token_id": 256, "torch_dtype": "bfloat16"}
JSON

echo "== the text: $(wc -c <"$TEXT") bytes, tokenized by bytes on 2 ranks"
mpirun -q -n 2 "$annulus" tokenize "$TEXT" "$work/book.h5" --model.path "$work/source" --data.tokenizer bytes

echo "== a random Qwen3 as a Hugging Face folder: the export of a run whose learning rate is nothing"
"$annulus" train --model.path "$work/source" --model.init random --data.train "$work/book.h5" --data.sequence 64 \
  --data.packing wrapped --train.steps 1 --optimizer.lr 0 --run.dir "$work/random" >"$work/random.log" 2>&1 ||
  die "making the model failed: $(tail -n 1 "$work/random.log")"

cat >"$work/run.ini" <<INI
[model]
path = $work/random/model
[data]
train = $work/book.h5
sequence = 8192
packing = wrapped
[train]
steps = $steps
[optimizer]
lr = 0.01
schedule = cosine
warmup = 2
[run]
dir = $work/run
INI

echo "== 4 ranks share each row of 8,192 tokens; SIGUSR1 to one of them half way"
mpirun -q -n 4 "$annulus" train "$work/run.ini" --parallel.context 4 &
job=$!
while [ "$(lines)" -lt $((steps / 2)) ]; do
  kill -0 $job 2>/dev/null || die "the run ended before half its steps"
  sleep 0.1
done
kill -USR1 "$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$work/run/lock")"
code=0
wait $job || code=$?
[ $code = 75 ] || die "the stopped run ended with $code and not with 75"
grep -q '"reason": "SIGUSR1"' "$work/run/status.json" || die "status.json does not say SIGUSR1"
first_half=$(lines)

echo "== 2 ranks go on from the checkpoint"
mpirun -q -n 2 "$annulus" train "$work/run.ini" --parallel.context 2

[ "$(field step | tr '\n' ' ')" = "$(seq 1 "$steps" | tr '\n' ' ')" ] || die "the steps are not 1 to $steps, each once"
[ -s "$work/run/model/config.json" ] && [ -s "$work/run/model/model.safetensors" ] || die "no exported folder"
field loss | awk -v edge="$first_half" '
  NR == edge { before = $1 }
  NR == edge + 1 && ($1 > before + 0.5 || $1 < before - 0.5) { exit 1 }' ||
  die "the loss jumps where the run was resumed"

echo
cat <<TABLE
| ranks | tokens a row | steps | tokens | s/step | GB/rank | first loss | last loss |
|---|---|---|---|---|---|---|---|
TABLE
row() { # ranks, first step, last step
  sed -n "$2,$3p" "$work/run/metrics.jsonl" | awk -v ranks="$1" -v range="$2-$3" '
    function get(key) { match($0, "\"" key "\":[-+.0-9e]*"); return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 }
    { seconds += get("step_seconds"); tokens += get("step_seconds") * get("tokens_per_second"); n++
      if (get("host_peak_bytes") > peak) peak = get("host_peak_bytes")
      if (n == 1) first = get("loss"); last = get("loss") }
    END { printf "| %d | 8192 | %s | %.0f | %.3f | %.3f | %.4f | %.4f |\n", ranks, range, tokens, seconds / n, peak * 1e-9, first, last }'
}
row 4 1 "$first_half"
row 2 $((first_half + 1)) "$steps"
echo "GB/rank: resident memory of a process at its highest, libraries included. The model: $work/run/model"
