#!/bin/sh
# The page of a real run, stopped and gone on; in a browser where there is one.
. "$(dirname "$0")/common.sh"

ini run 9
run="$work/run"
more="--data.eval $data --train.eval_every 2 --train.eval_positions 4 --checkpoint.best true"
# shellcheck disable=SC2086  # words of their own
expect 0 'position in document' 2 train "$work/run.ini" --train.steps 5 --parallel.context 2 $more
expect 0 'wrote .*/run/report.html' 1 report "$run"
# shellcheck disable=SC2086
expect 0 'best so far: step' 1 train "$work/run.ini" $more
printf '{"step":10,"loss":1' >>"$run/metrics.jsonl"  # a line being written
expect 0 'wrote .*/run/report.html' 2 report "$run"

page=$run/report.html
holds() { grep -qF -- "$1" "$page" || bad "the page does not hold: $1"; }
holds "default-src 'none'"
holds "of 9</small>"
holds ">done<"
holds "in best.h5"
holds "began after step 5"
holds "by position in the document"
holds "path = $model"
grep -qE '(src|href)=|url\(|@import' "$page" && bad "the page asks for something outside itself"
[ "$(wc -c <"$page")" -lt 200000 ] || bad "the page of nine steps has $(wc -c <"$page") bytes"
loss=$(sed -n 's/.*"step":9,"loss":\([0-9.]*\),.*/\1/p' "$run/metrics.jsonl")
holds "<dd>$(printf %.4f "$loss")<small>"

expect 0 'newest whole checkpoint: .*step-000009.h5, all digests' 2 inspect "$run"
for said in 'status: done' 'step 9 of 9, loss [0-9.]+, eval loss [0-9.]+ at step' 'model: qwen3, [0-9]+ layers' \
  'step-000005.h5: .* GB, step 5' 'best.h5: .* step [0-9]+, eval loss' 'tokens.h5: [0-9]+ documents'; do
  grep -qE -- "$said" "$work/out" || bad "inspect does not say: $said"
done
printf x | dd of="$run/checkpoints/step-000009.h5" bs=1 seek=9000 conv=notrunc 2>/dev/null
expect 0 'newest whole checkpoint: .*step-000005.h5' 1 inspect "$run"

cp -r "$run" "$work/second & <other>"
expect 0 'wrote' 1 report "$run" "$work/second & <other>" -o "$work/two.html"
grep -qF 'second &amp; &lt;other&gt;' "$work/two.html" || bad "a folder's name is not escaped"
expect 2 'give -o FILE' 1 report "$run" "$run"
expect 2 'flag --open' 1 report "$run" --open
expect 3 'metrics.jsonl' 1 report "$work"
expect 4 'cannot write' 1 report "$run" -o "$work/absent/page.html"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -n "$browser" ]; then
  # What the script has made of the page: it ran to its end under the page's own policy.
  timeout 100 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/browser" \
    --virtual-time-budget=2000 --dump-dom "file://$page" >"$work/dom" 2>"$work/browser.log" || bad "the browser: $(tail -n 1 "$work/browser.log")"
  grep -q 'class="js"' "$work/dom" || bad "the page's script did not run"
  grep -qiE 'refused to|uncaught' "$work/browser.log" && bad "$(grep -iE 'refused to|uncaught' "$work/browser.log" | head -n 1)"
  timeout 100 "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/browser" \
    --window-size=1280,1600 --screenshot="$work/page.png" "file://$page" >"$work/browser.log" 2>&1
  [ "$(wc -c <"$work/page.png")" -gt 30000 ] || bad "the browser shows an empty page"
else
  echo "no browser here: the page was not looked at"
fi
finish
