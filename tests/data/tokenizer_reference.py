#!/usr/bin/env python3
"""What the tokenizers library makes of a corpus of awkward texts, for tokenizer_reference_test.cpp.

    tokenizer_reference.py FOLDER    trains a tokenizer file per family and writes FOLDER/FAMILY.json,
                                     FOLDER/FAMILY.ids and FOLDER/corpus
    tokenizer_reference.py FOLDER TOKENIZER.json    the same with that file instead, as FOLDER/given.*

corpus: per text an 8-byte length and its UTF-8; ids: per text an 8-byte count and 4-byte ids.
"""
import random
import struct
import sys
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LETTERS = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
SMALL = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
FAMILIES = {
    "qwen": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "llama": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "o200k": [
        rf"[^\r\n\p{{L}}\p{{N}}]?[{LETTERS}]*[{SMALL}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{LETTERS}]+[{SMALL}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "deepseek": [
        r"\p{N}{1,3}",
        r"[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "deepseek2": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+"],
    "gpt2": [],
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>x", "<|begin▁of▁sentence|>"]
PLAIN = ["<think>", "</think>", "\n\n\n\n", "é́", "Å x"]


def assigned(first, last):
    return [chr(c) for c in range(first, last) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]


def corpus(rng):
    spaces = list(" \t\n\r\v\f\u0085\u00a0\u1680\u180e\u2000\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff")
    marks = [c for c in assigned(0x300, 0x370)] + ["\u3099", "\u309a", "\u0f71", "\u0f72", "\u05bc", "\u0651"]
    words = "the The THE cat's cat'S don't I'LL we\u2019re 'ſ x'K straße ﬁ 12 1234567 3.14 e=mc² ½ naïve Ångström".split()
    words += ["你好", "世界", "カタカナ", "がぎ", "か\u3099", "한국어", "\u1112\u1161\u11ab", "עברית", "العربية", "हिन्दी",
              "👩‍👩‍👧", "🇩🇪", "x86_64", "snake_case", "CamelCaseWORD", "/usr/bin", "a\u0300\u0323", "\u212b", "\u2126"]
    everything = assigned(0, 0x110000)
    texts = ["", " ", "\n", "a", "X.<|im_end|>", "  x", "\r\n\r\n  a", "\u0085x\u0085\u0085 y", "a\u180eb \u180e c"]
    texts += SPECIAL + PLAIN + ["<|im_start", "<|im_end|>xy<|im_end|><|im_end|>", "a <think> b</think>\n\n\n\n\nc", "e\u0301\u0301"]
    for block in range(0, 0x110000, 128):  # every block: its characters in a row, apart, and each between letters
        chars = assigned(block, block + 128)
        if not chars or 0xE080 <= block < 0xF880 or block >= 0xF0080:
            continue
        texts += ["".join(chars), " ".join(chars), "".join("a" + c + "1" for c in chars), "\n".join(c + " " + c for c in chars)]
    for n in range(2000):
        k = rng.randrange(1, 60)
        pick = rng.randrange(8)
        if pick == 0:
            t = [rng.choice(spaces) for _ in range(k)]
        elif pick == 1:
            t = [rng.choice("aeoç ") + "".join(rng.choice(marks) for _ in range(rng.randrange(6))) for _ in range(k)]
        elif pick == 2:
            t = [chr(rng.randrange(0x80)) for _ in range(k)]
        elif pick == 3:
            t = [rng.choice(everything) for _ in range(k)]
        elif pick == 4:
            t = [rng.choice(["\r\n", "\n", "\r", " ", "  ", "\t", "x", "'s", ".", "9"]) for _ in range(k)]
        elif pick == 5:
            t = [rng.choice(SPECIAL + PLAIN + words + spaces) for _ in range(k)]
        else:
            t = [w for _ in range(k) for w in (rng.choice(words), rng.choice(["", " ", "  ", ", ", "\n", "\r\n"]))]
        texts.append("".join(t))
    long, half = 1 << 20, 1 << 16
    texts += ["a" * long, "".join(rng.choice("abcdefgh") for _ in range(half)), " " * long, "é" * half,
              "\n" * half, "好" * half, "A" * half, "".join(rng.choice("01234567") for _ in range(half)),
              "-" * half, "\u0301\u0323" * half, " " * half + "x", " \n" * half]
    return texts


def write(path, rows):
    with open(path, "wb") as f:
        for row in rows:
            f.write(row)


def train(name, texts):
    t = Tokenizer(models.BPE(ignore_merges=name in ("llama", "o200k")))
    if name in ("qwen", "gpt2"):
        t.normalizer = normalizers.NFC()
    elif name == "deepseek":
        t.normalizer = normalizers.Sequence([])
    steps = [pre_tokenizers.Split(Regex(e), "isolated") for e in FAMILIES[name]]
    if name == "deepseek2":
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == "gpt2"))
    t.pre_tokenizer = pre_tokenizers.Sequence(steps)
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False))
    t.add_special_tokens([AddedToken(s, normalized=name == "deepseek") for s in SPECIAL])
    t.add_tokens([AddedToken(s, normalized=name in ("llama", "gpt2")) for s in PLAIN])
    return t


def main():
    folder = Path(sys.argv[1])
    rng = random.Random(5)
    texts = corpus(rng)
    write(folder / "corpus", (struct.pack("<Q", len(b)) + b for b in (t.encode() for t in texts)))
    if len(sys.argv) > 2:
        tokenizers = {"given": Tokenizer.from_file(sys.argv[2])}
    else:
        short = [t for t in texts if len(t) < 10000]
        tokenizers = {name: train(name, short) for name in FAMILIES}
    for name, t in tokenizers.items():
        t.save(str(folder / f"{name}.json"))
        ids = (e.ids for e in t.encode_batch_fast(texts, add_special_tokens=False))
        write(folder / f"{name}.ids", (struct.pack(f"<Q{len(i)}i", len(i), *i) for i in ids))
    print(f"{len(texts)} texts")


main()
