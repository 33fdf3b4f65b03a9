"""Quantised models beside the systems that define them: equal bytes, the same bytes on every target, and the time of a call.

    python benchmarks/quantised.py [MODEL.tflite or folder ...] [--tosa 1000] [--inputs 100] [--calls 20] [--only SECTION ...]

Without models it takes those of tests/models/tflite and of the package pymicro-wakeword. A system that is not installed leaves its rows out.
Times are the least processor time of a call, one thread each, the systems in turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from tflite_cases import FOLDER, digest, inputs  # noqa: E402
import cvm  # noqa: E402
from cvm.importers.exactness import verdicts  # noqa: E402
from cvm.importers.flatbuffer import fields, root  # noqa: E402
from cvm.importers.tflite.schema import SCHEMA  # noqa: E402

Call = Callable[[Sequence[np.ndarray]], Any]
TARGETS: dict[str, dict[str, Any]] = {
    "reference": {"target": "reference"},
    "cuda-sim": {"target": "cuda-sim"},
    "vectors of 16 bytes": {"cpu": "x86-64-v2"},
    "vectors of 32 bytes": {"cpu": "x86-64-v3"},
    "no optimization": {"optimize": 0},
}
SLOW = {"reference": 3, "cuda-sim": 1}  # calls of these targets


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def paths(given: Sequence[str]) -> list[Path]:
    """The files named, and those in the folders named."""
    found = [Path(p) for p in given] or [FOLDER]
    spec = importlib.util.find_spec("pymicro_wakeword")
    if not given and spec is not None and spec.origin is not None:
        found.append(Path(spec.origin).parent / "models")
    return [p for f in found for p in (sorted(f.glob("*.tflite")) if f.is_dir() else [f])]


# Equal bytes


def tosa(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    from tosa_graphs import CASES, MODEL, by_reference_model, make
    from tosa_models import write

    if MODEL is None:
        return
    equal = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.tosa):
            _, made = make(seed)
            wanted = by_reference_model(made, Path(folder))
            if wanted is not None:
                found = cvm.compile(cvm.from_tosa(write(made.graph)), optimize=2 if seed % 8 == 0 else 0)(
                    *made.feed.values()
                )
                same = found.astype(wanted.dtype).tobytes() == wanted.tobytes() and found.shape == wanted.shape
                equal, wrong = equal + same, wrong + (not same)
    yield f"TOSA programs of {len(CASES)} kinds", f"{equal} of {equal + wrong} equal in every byte"


def samples(path: Path, module: Any, count: int) -> list[list[np.ndarray]]:
    """Inputs of a model, without its state."""
    plain = [a.known_type for a in module.functions["main"].arguments if a.name not in module.state]
    return inputs(path.name, [(t.array_shape, t.element.dtype) for t in plain], count)


def outputs(module: Any, rows: Sequence[Sequence[np.ndarray]], **how: Any) -> list[list[np.ndarray]]:
    """The outputs of calls in turn, each with the state that the last has left."""
    f, state, found = cvm.compile(module, **how), list(module.state.values()), []
    for row in rows:
        made = f(*row, *state)
        made = list(made) if isinstance(made, tuple) else [made]
        state = made[len(made) - len(state) :]
        found.append(made[: len(made) - len(state)])
    return found


def accepted(path: Path) -> bytes:
    """The bytes of a model, with axis 0 in the place of one that the tensor does not have, which LiteRT refuses."""
    data = bytearray(path.read_bytes())
    for graph in root(bytes(data), b"TFL3", SCHEMA, "Model").subgraphs:
        for t in graph.tensors:
            if (q := t.quantization) is not None and q.quantized_dimension >= max(len(t.shape), 1):
                start = q._position
                vtable = start - int.from_bytes(data[start : start + 4], "little", signed=True)
                at = vtable + 4 + 2 * fields(SCHEMA["QuantizationParameters"])["quantized_dimension"][0]
                at = start + int.from_bytes(data[at : at + 2], "little")
                data[at : at + 4] = bytes(4)
    return bytes(data)


def litert(path: Path, is_reference: bool) -> tuple[Any, Call]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # type: ignore[import-not-found]

    kind = OpResolverType.BUILTIN_REF if is_reference else OpResolverType.AUTO
    it = Interpreter(model_content=accepted(path), experimental_op_resolver_type=kind, num_threads=1)
    it.allocate_tensors()

    def call(row: Sequence[np.ndarray]) -> list[np.ndarray]:
        for d, a in zip(it.get_input_details(), row, strict=True):
            it.set_tensor(d["index"], a)
        it.invoke()
        return [it.get_tensor(d["index"]).copy() for d in it.get_output_details()]

    return it, call


def tflite(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if not installed("ai_edge_litert"):
        return
    for path in paths(options.models):
        module = cvm.from_tflite(path)
        rows = samples(path, module, options.inputs)
        _, call = litert(path, True)
        pairs = list(zip(outputs(module, rows), map(call, rows), strict=True))
        equal = sum(all(map(np.array_equal, a, b)) for a, b in pairs)
        bounded = sorted({v.operator for v in verdicts(module, "tflite-reference") if v.verdict == "bounded"})
        said = f", bounded: {', '.join(bounded)}" if bounded else ", every operator exact by contract"
        yield f"{path.name} and LiteRT's reference", f"{equal} of {len(rows)} inputs equal in every byte{said}"


def onnx(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if installed("onnx") and installed("onnxruntime"):
        from quantised_onnx import outcomes

        yield from outcomes(range(options.calls))


def targets(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Compare the bytes of targets, processors and numbers of threads with those of this machine's code."""
    for path in paths(options.models):
        module = cvm.from_tflite(path)
        rows = samples(path, module, min(options.inputs, 5))
        wanted, differing = outputs(module, rows), []
        for name, how in TARGETS.items():
            count = SLOW.get(name, len(rows))
            try:
                found = outputs(module, rows[:count], **how)
            except cvm.TargetError:
                continue
            differing += [name] if digest(found) != digest(wanted[:count]) else []
        for n in (1, 2):
            cvm.set_num_threads(n)
            differing += [f"{n} threads"] if digest(outputs(module, rows)) != digest(wanted) else []
        yield (
            f"{path.name} on {len(TARGETS) + 2} targets",
            f"differs on {', '.join(differing)}" if differing else "the same bytes",
        )


# Time


def contenders(path: Path, module: Any) -> tuple[dict[str, Call], Sequence[np.ndarray]]:
    """Calls of a model by the name of the system, and an input."""
    (row,) = samples(path, module, 1)
    f, state = cvm.compile(module), list(module.state.values())
    found: dict[str, Call] = {"cvm": lambda row: f(*row, *state)}
    if path.suffix == ".tflite" and installed("ai_edge_litert"):
        found["LiteRT with XNNPACK"] = litert(path, False)[1]
    if path.suffix == ".onnx" and installed("onnxruntime"):
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.log_severity_level = 1, 3
        session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        found["onnxruntime"] = lambda row: session.run(None, dict(zip(names, row, strict=True)))
    if installed("openvino"):
        import openvino

        compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 1})
        found["OpenVINO"] = compiled.create_infer_request().infer
    return found, row


def speed(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    cvm.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        models = [(p, cvm.from_tflite(p)) for p in paths(options.models)]
        if installed("onnxruntime") and installed("onnx"):
            from quantised_onnx import NETWORKS, quantised

            for name, make in NETWORKS.items():
                path = Path(folder, f"{name}_u8s8_channels.onnx")
                path.write_bytes(quantised(make(), "qoperator_u8s8_channels", Path(folder)))
                module = cvm.from_onnx(path)
                models.append((path, module))
        for path, module in models:
            calls, row = contenders(path, module)
            least = dict.fromkeys(calls, float("inf"))
            for _ in range(options.calls):
                for name, call in calls.items():
                    for _ in range(3):
                        began = time.process_time()
                        call(row)
                        least[name] = min(least[name], time.process_time() - began)
            shown = [f"{name} {1e3 * t:.3f} ms" for name, t in least.items()]
            ratios = [f"{t / least['cvm']:.2f}x of {name}" for name, t in least.items() if name != "cvm"]
            yield f"{path.name}, one thread", "; ".join([", ".join(shown), *ratios])


SECTIONS = {s.__name__: s for s in (tosa, tflite, onnx, targets, speed)}


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("models", nargs="*", metavar="MODEL")
    command.add_argument("--tosa", type=int, default=1000, metavar="N", help="TOSA programs (default: %(default)s)")
    command.add_argument(
        "--inputs", type=int, default=100, metavar="N", help="of each .tflite model (default: %(default)s)"
    )
    command.add_argument("--calls", type=int, default=20, metavar="N", help="of each ONNX model, and turns of timing")
    command.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections (default: all)")
    options = command.parse_args()
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    print(f"| measure | result ({load}) |\n|---|---|")
    for name in options.only:
        for measure, result in SECTIONS[name](options):
            print(f"| {measure} | {result} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
