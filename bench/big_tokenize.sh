#!/bin/sh
# `make check-big`: a JSONL of 2 GB, made on the fly, is tokenized on 2 ranks while their memory is watched. Fails when
# a rank takes more than LIMIT megabytes, or when the result is not what was put in.
#   GB=0.2 bench/big_tokenize.sh              a smaller file
#   TOKENIZER=/path/to/tokenizer.json         that one instead of the tests' small one (three times the tokens)
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
gb=${GB:-2}
limit=${LIMIT:-300}
tokenizer=${TOKENIZER:-tests/data/chat/tokenizer.json}
work=$(mktemp -d "${TMPDIR:-/tmp}/annulus-big-XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "== $gb GB of rows"
awk -v bytes="$(awk "BEGIN { printf \"%.0f\", $gb * 1e9 }")" '
  BEGIN {
    srand(1)
    words = split("the of and model token sequence gradient attention memory training ring layer caf\303\251 12 3.14 is, was. it (a) row", word, " ")
    while (done < bytes) {
      line = ""
      for (n = 20 + int(rand() * 300); n > 0; n--) line = line word[1 + int(rand() * words)] " "
      line = "{\"id\": " rows++ ", \"text\": \"" line "\\n" int(rand() * 1e9) "\"}"
      print line
      done += length(line) + 1
    }
  }' >"$work/big.jsonl"
rows=$(wc -l <"$work/big.jsonl")
size=$(wc -c <"$work/big.jsonl")

# The memory that a process took at its highest is known only while it lives.
mpirun -q -n 2 "$build/annulus" tokenize "$work/big.jsonl" "$work/big.h5" --data.tokenizer "$tokenizer" >"$work/out" 2>"$work/err" &
job=$!
start=$(date +%s)
peak=0
while kill -0 $job 2>/dev/null; do
  for status in /proc/[0-9]*/status; do
    now=$(awk -v parent="$job" '/^PPid:/ { mine = $2 == parent } /^VmHWM:/ { if (mine) print $2 }' "$status" 2>/dev/null || true)
    [ "${now:-0}" -le "$peak" ] || peak=$now
  done
  sleep 1
done
code=0
wait $job || code=$?
seconds=$(($(date +%s) - start))
cat "$work/out"
[ $code = 0 ] || { cat "$work/err"; exit 1; }
grep -q ": $rows documents, " "$work/out" || { echo "not the $rows rows that were put in"; exit 1; }
echo "$size bytes in $rows rows, 2 ranks: $seconds s, $((size / 1000000 / (seconds > 0 ? seconds : 1))) MB/s; a rank at most $((peak / 1000)) MB; $(wc -c <"$work/big.h5") bytes written"
[ "$peak" -gt 0 ] || { echo "no process was seen"; exit 1; }
[ $((peak / 1000)) -le "$limit" ] || { echo "that is more than $limit MB"; exit 1; }
