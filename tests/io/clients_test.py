#!/usr/bin/env python3
"""Other people's readers on Annulus's files: h5py and the safetensors library must see what was meant.

    clients_test.py imported FOLDER MODEL.h5       MODEL.h5 came from `annulus import FOLDER MODEL.h5`
    clients_test.py exported FOLDER OUT [MODEL.h5] OUT came from `annulus export`: names, shapes, types and files
                                                   as in FOLDER; values as in MODEL.h5 (a checkpoint, say) if
                                                   given, else as in FOLDER
    clients_test.py checkpoint STEP.h5             shapes, types and digests of a checkpoint
    clients_test.py make FOLDER                    a small folder of BF16, F16 and F32 tensors to try it on

Exits with 77 when h5py, numpy or safetensors are missing, which test drivers report as skipped.
"""
import json
import os
import sys
import zlib

try:
    import h5py
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BLOCK = 4 << 20


def check(good, sentence):
    if not good:
        sys.exit(f"failed: {sentence}")


def bits_to_float(bits):
    """bfloat16 bits as float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def folder_tensors(folder):
    """name -> (type, float32 values) of every tensor of a Hugging Face folder, read by the safetensors library."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(os.path.join(folder, "model.safetensors")):
        files = ["model.safetensors"]
    else:
        with open(index, encoding="utf-8") as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    tensors = {}
    for name in files:
        path = os.path.join(folder, name)
        with safe_open(path, framework="numpy") as f:
            check(f.metadata() == {"format": "pt"}, f"{path} has metadata {f.metadata()}")
            for key in f.keys():
                part = f.get_slice(key)
                kind, shape = part.get_dtype(), tuple(part.get_shape())
                tensors[key] = (kind, shape, path)
    return {k: (t, read_raw(p, k, t, s)) for k, (t, s, p) in tensors.items()}


def read_raw(path, key, kind, shape):
    """The tensor's values as float32. numpy has no bfloat16, so its bytes are taken by the header's offsets."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        begin, end = json.loads(f.read(length))[key]["data_offsets"]
        f.seek(8 + length + begin)
        data = f.read(end - begin)
    if kind == "BF16":
        values = bits_to_float(np.frombuffer(data, np.uint16))
    else:
        values = np.frombuffer(data, {"F32": np.float32, "F16": np.float16}[kind]).astype(np.float32)
    return values.reshape(shape)


def same(a, b):
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


def h5_datasets(group, prefix=""):
    for key in group:
        item = group[key]
        if isinstance(item, h5py.Group):
            yield from h5_datasets(item, prefix + key + "/")
        else:
            yield prefix + key, item


def h5_values(dataset):
    return np.asarray(dataset[()], dtype=np.float32)


def raw_bytes(path, dataset):
    offset, size = dataset.id.get_offset(), dataset.id.get_storage_size()
    if size == 0:
        return b""
    with open(path, "rb") as f:
        f.seek(offset)
        return f.read(size)


def check_file(path, f):
    """What holds for every Annulus file: the mark, and each digest."""
    check(f.attrs["version"] == 1 and f.attrs["complete"] == 1, f"{path} is not marked as complete")
    found = 0
    for name, dataset in h5_datasets(f):
        if name.startswith("digest/"):
            continue
        check(dataset.chunks is None and dataset.compression is None, f"{path}: {name} is not contiguous")
        data = raw_bytes(path, dataset)
        want = [zlib.crc32(data[at:at + BLOCK]) for at in range(0, len(data), BLOCK)]
        have = list(f["digest/" + name][()]) if data else []
        check(have == want, f"{path}: the digest of {name} is not that of its bytes")
        found += 1
    check(found > 0, f"{path} holds nothing")
    return found


def imported(folder, path):
    tensors = folder_tensors(folder)
    with h5py.File(path, "r") as f:
        check_file(path, f)
        names = [n for n, _ in h5_datasets(f["model"])]
        check(sorted(names) == sorted(tensors), f"{path} holds other names than {folder}")
        for name, (kind, values) in tensors.items():
            dataset = f["model/" + name]
            check(dataset.id.get_type().get_size() == (2 if kind == "BF16" else 4), f"{name}: element size")
            check(same(h5_values(dataset), values), f"{name} differs")
            if kind == "BF16":
                bits = np.frombuffer(raw_bytes(path, dataset), np.uint16).reshape(values.shape)
                check(same(bits_to_float(bits), values), f"{name}: its bits differ")
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as config:
            check(text_of(f["run"].attrs["config_json"]) == config.read(), "config_json differs")
    print(f"ok: h5py sees {len(tensors)} tensors of {folder} in {path}")


def text_of(value):
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def narrowed(values, kind):
    """float32 values as the type holds them, rounded to nearest even."""
    if kind == "F32":
        return values
    if kind == "F16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    u = values.view(np.uint32)
    return bits_to_float(((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16))


def exported(folder, out, path=None):
    source, result = folder_tensors(folder), folder_tensors(out)
    check(sorted(source) == sorted(result), f"{out} holds other names than {folder}")
    model = h5py.File(path, "r")["model"] if path else None
    for name, (kind, values) in source.items():
        check(result[name][0] == kind, f"{name} is {result[name][0]}, {kind} in the source")
        if model is not None:
            values = narrowed(h5_values(model[name]), kind)
        check(same(result[name][1], values), f"{name} differs")
    for name in os.listdir(folder):
        if name.endswith((".json", ".jinja", ".txt", ".model")) and not name.endswith(".index.json"):
            with open(os.path.join(folder, name), "rb") as a, open(os.path.join(out, name), "rb") as b:
                check(a.read() == b.read(), f"{name} was not copied as it is")
    print(f"ok: the safetensors library sees {len(result)} tensors in {out}")


def checkpoint(path):
    with h5py.File(path, "r") as f:
        found = check_file(path, f)
        for moment in ("m", "v"):
            for name, dataset in h5_datasets(f["optimizer/" + moment]) if "optimizer" in f else ():
                check(dataset.shape == f["model/" + name].shape, f"{moment} of {name} has another shape")
        for name, dataset in h5_datasets(f["model"]):
            check(bool(np.isfinite(h5_values(dataset)).all()), f"{name} is not finite")
    print(f"ok: h5py sees {found} datasets in {path}, all with their digests")


def make(folder):
    os.makedirs(folder)
    draw = np.random.default_rng(5)
    tensors = {
        "model.embed_tokens.weight": draw.standard_normal((131, 33), np.float32),
        "model.layers.0.mlp.up_proj.weight": draw.standard_normal((1301, 1009), np.float32).astype(np.float16),
        "model.norm.weight": draw.standard_normal(33, np.float32),
        "model.scalar": np.array(np.float32(2.5)),
    }
    save_file(tensors, os.path.join(folder, "f.safetensors"), {"format": "pt"})
    # numpy has no bfloat16: the F16 matrix's bytes are declared as BF16, which any 16 bits are.
    with open(os.path.join(folder, "f.safetensors"), "rb") as f:
        data = f.read()
    os.remove(os.path.join(folder, "f.safetensors"))
    half = {"model.head.weight": draw.standard_normal((7, 33), np.float32).astype(np.float16)}
    save_file(half, os.path.join(folder, "model-00002-of-00002.safetensors"), {"format": "pt"})
    with open(os.path.join(folder, "model-00001-of-00002.safetensors"), "wb") as f:
        length = int.from_bytes(data[:8], "little")
        header = data[8:8 + length].replace(b'"F16"', b'"BF16"').rstrip()
        header += b" " * (-len(header) % 8)
        f.write(len(header).to_bytes(8, "little") + header + data[8 + length:])
    index = {n: "model-00001-of-00002.safetensors" for n in tensors}
    index.update({n: "model-00002-of-00002.safetensors" for n in half})
    for name, text in (("model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": index})),
                       ("config.json", '{"model_type": "qwen3", "note": "gr\u00f6\u00dfe"}'),
                       ("generation_config.json", "{}")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)


if __name__ == "__main__":
    modes = {"imported": imported, "exported": exported, "checkpoint": checkpoint, "make": make}
    if len(sys.argv) < 3 or sys.argv[1] not in modes:
        sys.exit(__doc__)
    modes[sys.argv[1]](*sys.argv[2:])
