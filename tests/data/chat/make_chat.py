#!/usr/bin/env python3
"""What transformers makes of awkward conversations, for tests/data/chat_test.cpp.

    make_chat.py FOLDER            reads FOLDER/conversations.jsonl; writes FOLDER/tokenizer.json and
                                   FOLDER/expected.jsonl
    make_chat.py FOLDER COUNT SEED writes FOLDER/conversations.jsonl anew first, with COUNT random ones

Needs transformers and the files of TRL (which is not imported). One line of expected.jsonl is a conversation in one
format: the text, a CRC-32 and the count of its ids, and the ranges of tokens that are trained. "model" is the
model's own template, "training" TRL's for assistant-only loss ("both" where the two texts are the same); "pair" is
a prompt of all but the last message and a completion of that one. TRL has no training template for plain ChatML,
Llama 3.1 and 3.2: these are marked here. Left out is what is refused: what a format has no words for, and what its
template would drop without a word.
"""
import importlib.util
import json
import random
import struct
import sys
import zlib
from datetime import date
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
           "<|end_header_id|>", "<|eot_id|>"]
HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>"]
GLM = ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
DEEPSEEK = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>",
            "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
            "<｜tool▁sep｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>",
            "<｜tool▁output▁end｜>"]
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


def said(row, key):
    return any(m.get(key) for m in row["messages"])


def uses_tools(row):
    return bool(row.get("tools")) or said(row, "tool_calls") or any(m["role"] == "tool" for m in row["messages"])


def no_tools(row):
    return uses_tools(row) or said(row, "reasoning_content")


def llama_drops(row):
    first = next((m["role"] for m in row["messages"] if m["role"] != "system"), None)
    if row["messages"][1:2] and row["messages"][0]["role"] == row["messages"][1]["role"] == "system":
        first = "system"
    return said(row, "reasoning_content") or (row.get("tools") is not None and first != "user")


def harmony_drops(row):
    return (said(row, "reasoning_content") or any(m["role"] == "system" for m in row["messages"][1:]) or
            any(len(m.get("tool_calls") or []) > 1 for m in row["messages"]))


def r1_drops(row):
    callers = [m for m in row["messages"] if m.get("tool_calls")]
    return bool(row.get("tools")) or said(row, "reasoning_content") or any(m.get("content") for m in callers[1:])


def r1_distill_drops(row):
    return no_tools(row) or sum(m["role"] == "system" for m in row["messages"]) > 1


def text_arguments(row):
    calls = [c.get("function", c) for m in row["messages"] for c in m.get("tool_calls") or []]
    return any(isinstance(c["arguments"], str) for c in calls)


def without_nulls(message, but=()):
    return {k: v for k, v in message.items() if (v is not None or k in but) and not (k == "tool_calls" and not v)}


def never(row):
    return False


class Format:
    """own: the model's template; training: that for assistant-only loss; refused: whether a row is;
    untrained: whether the training template does what the model's would not; clean: of a message."""

    def __init__(self, own, training, refused=never, untrained=never, clean=dict, parts=False, bos="<|begin_of_text|>"):
        self.own, self.training, self.refused, self.untrained = own, training, refused, untrained
        self.clean, self.parts, self.bos = clean, parts, bos


BOS = DEEPSEEK[0]
FORMATS = {
    "chatml": Format(CHATML, CHATML_MARKED, no_tools),
    "qwen3": Format(template("qwen3"), template("qwen3_training")),
    "qwen3-instruct": Format(template("qwen3_instruct_2507"), template("qwen3_instruct_2507_training")),
    "qwen2.5": Format(template("qwen2_5"), template("qwen2_5_training")),
    "llama3": Format(template("llama3"), template("llama3_training"), no_tools),
    "llama3.1": Format(template("llama3_1"), llama31_marked(), llama_drops),
    "llama3.2": Format(template("llama3_2"), llama31_marked(), llama_drops),
    "gpt-oss": Format(template("gptoss"), template("gptoss_training"), harmony_drops, clean=without_nulls),
    "glm4.5": Format(template("glm4moe"), template("glm4moe_training"), clean=without_nulls, parts=True),
    # The training template quotes arguments that are a text, the model's does not.
    "deepseek-r1": Format(template("deepseekv3"), template("deepseekv3_training"), r1_drops, text_arguments,
                          lambda m: without_nulls(m, ["content"]), bos=BOS),
    "deepseek-r1-distill": Format(template("deepseek_r1_distill"), template("deepseek_r1_distill_training"),
                                  r1_distill_drops, clean=lambda m: without_nulls(m, ["content"]), bos=BOS),
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
    t.add_special_tokens([AddedToken(s, normalized=False) for s in HARMONY + GLM + DEEPSEEK])
    return t


def ranges(mask):
    edges = [i for i in range(len(mask) + 1) if (mask[i] if i < len(mask) else 0) != (mask[i - 1] if i else 0)]
    return [list(r) for r in zip(edges[::2], edges[1::2])]


def crc(ids):
    return zlib.crc32(struct.pack(f"<{len(ids)}i", *ids))


# Random conversations -------------------------------------------------------------------------------------------
WORDS = ["", "Hello", "one\ntwo", " edges ", "\n\nlines\n\n", "naïve 東京 한", "<think>a</think>b", "x</think>\n\ny", "{\"a\": 1}",
         "<|im_end|>", "<|end|><|start|>", "<|user|>", "<tool_call>", "/nothink", "<｜User｜>", "👩‍👩‍👧", "　wide　", "tab\t", "\r\n"]


def random_text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(4)))


def random_value(rng, depth=0):
    kind = rng.randrange(8 if depth < 2 else 6)
    if kind == 6:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 7:
        return {rng.choice("abcdé"): random_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return [None, True, rng.randrange(-5, 10**6), rng.random() * 10.0**rng.randrange(-8, 20), random_text(rng), "x"][kind]


def random_schema(rng, depth=0):
    s = {}
    if rng.random() < 0.9:
        s["type"] = rng.choice(["string", "number", "integer", "boolean", "object", "array", "null",
                                ["string", "null"], ["object"], ["string", "number", "boolean"], []])
    if rng.random() < 0.3:
        s["nullable"] = rng.random() < 0.7
    if rng.random() < 0.2:
        s["enum"] = [rng.choice(["a", "b c", "ü", 1, 2.5, True, None]) for _ in range(rng.randrange(4))]
    if rng.random() < 0.3:
        s["default"] = rng.choice(["d", "e f", 1, None, [], {"k": [1]}])
    if rng.random() < 0.4:
        s["description"] = rng.choice(["", "What it is.", "Über \"alles\"\nzwei"])
    if depth < 3:
        if rng.random() < 0.15:
            s["oneOf"] = [random_schema(rng, depth + 1) for _ in range(rng.randrange(4))]
        if s.get("type") == "array" and rng.random() < 0.8:
            s["items"] = random_schema(rng, depth + 1) if rng.random() < 0.9 else rng.choice([{}, True, None])
        if s.get("type") in ("object", "array") and rng.random() < 0.7:
            s["properties"] = {n: random_schema(rng, depth + 1) for n in rng.sample(["p", "q_1", "größe", "items", "type"], rng.randrange(4))}
            if rng.random() < 0.7:
                s["required"] = rng.sample(["p", "q_1", "items", "none"], rng.randrange(4))
    return s


def random_tool(rng):
    f = {"name": rng.choice(["f", "get_weather", "suche"]), "description": rng.choice(["Does.", "", "Zwei\nZeilen ü"])}
    if rng.random() < 0.9:
        f["parameters"] = random_schema(rng) | ({"type": "object"} if rng.random() < 0.8 else {})
    return {"type": "function", "function": f}


def random_conversation(rng):
    tools, reasons, thinks = rng.random() < 0.5, rng.random() < 0.2, rng.random() < 0.4
    arguments = rng.choice([0, 0, 1])  # objects or texts
    messages = [{"role": "system", "content": random_text(rng)}] if rng.random() < 0.5 else []
    for _ in range(rng.randrange(1, 5)):
        if rng.random() < 0.05:
            messages.append({"role": "system", "content": random_text(rng)})
        if rng.random() < 0.9:
            messages.append({"role": "user", "content": random_text(rng)})
        for _ in range(rng.randrange(3) if tools else 0):
            calls = [{"type": "function", "function": {"name": rng.choice(["f", "g"]), "arguments":
                      json.dumps(random_value(rng)) if arguments else {rng.choice("abc"): random_value(rng) for _ in range(rng.randrange(3))}}}
                     for _ in range(rng.choice([1, 1, 1, 2]))]
            m = {"role": "assistant", "content": rng.choice([None, "", random_text(rng)]), "tool_calls": calls}
            if m["content"] is None and rng.random() < 0.5:
                del m["content"]
            if thinks and rng.random() < 0.5:
                m["thinking"] = random_text(rng)
            messages.append(m)
            messages += [{"role": "tool", "content": random_text(rng)} for _ in range(rng.choice([1, 1, len(calls), 0]))]
        if rng.random() < 0.9:
            m = {"role": "assistant", "content": random_text(rng)}
            if reasons and rng.random() < 0.7:
                m["reasoning_content"] = random_text(rng)
            if thinks and rng.random() < 0.7:
                m["thinking"] = random_text(rng)
            messages.append(m)
    if not messages:
        messages = [{"role": "user", "content": "x"}]
    row = {"messages": messages}
    if tools and rng.random() < 0.6:
        row["tools"] = [random_tool(rng) for _ in range(rng.randrange(3))]
    if rng.random() < 0.1:
        for m in messages:
            if m["role"] != "tool" and m.get("content"):
                m["content"] = [{"type": "text", "text": m["content"]}, rng.choice(["", "b", {"type": "text", "text": "c"}])]
    return row


# ----------------------------------------------------------------------------------------------------------------
def entries_of(row, index, name, form, t):
    """The lines of expected.jsonl for a conversation in a format."""
    parts = any(isinstance(m.get("content"), list) for m in row["messages"])
    if form.refused(row) or (parts and not form.parts):
        return []
    tools = json.loads(row["tools"]) if isinstance(row.get("tools"), str) else row.get("tools")
    messages = [form.clean(m) for m in row["messages"]]

    def render(kind, chat, **more):
        return t.apply_chat_template(chat, tools=tools, chat_template=kind, date_string="26 Jul 2024",
                                     strftime_now=date(2025, 8, 5).strftime, **more)

    head, own, training = {"conversation": index, "format": name}, None, None
    try:
        text = render(form.own, messages, tokenize=False)
        ids = render(form.own, messages, return_dict=True)["input_ids"]
        pair = None
        if len(messages) > 1 and messages[-1]["role"] == "assistant":
            prompt = render(form.own, messages[:-1], add_generation_prompt=True, return_dict=True)["input_ids"]
            pair = next((i for i, (a, b) in enumerate(zip(prompt, ids)) if a != b), min(len(prompt), len(ids)))
        own = {"text": text, "tokens": len(ids), "crc": crc(ids), "prompt": pair}
    except Exception as e:  # a template that raises, or adds nothing to a text: refused here too
        head["refused"] = type(e).__name__
    try:
        if not form.untrained(row):
            marked = render(form.training, messages, tokenize=False)
            trained = render(form.training, messages, return_dict=True, return_assistant_tokens_mask=True)
            training = {"tokens": len(trained["input_ids"]), "crc": crc(trained["input_ids"]),
                        "trained": ranges(trained["assistant_masks"])}
    except Exception as e:
        head["refused"] = type(e).__name__
    if own or training:
        head.pop("refused", None)
    if own and training and text == marked:
        return [head | {"rendering": "both"} | own | training]
    out = []
    if own:
        out.append(head | {"rendering": "model"} | own)
    if training:
        out.append(head | {"rendering": "training", "text": marked} | training)
    return out or [head]


def main():
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        rng = random.Random(int(sys.argv[3]))
        with open(folder / "conversations.jsonl", "w", encoding="utf-8") as f:
            for _ in range(int(sys.argv[2])):
                f.write(json.dumps(random_conversation(rng), ensure_ascii=False) + "\n")
    with open(folder / "conversations.jsonl", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    texts = [c for r in rows for m in r["messages"] if isinstance(c := m.get("content"), str)]
    fast = make_tokenizer(texts + [template(n) for n in ("qwen3", "llama3_1")])
    fast.save(str(folder / "tokenizer.json"), pretty=False)
    tokenizers = {bos: PreTrainedTokenizerFast(tokenizer_object=fast, bos_token=bos, eos_token="<|im_end|>")
                  for bos in {f.bos for f in FORMATS.values()}}
    out = [e for index, row in enumerate(rows) for name, form in FORMATS.items()
           for e in entries_of(row, index, name, form, tokenizers[form.bos])]
    with open(folder / "expected.jsonl", "w", encoding="utf-8") as f:
        for entry in out:
            f.write(json.dumps(entry, ensure_ascii=False) + "\n")
    print(f"{len(rows)} conversations, {len(out)} lines, {sum('refused' in e for e in out)} refused")
    for name in FORMATS:
        print(f"  {name}: {sum(e['format'] == name and 'refused' not in e for e in out)}")


main()
