"""Runs the networks of `onnx_export.rs` with onnxruntime, and compares them with what the CPU backend computes.

The largest error of a form is 3e-6 of the deviation.
"""

import json
import sys
from pathlib import Path

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(3)

FOLDER = Path(sys.argv[1])
TOLERANCE = 2e-5


def tensor(entry):
    return np.fromfile(FOLDER / entry["file"], dtype=entry["dtype"]).reshape(entry["shape"])


def check(case):
    path = FOLDER / f"{case['name']}.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    for run in case["runs"]:
        found = session.run(None, {name: tensor(entry) for name, entry in zip(names, run["inputs"], strict=True)})
        for index, (found, entry) in enumerate(zip(found, run["outputs"], strict=True)):
            expected = tensor(entry)
            where = f"output {index} for {run['batch']} samples"
            assert found.dtype == expected.dtype, f"{where}: {found.dtype} and {expected.dtype}"
            assert found.shape == expected.shape, f"{where}: {found.shape} and {expected.shape}"
            if expected.dtype == np.int64:
                assert (found == expected).all(), f"{where}: {found} and {expected}"
                continue
            assert np.isfinite(expected).all(), f"{where}: the CPU backend computes {expected}"
            scale = max(expected.std(), 1e-3 * np.abs(expected).max(), 1e-30)
            error = np.abs(found - expected).max() / scale
            assert error < TOLERANCE, f"{where}: an error of {error} deviations"


cases = json.loads((FOLDER / "cases.json").read_text())
faults = []
for case in cases:
    try:
        check(case)
    except Exception as fault:
        faults.append(f"{case['name']}: {fault}")
print(f"{len(cases) - len(faults)} of {len(cases)} networks agree, onnxruntime {onnxruntime.__version__}")
print("\n".join(faults))
sys.exit(1 if faults or not cases else 0)
