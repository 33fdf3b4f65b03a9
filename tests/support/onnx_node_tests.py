"""ONNX's own tests, those of operators that `onnx.backend.test` generates and those of small
networks, through the importer.

Inputs that the importer says would have to be constants are given as such, and sizes where a test
states that one is 0.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx
import onnx.backend.test

import cvm

CONSTANTS = re.compile(r"given as constants: (.*)")
Outcome = Literal["right", "wrong", "refused", "failed"]


KINDS = ("pytorch-converted", "pytorch-operator", "simple")


class Case(NamedTuple):
    """A model with the inputs and outputs of a test."""

    name: str
    model: Any
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


class Result(NamedTuple):
    """The outcome of one test: operator, name, outcome and reason."""

    op: str
    name: str
    outcome: Outcome
    reason: str


def node_tests() -> Iterator[Case]:
    """The tests of operators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        for case in collect_testcases(None):
            inputs, outputs = ([as_array(v) for v in part] for part in case.data_sets[0])
            yield Case(case.name, case.model, inputs, outputs, case.rtol, case.atol)


def network_tests(kind: str) -> Iterator[Case]:
    """The tests of one of KINDS whose values are tensors."""
    for folder in sorted(Path(onnx.backend.test.__file__).parent.joinpath("data", kind).iterdir()):
        model, data = onnx.load(str(folder / "model.onnx")), folder / "test_data_set_0"
        initial = {t.name for t in model.graph.initializer}
        files = len(list(data.glob("input_*.pb")))
        given = (
            model.graph.input
            if len(model.graph.input) == files
            else [v for v in model.graph.input if v.name not in initial]
        )
        sides = ("input", given), ("output", model.graph.output)
        try:
            values = [
                [read_tensor(data / f"{side}_{n}.pb", v) for n, v in enumerate(vs)]
                for side, vs in sides
            ]
        except (
            ValueError
        ):  # a sequence, which no program takes or gives: it is refused before it is read
            values = [[None] * len(vs) for _, vs in sides]
        yield Case(folder.name, model, *values, 1e-3, 1e-7)


def read_tensor(path: Path, value: Any) -> np.ndarray:
    if value.type.WhichOneof("value") != "tensor_type":
        raise ValueError(f"{value.name} is no tensor")
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return onnx.numpy_helper.to_array(tensor)


Convert = Callable[
    [Any, Mapping[str, Any], Mapping[str, Any]], Any
]  # of a model, sizes of inputs, and constants


def results(
    cases: Iterable[Case], target: str, pattern: str = "", convert: Convert = cvm.from_onnx
) -> Iterator[Result]:
    for case in cases:
        if re.search(pattern, case.name):
            nodes = case.model.graph.node
            op = nodes[0].op_type if len(nodes) == 1 else "several"
            yield Result(op, case.name, *outcome(case, target, convert))


def outcome(case: Case, target: str, convert: Convert) -> tuple[Outcome, str]:
    initial = {t.name for t in case.model.graph.initializer}
    names = [v.name for v in case.model.graph.input]
    if len(names) != len(case.inputs):
        names = [n for n in names if n not in initial]
    inputs = dict(zip(names, case.inputs, strict=False))
    try:
        module, constants = imported(case.model, inputs, convert)
    except cvm.ParseError as e:
        return "refused", str(e)
    try:
        arguments = (a for n, a in inputs.items() if n not in constants and n not in initial)
        found = cvm.compile(module, target=target)(*arguments)
    except Exception as e:  # any at all is a defect, and the others are to run on
        return "failed", f"{type(e).__name__}: {e}"
    several = found if isinstance(found, tuple) else (found,)
    for got, wanted in zip(several, case.outputs, strict=True):
        if (wrong := difference(got, wanted, case.rtol, case.atol)) is not None:
            return "wrong", wrong
    return "right", f"constant: {', '.join(constants)}" if constants else ""


def as_array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def imported(model: Any, inputs: dict[str, Any], convert: Convert) -> tuple[Any, dict[str, Any]]:
    """The program, and the inputs that are constants of it."""
    constants: dict[str, Any] = {}
    dims = {v.name: v.type.tensor_type.shape.dim for v in model.graph.input}
    empty = [
        n for n, ds in dims.items() if any(d.HasField("dim_value") and not d.dim_value for d in ds)
    ]
    sizes = {n: list(np.shape(inputs[n])) for n in empty if n in inputs}
    while True:
        try:
            return convert(model, sizes, constants), constants
        except cvm.ParseError as e:
            wanted = CONSTANTS.search(str(e))
            more = set(wanted[1].split(", ") if wanted else ()) - set(constants)
            if not more:
                raise
            constants |= {n: inputs[n] for n in more}


def difference(got: np.ndarray, wanted: Any, rtol: float, atol: float) -> str | None:
    """In which way a result is not what it should be: floats within the test's bounds, or 1e-5 of
    the largest (f16 and bf16: two units in the last place, 2e-3 and 16e-3).
    """
    wanted = np.asarray(wanted)
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    share = {"float16": 2e-3, "bfloat16": 16e-3}.get(wanted.dtype.name, 1e-5)
    if wanted.dtype.name == "bfloat16":
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    if wanted.dtype.kind not in "fc":
        return (
            None
            if np.array_equal(got, wanted)
            else f"{got.reshape(-1)[:8]}, not {wanted.reshape(-1)[:8]}"
        )
    if np.allclose(got, wanted, rtol, atol, equal_nan=True):
        return None
    finite = np.isfinite(wanted)
    largest = float(np.abs(wanted[finite]).max()) if finite.any() else 0.0
    bound = share * largest
    wide = np.promote_types(wanted.dtype, np.float64)
    if np.allclose(got.astype(wide), wanted.astype(wide), 0, bound, equal_nan=True):
        return None
    return f"{got.reshape(-1)[:8]}, not {wanted.reshape(-1)[:8]}"
