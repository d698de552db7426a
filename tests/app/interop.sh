#!/bin/sh
# Real clients of the files: h5py and safetensors from .venv. Skipped without them.
. "$(dirname "$0")/common.sh"
python=$SOURCE/.venv/bin/python
"$python" -c 'import h5py, numpy, safetensors' 2>/dev/null || { echo "skipped: no .venv with h5py and safetensors"; exit 77; }
ini run 3
expect 0 'wrote .*/run/model' 2 train "$work/run.ini" --checkpoint.final hf
expect 0 'wrote' 2 import "$model" "$work/imported.h5"
expect 0 'wrote' 2 export "$work/run" "$work/exported"
expect 0 'all digests are right' 2 inspect "$work/imported.h5"
"$python" "$SOURCE/tests/app/interop.py" "$model" "$work" || bad "the Python clients see something else"
finish
