"""Certificates against the programs that they name: onnxruntime, LiteRT and the TOSA reference
model.

Each seed is a random node, graph or model of one of these systems. Where its verdicts say "exact",
results are equal in every bit; where they say "exact if", they are on values that fulfill the
condition. Of bounded ones, shapes and types are equal, and moderate values are near. Which NaN it
is does not count.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cvm.jit.host_processor import host_name
from special_values import special_values

import cvm
from cvm.importers.exactness import SUMS, WITHIN, Imported
from cvm.importers.onnx.exactness import (
    CONDITIONS_ON_INTEGERS,
    HALF,
    PAIRS,
    POOLED,
    SATURATING,
    reduced,
)
from cvm.importers.tflite.rules import FINITE, RULES

Arrays = Sequence[np.ndarray]
Tame = Callable[[np.ndarray, int], np.ndarray]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return a.tobytes() == b.tobytes()
    bits = f"u{a.dtype.itemsize}"
    equal = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    return bool(np.all(equal | (np.isnan(a) & np.isnan(b))))


def no_nan(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), 1, x) if x.dtype.kind == "f" else x


def no_minus_zero(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, 0, x)


def few_factors(x: np.ndarray) -> np.ndarray:
    one = np.where(x > 0, 1, -1 if x.dtype.kind == "i" else 1)
    return np.where(np.arange(x.size).reshape(x.shape) < 6, x % 9, one)


HAS_VNNI = host_name() in ("znver4", "znver5", "sapphirerapids", "graniterapids", "cascadelake")
# what fulfills each condition
TAMED: dict[str, Tame] = {
    "no element is NaN": lambda x, n: no_nan(x),
    "no element is -0.0": lambda x, n: no_minus_zero(x),
    "no element is NaN or -0.0": lambda x, n: no_nan(no_minus_zero(x)),
    POOLED: lambda x, n: np.where(x == -np.inf, 1, no_nan(no_minus_zero(x))),
    "no element is NaN or zero": lambda x, n: no_nan(np.where(x == 0, 1, x)),
    "every element is finite, and so is the scale, which is not zero": lambda x, n: np.where(
        (np.abs(x) > 1e-30) & (np.abs(x) < 1e30), x, 1
    ),
    WITHIN.condition: lambda x, n: np.clip(no_nan(x), -0.9, 127.9),
    reduced("ReduceSum"): lambda x, n: x % (99 if x.itemsize < 8 else 99_999),
    reduced("ReduceProd"): lambda x, n: few_factors(x),
    CONDITIONS_ON_INTEGERS["Div"].condition: lambda x, n: x,  # drawn so
    CONDITIONS_ON_INTEGERS["Pow"].condition: lambda x, n: (
        x % 10 if n else x % 19 - 9 * (x.dtype.kind == "i")
    ),
    CONDITIONS_ON_INTEGERS["Shrink"].condition: lambda x, n: (
        x.astype(np.int64) % (1 << min(24, 8 * x.itemsize - 1))
    ),
    SUMS.condition: lambda x, n: x,
    HALF.condition: lambda x, n: x,
    FINITE.condition: lambda x, n: np.where((np.abs(x) > 1e-9) & (np.abs(x) < 1e9), x, 1),
    RULES["QUANTIZE"].exact[1].condition: lambda x, n: np.clip(no_nan(x), -1e4, 1e4),
    PAIRS.condition: lambda x, n: x if HAS_VNNI else np.clip(x, -SATURATING, SATURATING),
}


class Differs(AssertionError):
    """A certificate that does not hold."""


def run_cvm(module: cvm.Module, arrays: Arrays, seed: int) -> list[np.ndarray]:
    found: Any = cvm.compile(module, target="cpu" if seed % 8 == 0 else "reference")(*arrays)
    return list(found) if isinstance(found, tuple) else [found]


def onnx_outcome(seed: int, ops: Sequence[str] = (), tame: Tame | None = None) -> str:
    """The verdict that was tested, or why none was."""
    import onnx
    import onnxruntime
    from onnx_graphs import case

    drawn = case(seed, ops, tame)
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            drawn.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        wanted = session.run(None, drawn.feed)
    except Exception as e:  # of many kinds, some private
        return f"not run by onnxruntime: {str(e)[:150]}"
    for output, array in zip(drawn.model.graph.output, map(np.asarray, wanted), strict=True):
        output.type.tensor_type.shape.Clear()
        output.type.tensor_type.shape.dim.extend(
            onnx.TensorShapeProto.Dimension(dim_param=f"d{k}") for k in range(array.ndim)
        )
    try:
        module = cvm.from_onnx(drawn.model)
    except cvm.Error as e:
        return f"refused: {[n.message for n in e.diagnostics[0].notes] or e}"
    assert isinstance(module, Imported)
    verdicts = module.verdicts()
    if reason := next((v.said for v in verdicts if v.said.startswith("unlike")), ""):
        return f"not exact: {reason}"
    said = {v.verdict for v in verdicts}
    conditions = {v.said for v in verdicts if v.verdict == "exact if"}
    if conditions and tame is None:
        is_inside = HALF.condition in conditions and len(drawn.ops) > 1
        if is_inside or any(v.verdict != "exact" for v in verdicts[1:]):
            return "exact if: not tried, of values inside of a graph"
        if (condition := conditions.pop()).startswith("axis"):
            return "exact if: not tried, of a size"
        return onnx_outcome(seed, ops, TAMED[condition])
    try:
        found = run_cvm(module, list(drawn.feed.values()), seed)
    except cvm.Error as e:
        return f"refused in the call: {str(e)[:120]}"
    ops_said = [f"{v.operator}: {v.verdict} {v.said}" for v in verdicts]
    for a, b in zip(found, map(np.asarray, wanted), strict=True):
        problem = ""
        if a.shape != b.shape or a.dtype != b.dtype:
            problem = "shape"
        elif "bounded" in said:
            if drawn.calm and a.dtype in (np.float32, np.float64):
                with np.errstate(all="ignore"):
                    if not np.allclose(a, b, 1e-3, 1e-3, equal_nan=True):
                        problem = "far"
        elif not same_bits(a, b):
            problem = "bits"
        if problem:
            raise Differs(
                f"{problem} {drawn.ops}\n{drawn}\n{ops_said}\ncvm: {a.tolist()} {a.dtype}\n"
                f"ort: {b.tolist()} {b.dtype}"
            )
    return "bounded" if "bounded" in said else "exact if" if conditions else "exact"


def tflite_outcome(seed: int) -> str:
    from ai_edge_litert import interpreter as litert  # type: ignore[import-not-found]
    from tflite_cases import CASES, Draw

    name = sorted(CASES)[seed % len(CASES)]
    data, random = CASES[name](Draw(f"{name} {seed}")), np.random.default_rng(seed)
    module = cvm.from_tflite(data)
    verdicts = module.verdicts()
    interpreter = litert.Interpreter(
        model_content=data,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        num_threads=1,
    )
    interpreter.allocate_tensors()
    feed = [special_values(random, d["shape"], d["dtype"]) for d in interpreter.get_input_details()]
    for v in verdicts:
        if v.verdict == "bounded" or (v.verdict == "exact if" and v.said not in TAMED):
            return f"not tried: {v.verdict} {v.said}"
        if v.verdict == "exact if":
            feed = [np.asarray(TAMED[v.said](a, n), a.dtype) for n, a in enumerate(feed)]
    for d, a in zip(interpreter.get_input_details(), feed, strict=True):
        interpreter.set_tensor(d["index"], a)
    try:
        interpreter.invoke()
    except RuntimeError as e:
        return f"not run by LiteRT: {e}"
    wanted = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    found = run_cvm(module, [*feed, *module.state.values()], seed)[: len(wanted)]
    if not all(map(same_bits, found, wanted)):
        raise Differs(f"bits {name}\n{seed}\n{feed}\ncvm: {found}\nLiteRT: {wanted}")
    return "exact"


def tosa_outcome(seed: int) -> str:
    from tosa_graphs import by_reference_model, make

    from cvm.importers.tosa.writer import write

    name, made = make(seed)
    with tempfile.TemporaryDirectory() as folder:
        wanted = by_reference_model(made, Path(folder))
    if wanted is None:
        return "not run: the model finds the graph unpredictable"
    (found,) = run_cvm(cvm.from_tosa(write(made.graph)), list(made.feed.values()), seed)
    if not same_bits(found.astype(wanted.dtype), wanted):
        raise Differs(f"bits {name}\n{seed}\ncvm: {found.tolist()}\nmodel: {wanted.tolist()}")
    return "exact"


def has_packages(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


def has_reference_model() -> bool:
    from tosa_graphs import MODEL

    return MODEL is not None


@dataclass(frozen=True)
class Reference:
    """A program that certificates name: what comes of a seed, and the package that it takes."""

    outcome: Callable[[int], str]
    package: str
    is_installed: Callable[[], bool]


REFERENCES = {
    "onnxruntime": Reference(
        onnx_outcome, "onnxruntime", lambda: has_packages("onnx", "onnxruntime")
    ),
    "tflite-reference": Reference(
        tflite_outcome, "ai-edge-litert", lambda: has_packages("ai_edge_litert")
    ),
    "tosa": Reference(tosa_outcome, "tosa-tools", has_reference_model),
}


def installed() -> list[Reference]:
    return [r for r in REFERENCES.values() if r.is_installed()]


def missing() -> list[str]:
    return [r.package for r in REFERENCES.values() if not r.is_installed()]
