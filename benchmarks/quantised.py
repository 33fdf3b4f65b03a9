"""Quantized models beside the systems that define them: equal bytes, the same bytes on every
target, and the time of a call.

    python benchmarks/quantised.py [MODEL.tflite or folder ...] [--tosa 1000] [--inputs 100]
    [--calls 20] [--only SECTION ...]

Without models it takes those of tests/models/tflite and of the package pymicro-wakeword. Peers are
the packages ai-edge-litert, onnxruntime, openvino and tosa-tools; ziglang and qemu-aarch64 run code
for 64-bit Arm. A system that is not installed leaves its rows out. Times: one thread each, in every
round a process in which the systems take turns; of a round the least processor time of a call of
each, of the rounds the medians of those and of their ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from measure import processor  # noqa: E402
from tflite_cases import FOLDER, digest, inputs  # noqa: E402

import cvm  # noqa: E402
from cvm.cli import main as cvm_command  # noqa: E402
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

    from cvm.importers.tosa.writer import write

    if MODEL is None:
        return
    equal = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.tosa):
            _, made = make(seed)
            wanted = by_reference_model(made, Path(folder))
            if wanted is not None:
                found = cvm.compile(
                    cvm.from_tosa(write(made.graph)), optimize=2 if seed % 8 == 0 else 0
                )(*made.feed.values())
                same = (
                    found.astype(wanted.dtype).tobytes() == wanted.tobytes()
                    and found.shape == wanted.shape
                )
                equal, wrong = equal + same, wrong + (not same)
    yield f"TOSA programs of {len(CASES)} kinds", f"{equal} of {equal + wrong} equal in every byte"


GENERATED = (  # of the specification's first version, without what is left to a later one
    "--test-type",
    "negative",
    "--tosa-version",
    "1.0.0",
    "--profile",
    "tosa-pro-int",
    "--extension",
    "tosa-ext-int16",
    "tosa-ext-int4",
    "tosa-ext-doubleround",
    "tosa-ext-controlflow",
    "tosa-ext-variable",
    "--num-rand-permutations",
    "1",
    "--tensor-dim-range",
    "1,6",
    "--max-batch-size",
    "2",
    "--lazy-data-generation",
)
# without a rule, or on which the generator fails
LATER = r"^(?!.*(adaptive|shape|block_scaled)|dim$|matmul_t|row_gather|conv3d|concat)"
KIND = re.compile(r"(.*?)(?:_\d+x.*)?_ERRORIF_([A-Za-z0-9]+)")


def refused(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Graphs that each break one rule (ERROR_IF) of the specification, by the generator of its
    conformance tests.
    """
    if (
        builder := shutil.which("tosa_verif_build_tests", path=str(Path(sys.executable).parent))
    ) is None:
        return
    library = Path(
        str(importlib.util.find_spec("tosa_reference_model").submodule_search_locations[0])
    )  # type: ignore[union-attr, index]
    accepted: Counter[str] = Counter()
    rules, count = set(), 0
    with tempfile.TemporaryDirectory() as folder:
        given = [
            "--generate-lib-path",
            str(library / "libtosa_reference_generate_lib.so"),
            "--filter",
            LATER,
            *GENERATED,
        ]
        subprocess.run([builder, "-o", folder, *given], check=True, capture_output=True)
        for path in sorted(Path(folder).rglob("*.tosa")):
            kind = KIND.match(path.parent.name)
            name = " ".join(kind.groups()) if kind else path.parent.name
            rules.add(name)
            count += 1
            try:
                cvm.from_tosa(path)
                accepted[name] += 1
            except cvm.ParseError:
                pass
    kept = (
        f"; accepted: {', '.join(f'{n} of {name}' for name, n in accepted.items())}"
        if accepted
        else ""
    )
    yield (
        f"negative cases of TOSA's conformance tests, {len(rules)} kinds",
        f"{count - accepted.total()} of {count} refused{kept}",
    )


def samples(path: Path, module: Any, count: int) -> list[list[np.ndarray]]:
    """Inputs of a model, without its state."""
    plain = [a.known_type for a in module.functions["main"].arguments if a.name not in module.state]
    return inputs(path.name, [(t.array_shape, t.element.dtype) for t in plain], count)


def outputs(
    module: Any, rows: Sequence[Sequence[np.ndarray]], **how: Any
) -> list[list[np.ndarray]]:
    """The outputs of calls in turn, each with the state that the last has left."""
    f, state, found = cvm.compile(module, **how), list(module.state.values()), []
    for row in rows:
        made = f(*row, *state)
        made = list(made) if isinstance(made, tuple) else [made]
        state = made[len(made) - len(state) :]
        found.append(made[: len(made) - len(state)])
    return found


def accepted(path: Path) -> bytes:
    """The bytes of a model, with axis 0 in the place of one that the tensor does not have, which
    LiteRT refuses.
    """
    data = bytearray(path.read_bytes())
    for graph in root(bytes(data), b"TFL3", SCHEMA, "Model").subgraphs:
        for t in graph.tensors:
            if (q := t.quantization) is not None and q.quantized_dimension >= max(len(t.shape), 1):
                start = q._position
                vtable = start - int.from_bytes(data[start : start + 4], "little", signed=True)
                at = (
                    vtable
                    + 4
                    + 2 * fields(SCHEMA["QuantizationParameters"])["quantized_dimension"][0]
                )
                at = start + int.from_bytes(data[at : at + 2], "little")
                data[at : at + 4] = bytes(4)
    return bytes(data)


def litert(path: Path, is_reference: bool) -> tuple[Any, Call]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # type: ignore[import-not-found]

    kind = OpResolverType.BUILTIN_REF if is_reference else OpResolverType.AUTO
    it = Interpreter(
        model_content=accepted(path), experimental_op_resolver_type=kind, num_threads=1
    )
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
        bounded = sorted(
            {v.operator for v in verdicts(module, "tflite-reference") if v.verdict == "bounded"}
        )
        said = (
            f", bounded: {', '.join(bounded)}" if bounded else ", every operator exact by contract"
        )
        yield (
            f"{path.name} and LiteRT's reference",
            f"{equal} of {len(rows)} inputs equal in every byte{said}",
        )


def onnx(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if installed("onnx") and installed("onnxruntime"):
        from quantised_onnx import outcomes

        found = dict(outcomes(range(options.calls)))
        others = "".join(f"; {name}: {said}" for name, said in found.items() if said != "equal")
        equal = sum(said == "equal" for said in found.values())
        yield (
            f"ONNX models by onnxruntime.quantization, {options.calls} inputs each",
            f"{equal} of {len(found)} equal{others}",
        )


CALL = """#include <stdio.h>
#include "program.h"
{buffers}
int main(void) {{
  while ({read}) {{
    if (program_main({arguments})) return 1;
    {write}
  }}
}}
"""


def on_arm(
    path: Path, module: Any, rows: Sequence[Sequence[np.ndarray]], folder: Path
) -> list[list[np.ndarray]]:
    """The outputs by code for 64-bit Arm, under qemu."""
    main = module.functions["main"]
    target = ["--triple", "aarch64-linux-gnu", "--cpu", "cortex-a76"]
    files = ["-o", str(folder / "program.a"), "--header", str(folder / "program.h")]
    if cvm_command(["build", str(path), *target, *files]):
        raise cvm.Error("the program was not built")
    values = [
        *((f"a{n}", a) for n, a in enumerate(main.arguments)),
        *((f"r{n}", r) for n, r in enumerate(main.results)),
    ]
    sizes = {
        name: int(np.prod(v.type.array_shape)) * v.type.element.dtype.itemsize for name, v in values
    }
    first = len(main.arguments)
    state = list(module.state)
    text = CALL.format(
        buffers="\n".join(
            f"static _Alignas(64) unsigned char {n}[{size}];" for n, size in sizes.items()
        ),
        read=" && ".join(f"fread({n}, {sizes[n]}, 1, stdin)" for n, _ in values[:first]),
        arguments=", ".join(f"(void *){n}" for n, _ in values),
        write=" ".join(f"fwrite({n}, {sizes[n]}, 1, stdout);" for n, _ in values[first:]),
    )
    (folder / "main.c").write_text(text, "utf-8")
    link = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "aarch64-linux-musl",
        "-O1",
        "-w",
        "main.c",
        "program.a",
        "-o",
        "run",
    ]
    subprocess.run(link, check=True, cwd=folder)
    kept, found = list(module.state.values()), []
    for row in rows:
        fed = b"".join(np.ascontiguousarray(x).tobytes() for x in (*row, *kept))
        done = subprocess.run(
            ["qemu-aarch64", "./run"], input=fed, capture_output=True, check=True, cwd=folder
        ).stdout
        made, at = [], 0
        for name, v in values[first:]:
            made.append(
                np.frombuffer(done[at : at + sizes[name]], v.type.element.dtype).reshape(
                    v.type.array_shape
                )
            )
            at += sizes[name]
        kept = made[len(made) - len(state) :]
        found.append(made[: len(made) - len(state)])
    return found


def targets(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Compare the bytes of targets, processors and numbers of threads with those of this machine's
    code.
    """
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
        compared = len(TARGETS) + 2
        if installed("ziglang") and shutil.which("qemu-aarch64"):
            with tempfile.TemporaryDirectory() as folder:
                arm = on_arm(path, module, rows, Path(folder))
            differing += ["aarch64"] if digest(arm) != digest(wanted) else []
            compared += 1
        yield (
            f"{path.name} on {compared} "
            f"targets{' with aarch64 under qemu' * (compared > len(TARGETS) + 2)}",
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

        given = path.read_bytes() if path.suffix == ".onnx" else accepted(path)
        with tempfile.TemporaryDirectory() as folder:
            (file := Path(folder, path.name)).write_bytes(given)
            with contextlib.suppress(RuntimeError):  # of operators that it does not have
                compiled = openvino.Core().compile_model(file, "CPU", {"INFERENCE_NUM_THREADS": 1})
                found["OpenVINO"] = compiled.create_infer_request().infer
    return found, row


def imported(path: Path) -> Any:
    return cvm.from_onnx(path) if path.suffix == ".onnx" else cvm.from_tflite(path)


def in_turns(path: Path, turns: int = 15) -> dict[str, float]:
    """The least processor time of a call of each system, in seconds, in this process."""
    cvm.set_num_threads(1)
    calls, row = contenders(path, imported(path))
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(turns):
        for name, call in calls.items():
            for _ in range(3):
                began = time.process_time()
                call(row)
                least[name] = min(least[name], time.process_time() - began)
    return least


def speed(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        models = paths(options.models)
        if installed("onnxruntime") and installed("onnx"):
            import quantised_networks

            models += quantised_networks.write(Path(folder))
        for path in models:
            command = [sys.executable, str(Path(__file__)), "--round", str(path)]
            rounds = [json.loads(subprocess.check_output(command)) for _ in range(options.rounds)]
            shown = [
                f"{name} {1e3 * statistics.median(r[name] for r in rounds):.3f} ms"
                for name in rounds[0]
            ]
            peers = [name for name in rounds[0] if name != "cvm"]
            ratios = [
                f"{statistics.median(r[n] / r['cvm'] for r in rounds):.2f}x as fast as {n}"
                for n in peers
            ]
            yield f"{path.stem}, one thread", f"{', '.join(shown)}; {', '.join(ratios)}"


SECTIONS = {s.__name__: s for s in (tosa, refused, tflite, onnx, targets, speed)}


def main() -> int:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("models", nargs="*", metavar="MODEL")
    command.add_argument(
        "--tosa", type=int, default=1000, metavar="N", help="TOSA programs (default: %(default)s)"
    )
    command.add_argument(
        "--inputs",
        type=int,
        default=100,
        metavar="N",
        help="of each .tflite model (default: %(default)s)",
    )
    command.add_argument(
        "--calls",
        type=int,
        default=20,
        metavar="N",
        help="of each ONNX model (default: %(default)s)",
    )
    command.add_argument(
        "--rounds",
        type=int,
        default=5,
        metavar="N",
        help="of timing, a process each (default: %(default)s)",
    )
    command.add_argument("--round", metavar="MODEL", help="one round of timing of a model, as JSON")
    command.add_argument(
        "--only",
        nargs="+",
        choices=SECTIONS,
        default=list(SECTIONS),
        help="sections (default: all)",
    )
    options = command.parse_args()
    if options.round:
        print(json.dumps(in_turns(Path(options.round))))
        return 0
    print("| measure | result |\n|---|---|")
    for name in options.only:
        for measure, result in SECTIONS[name](options):
            print(f"| {measure} | {result} |", flush=True)
    packages = ("numpy", "llvmlite", "ai-edge-litert", "onnxruntime", "openvino", "tosa-tools")
    versions = [
        f"{n} {importlib.metadata.version(n)}"
        for n in packages
        if installed(n.replace("-", "_").replace("tosa_tools", "tosa_reference_model"))
    ]
    print(
        "\n"
        f"Measured {date.today()}, {processor()}, {os.cpu_count()} cores, "
        f"{platform.system()}, Python {platform.python_version()}; {', '.join(versions)}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
