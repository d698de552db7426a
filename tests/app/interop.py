"""What h5py and safetensors see in a checkpoint, an imported file and an exported folder."""
import json
import pathlib
import sys

import h5py
import numpy as np
from safetensors import safe_open

source, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def raw_tensors(folder):
    """Name -> (dtype, shape, bytes), read without a framework: numpy has no bfloat16."""
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as f:  # the library checks the file
            names = list(f.keys())
        data = path.read_bytes()
        n = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + n])
        assert sorted(k for k in header if k != "__metadata__") == sorted(names), path
        for name in names:
            entry = header[name]
            begin, end = entry["data_offsets"]
            out[name] = (entry["dtype"], tuple(entry["shape"]), data[8 + n + begin : 8 + n + end])
    return out


def floats(dtype, shape, data):
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32).reshape(shape)


def rounded_to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32).reshape(x.shape)


def datasets(group):
    found = {}
    group.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


want = raw_tensors(source)
with h5py.File(work / "imported.h5") as f:
    imported = datasets(f["model"])
assert imported.keys() == want.keys(), imported.keys() ^ want.keys()
for name, (dtype, shape, data) in want.items():
    assert imported[name].shape == shape, name
    np.testing.assert_array_equal(imported[name].astype(np.float32), floats(dtype, shape, data), err_msg=name)

with h5py.File(work / "run" / "checkpoints" / "step-000003.h5") as f:
    trained = datasets(f["model"])
    moments = datasets(f["optimizer/m"])
    assert f["run"].attrs["step"] in ("3", b"3"), f["run"].attrs["step"]
assert trained.keys() == want.keys() and moments.keys() == want.keys()
assert all(trained[n].shape == want[n][1] and moments[n].shape == want[n][1] for n in want)
assert all(trained[n].dtype == np.float32 for n in want)
assert any(np.any(moments[n] != 0) for n in want)

for folder in (work / "run" / "model", work / "exported"):
    got = raw_tensors(folder)
    assert got.keys() == want.keys(), folder
    for name, (dtype, shape, data) in got.items():
        assert (dtype, shape) == want[name][:2], (folder, name)
        expected = rounded_to_bf16(trained[name]) if dtype == "BF16" else trained[name]
        np.testing.assert_array_equal(floats(dtype, shape, data), expected, err_msg=f"{folder} {name}")
    for path in source.iterdir():
        if path.suffix == ".safetensors" or path.name.endswith(".index.json"):
            continue
        copied = (folder / path.name).read_text()
        if path.name == "config.json":
            assert json.loads(copied) == json.loads(path.read_text()), folder
        else:
            assert copied == path.read_text(), (folder, path.name)
print("h5py", h5py.__version__, "reads", len(want), "tensors of each file")
