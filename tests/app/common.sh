# For tests of the program as a user runs it. ANNULUS: the program; SOURCE: the checkout.
set -u
work=$(mktemp -d "${TMPDIR:-/tmp}/annulus-app-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
model=$SOURCE/tests/oracle/qwen3/model
data=$SOURCE/tests/oracle/qwen3/data.jsonl

bad() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}

# on RANKS ARGUMENTS...: the program; none takes more than seconds, unless it hangs.
on() {
  ranks=$1
  shift
  if [ "$ranks" = 1 ]; then timeout 120 "$ANNULUS" "$@"; else timeout 120 mpirun -n "$ranks" "$ANNULUS" "$@"; fi
}

# expect CODE TEXT RANKS ARGUMENTS...: ends with that code and one sentence that holds the text (an extended
# regular expression). What it printed stays in $work/out and $work/err.
expect() {
  code=$1 text=$2
  shift 2
  got=0
  on "$@" >"$work/out" 2>"$work/err" || got=$?
  [ $got = "$code" ] || bad "code $got, not $code: on $* ($(grep '^annulus: ' "$work/err" | head -n 1))"
  if [ "$code" != 0 ] && [ "$code" != 75 ]; then
    sentences=$(grep -c '^annulus: ' "$work/err")
    [ "$sentences" = 1 ] || bad "$sentences sentences, not 1: on $*"
    grep '^annulus: ' "$work/err" | grep -qE -- "$text" || bad "no \"$text\" in: $(grep '^annulus: ' "$work/err")"
  else
    grep -qE -- "$text" "$work/out" || bad "no \"$text\" in what was printed: on $*"
  fi
}

# Processes of the program below a launcher, by number.
ranks_of() {
  for stat in /proc/[0-9]*/stat; do
    awk -v parent="$1" '{ sub(/.*\) /, ""); if ($2 == parent) { split(FILENAME, part, "/"); print part[3] } }' "$stat" 2>/dev/null
  done
}

# start RANKS ARGUMENTS...: in the background, until two steps are done. Sets `job`.
start() {
  ranks=$1
  shift
  mpirun -n "$ranks" "$ANNULUS" train "$@" >"$work/out" 2>"$work/err" &
  job=$!
  waited=0
  while [ "$(cat "$work/run/metrics.jsonl" 2>/dev/null | wc -l)" -lt 2 ]; do
    sleep 0.1
    waited=$((waited + 1))
    [ $waited -lt 300 ] && kill -0 $job 2>/dev/null || { bad "the run did not start: $(tail -n 3 "$work/err")"; return 1; }
  done
}

# ini NAME STEPS: a small run of the test's own folder; its file is $work/NAME.ini, its folder $work/NAME.
ini() {
  cat >"$work/$1.ini" <<INI
[model]
path = $model
[data]
train = $data
format = tokens
sequence = 61
packing = wrapped
[train]
steps = $2
[optimizer]
lr = 0.001
schedule = constant
[checkpoint]
final = none
[run]
dir = $work/$1
INI
}

finish() {
  [ $failures = 0 ] || { echo "$failures failures"; exit 1; }
  echo "all right"
}
