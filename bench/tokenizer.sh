#!/bin/sh
# Throughput of `annulus tokenize` beside the Python tokenizers library on the same text and cores, in one run.
#   TOKENIZER=/path/to/tokenizer.json bench/tokenizer.sh     default: the tests' small one
# Then ranks of `annulus tokenize` alone: the best of three runs, so that what
# else runs on the machine counts less; rows and one plain file.
# Added tokens count in texts for both, so that the numbers of tokens are the same.
# Skipped (code 77) without .venv and the library; PYTHON=... is another interpreter that has it.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
python=${PYTHON:-.venv/bin/python}
tokenizer=${TOKENIZER:-tests/data/chat/tokenizer.json}
cores=${CORES:-2}
"$python" -c 'import tokenizers' 2>/dev/null || { echo "skipped: no Python with tokenizers"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/annulus-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
# Text of the sources: words, code, numbers, tables; cut in documents of about 4 kB, and repeated in another order.
"$python" - "$work/text.jsonl" <<'PY'
import json, pathlib, random, sys
files = sorted(p for d in ("src", "tests", "cuda", "bench") for e in ("cpp", "h", "md", "cu", "sh", "py") for p in pathlib.Path(d).rglob("*." + e))
text = "".join(p.read_text(encoding="utf-8") for p in files)
pieces = [text[i:i + 4000] for i in range(0, len(text), 4000)]
rng = random.Random(1)
with open(sys.argv[1], "w", encoding="utf-8") as f:
    size = 0
    while size < 60e6:
        rng.shuffle(pieces)
        for piece in pieces:
            f.write(json.dumps({"text": piece}, ensure_ascii=False) + "\n")
            size += len(piece)
PY
echo "$(wc -c <"$work/text.jsonl") bytes, $(wc -l <"$work/text.jsonl") documents, $cores cores, $(basename "$(dirname "$tokenizer")")/tokenizer.json"
echo
echo "| program | cores | MB/s | tokens |"
echo "|---|---|---|---|"
for n in 1 "$cores"; do
  start=$(date +%s.%N)
  tokens=$(mpirun -q -n "$n" "$build/annulus" tokenize "$work/text.jsonl" "$work/out.h5" --data.tokenizer "$tokenizer" --data.allow_special true | sed 's/.*documents, \([0-9]*\) tokens.*/\1/')
  awk -v n="$n" -v t="$tokens" -v b="$(wc -c <"$work/text.jsonl")" -v s="$(date +%s.%N)" -v from="$start" \
    'BEGIN { printf "| annulus tokenize, file to file | %d | %.1f | %s |\n", n, b / (s - from) * 1e-6, t }'
  RAYON_NUM_THREADS=$n TOKENIZERS_PARALLELISM=true "$python" - "$work/text.jsonl" "$tokenizer" "$n" <<'PY'
import json, os, sys, time
from tokenizers import Tokenizer
t = Tokenizer.from_file(sys.argv[2])
size, start = os.path.getsize(sys.argv[1]), time.time()
count = seconds = 0
with open(sys.argv[1], encoding="utf-8") as f:
    rows = [json.loads(line)["text"] for line in f]
begin = time.time()
for i in range(0, len(rows), 1000):
    count += sum(len(e.ids) for e in t.encode_batch_fast(rows[i:i + 1000], add_special_tokens=False))
end = time.time()
print(f"| tokenizers, JSON read, ids in memory | {sys.argv[3]} | {size / (end - start) * 1e-6:.1f} | {count} |")
print(f"| tokenizers, encode_batch_fast alone | {sys.argv[3]} | {size / (end - begin) * 1e-6:.1f} | {count} |")
PY
done
"$python" -c 'import json, sys; [sys.stdout.write(json.loads(line)["text"]) for line in open(sys.argv[1], encoding="utf-8")]' \
  "$work/text.jsonl" >"$work/text.txt"
echo
echo "| annulus tokenize, best of three | 1 rank, MB/s | $cores ranks, MB/s | times |"
echo "|---|---|---|---|"
for input in jsonl txt; do
  rates=
  for n in 1 "$cores"; do
    best=
    for _ in 1 2 3; do
      start=$(date +%s.%N)
      mpirun -q -n "$n" "$build/annulus" tokenize "$work/text.$input" "$work/out.h5" \
        --data.tokenizer "$tokenizer" --data.allow_special true >"$work/said"
      best=$(awk -v b="$(wc -c <"$work/text.$input")" -v s="$(date +%s.%N)" -v from="$start" -v best="${best:-0}" \
        'BEGIN { r = b / (s - from) * 1e-6; printf "%.1f", (r > best ? r : best) }')
    done
    rates="$rates $best"
  done
  echo "$input $rates" | awk '{ printf "| %s | %.1f | %.1f | %.2f |\n", $1, $2, $3, $3 / $2 }'
done
