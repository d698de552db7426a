#!/usr/bin/env python3
"""What transformers makes of awkward conversations, for tests/data/chat_test.cpp.

    make_chat.py FOLDER     reads FOLDER/conversations.jsonl; writes FOLDER/tokenizer.json and FOLDER/expected.jsonl

Needs transformers and the files of TRL (which is not imported). One line of expected.jsonl is a conversation in one
format: the text, a CRC-32 and the count of its ids, and the ranges of tokens that are trained. "model" is the
model's own template, "training" TRL's for assistant-only loss ("both" where the two texts are the same); "pair" is
a prompt of all but the last message and a completion of that one. TRL has no training template for plain ChatML and
Llama 3.1: these are marked here.
"""
import importlib.util
import json
import struct
import sys
import zlib
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
          "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
CHATML_MARKED = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}{% if message.role == "
                 "'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' + '\n'}}{% endgeneration %}"
                 "{% else %}{{ message['content'] + '<|im_end|>' + '\n'}}{% endif %}{% endfor %}")


def template(name):
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def llama31_marked():
    text = template("llama3_2")
    turn = "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}"
    call = "{{- '{\"name\": \"' + tool_call.name + '\", ' }}"
    end = '{{- "}" }}\n        {{- "<|eot_id|>" }}'
    assert text.count(turn) == text.count(call) == text.count(end) == 1
    head, rest = turn.split("+ message['content']")
    text = text.replace(turn, head + "}}{%- if message.role == 'assistant' %}{%- generation %}{{- message['content']" + rest +
                        "{%- endgeneration %}{%- else %}{{- message['content']" + rest + "{%- endif %}")
    return text.replace(call, "{%- generation %}" + call).replace(end, end + "{%- endgeneration %}")


FORMATS = {  # the model's own template, the training template, and whether tools and reasoning are refused
    "chatml": (CHATML, CHATML_MARKED, True, True),
    "qwen3": (template("qwen3"), template("qwen3_training"), False, False),
    "qwen3-instruct": (template("qwen3_instruct_2507"), template("qwen3_instruct_2507_training"), False, False),
    "qwen2.5": (template("qwen2_5"), template("qwen2_5_training"), False, False),
    "llama3": (template("llama3"), template("llama3_training"), True, True),
    "llama3.1": (template("llama3_1"), llama31_marked(), False, True),
}


def make_tokenizer(texts):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False))
    t.add_special_tokens([AddedToken(s, normalized=False) for s in SPECIAL])
    t.add_tokens([AddedToken(s, normalized=False) for s in PLAIN])
    return t


def ranges(mask):
    edges = [i for i in range(len(mask) + 1) if (mask[i] if i < len(mask) else 0) != (mask[i - 1] if i else 0)]
    return [list(r) for r in zip(edges[::2], edges[1::2])]


def crc(ids):
    return zlib.crc32(struct.pack(f"<{len(ids)}i", *ids))


def main():
    folder = Path(sys.argv[1])
    with open(folder / "conversations.jsonl", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    texts = [m.get("content") or "" for r in rows for m in r["messages"]] + [template(n) for n in ("qwen3", "llama3_1")]
    fast = make_tokenizer(texts)
    fast.save(str(folder / "tokenizer.json"), pretty=False)
    t = PreTrainedTokenizerFast(tokenizer_object=fast, bos_token="<|begin_of_text|>", eos_token="<|im_end|>")
    out = []
    for index, row in enumerate(rows):
        messages, tools = row["messages"], row.get("tools")
        tools = json.loads(tools) if isinstance(tools, str) else tools
        uses_tools = bool(tools) or any(m["role"] == "tool" or m.get("tool_calls") for m in messages)
        reasons = any(m.get("reasoning_content") for m in messages)
        for name, (own, training, no_tools, no_reasoning) in FORMATS.items():
            if (no_tools and uses_tools) or (no_reasoning and reasons):
                continue

            def render(kind, chat, **more):
                return t.apply_chat_template(chat, tools=tools, chat_template=kind, date_string="26 Jul 2024", **more)

            try:
                text = render(own, messages, tokenize=False)
                marked = render(training, messages, tokenize=False)
                ids = render(own, messages, return_dict=True)["input_ids"]
                trained = render(training, messages, return_dict=True, return_assistant_tokens_mask=True)
                pair = None
                if len(messages) > 1 and messages[-1]["role"] == "assistant":
                    prompt = render(own, messages[:-1], add_generation_prompt=True, return_dict=True)["input_ids"]
                    pair = next((i for i, (a, b) in enumerate(zip(prompt, ids)) if a != b), min(len(prompt), len(ids)))
            except Exception as e:  # a template that raises, or adds nothing to a text: refused here too
                out.append({"conversation": index, "format": name, "refused": type(e).__name__})
                continue
            head = {"conversation": index, "format": name}
            whole = {"text": text, "tokens": len(ids), "crc": crc(ids), "prompt": pair}
            spans = {"tokens": len(trained["input_ids"]), "crc": crc(trained["input_ids"]),
                     "trained": ranges(trained["assistant_masks"])}
            if text == marked:
                out.append(head | {"rendering": "both"} | whole | spans)
            else:
                out.append(head | {"rendering": "model"} | whole)
                out.append(head | {"rendering": "training", "text": marked} | spans)
    with open(folder / "expected.jsonl", "w", encoding="utf-8") as f:
        for entry in out:
            f.write(json.dumps(entry, ensure_ascii=False) + "\n")
    print(f"{len(rows)} conversations, {len(out)} lines, {sum('refused' in e for e in out)} refused")


main()
