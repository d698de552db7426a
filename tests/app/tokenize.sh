#!/bin/sh
# Token files as a user makes them: files and flags in any order, compressed files, chats by the folder's template.
. "$(dirname "$0")/common.sh"
chat=$SOURCE/tests/data/chat
mkdir "$work/folder"
cp "$model/config.json" "$work/folder/"
sed -i 's/"vocab_size": *[0-9]*/"vocab_size": 1000/' "$work/folder/config.json"
cp "$chat/tokenizer.json" "$work/folder/"
in=$chat/conversations.jsonl

# A template is needed, then a known one; the line for Python names the files.
expect 3 'no chat template.*data.chat' 2 tokenize "$in" "$work/a.h5" --model.path "$work/folder"
printf 'unknown' >"$work/folder/chat_template.jinja"
expect 3 "python3 -c 'import json.*get_training_chat_template.* $work/folder $in > tokens.jsonl" 2 tokenize "$in" "$work/a.h5" --model.path "$work/folder"
printf '%s' "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" \
  >"$work/folder/chat_template.jinja"
expect 3 'conversations.jsonl line [0-9]+ .*data.chat=chatml has no words for' 2 tokenize "$in" "$work/a.h5" --model.path "$work/folder"

# The same documents whatever the order of the arguments, the compression and the number of ranks.
expect 0 'a.h5: 67 documents, .* of them targets; [0-9]+ documents without a target' 1 tokenize --data.chat qwen3 "$in" --model.path="$work/folder" "$work/a.h5"
head -n 20 "$in" | gzip >"$work/first.jsonl.gz"
tail -n +21 "$in" >"$work/rest.jsonl"
expect 0 'b.h5: 67 documents' 3 tokenize "$work/first.jsonl.gz" --model.path "$work/folder" "$work/rest.jsonl" --data.chat qwen3 "$work/b.h5"
for file in a b; do
  "$ANNULUS" inspect "$work/$file.h5" | grep -vE '^(files|file_count|file_bytes):' >"$work/$file.facts"
done
cmp -s "$work/a.facts" "$work/b.facts" || bad "the facts differ: $(diff "$work/a.facts" "$work/b.facts")"
grep -q '^chat: qwen3$' "$work/a.facts" || bad "the facts do not name the chat format"
[ -z "$(find "$work" -name '*.ids-*' -o -name '*.mask-*' -o -name '*.partial')" ] || bad "something is left behind"
# No progress where nobody watches.
[ ! -s "$work/err" ] || bad "standard error says: $(cat "$work/err")"

head -c 300 "$work/first.jsonl.gz" >"$work/cut.jsonl.gz"
expect 3 'cut.jsonl.gz is cut off' 2 tokenize "$work/cut.jsonl.gz" "$work/c.h5" --model.path "$work/folder"
expect 3 'parquet format.*load_dataset' 1 tokenize "$work/x.parquet" "$work/c.h5" --model.path "$work/folder"
expect 3 'data set of the hub.*load_dataset' 2 tokenize some/data "$work/c.h5" --model.path "$work/folder"
expect 2 'end in .h5' 1 tokenize "$in" --model.path "$work/folder" "$work/c.txt"
finish
