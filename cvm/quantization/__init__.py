"""Post-training quantization: a float program and data to a program of integers.

    cvm.quantize("model.onnx", images, scheme="tflite")

The program is simplified to layers with constant weights and functions between them, run on the
data to see which numbers each value has, and emitted again by the rules of a scheme.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal

import numpy as np

import cvm
from cvm.dialect.ir.function import Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.support.compilation_context import USER_TRACEBACK
from cvm.dialect.support.diagnostics import Diagnostic
from cvm.dialect.types.tensor_types import TensorType

from .calibration import Data, Observed, RangeMethod, batches, run
from .equalize import equalize
from .fake_quantize import fake_quantize
from .float_graph import FloatGraph, Key, float_graph
from .powers_of_two import PowersOfTwo
from .qdq import Qdq
from .report import Report, compared
from .scheme import Parameters, Scheme
from .sensitivity import most_that_fit, ranking
from .tflite import Tflite, Tosa

SCHEMES: dict[str, type[Scheme]] = {s.name: s for s in (Tflite, PowersOfTwo, Tosa, Qdq)}
METHODS = ("minmax", "percentile", "mse")
OWN = (
    "weighted",
    "sum",
    "product",
    "total",
    "contracted",
)  # rules whose results have parameters, and a clamp


@dataclass(frozen=True, eq=False)
class QuantizedModule(Module):
    """A program of integers, with the report of what it was made of.

    Arguments and results have the attributes `scale` and `zero_point`: an integer q stands for
    `(q - zero_point) * scale`.
    """

    report: Report = field(default_factory=Report, kw_only=True)

    def to_tflite(self) -> bytes:
        """The bytes of a .tflite model of the same bits, of a program of the scheme tflite.

        An unknown size is 1 until it is set in the model. Raises Error with the operation that no
        operator of .tflite states, and its line.
        """
        from .tflite_model import tflite_model

        return tflite_model(self)

    def to_tosa(self) -> bytes:
        """The bytes of a TOSA flatbuffer of the same bits, of a program of the scheme tosa, whose
        sizes are known.

        Raises Error with the operation that no operator of TOSA states, and its line.
        """
        from .tosa_model import tosa_model

        return tosa_model(self)

    def to_onnx(self) -> bytes:
        """The bytes of an ONNX model of the same bits, of a program of the scheme qdq, with the
        package `onnx`.

        Raises Error with the operation that no operator of ONNX states, and its line.
        """
        from .onnx_model import onnx_model

        return onnx_model(self)


@USER_TRACEBACK
def quantize(
    model: Module | str | PathLike[str] | Callable[..., Any],
    data: Data,
    scheme: Literal["tflite", "cvm", "tosa", "qdq"] = "tflite",
    *,
    entry: str = "main",
    method: RangeMethod = "mse",
    weight_bits: int | Mapping[str, int] = 8,
    activation_bits: int | Mapping[str, int] = 8,
    within: float | None = None,
    equalized: bool = True,
    float_io: bool = False,
    progress: Callable[[Iterable[Any], str], Iterable[Any]] | None = None,
) -> QuantizedModule:
    """A float program as one of integers alone, from its inputs to its results.

    `model` is a module, the path of a program or a model (.cvm, .onnx, .tflite, .mlir), or a Python
    function, which is traced for one sample. `data` shows the range of each value: an array with
    samples along axis 0, a dictionary of one for each argument, an iterable of samples (an array, a
    tuple, or a dictionary), or the path of an .npy or .npz file or of a folder of such files and
    pictures. `scheme` is "tflite" (8 bits, a scale for each channel
    of weights, LiteRT's rounding), "cvm" (operators of the cvm dialect alone, powers of two),
    "tosa" (as tflite, with TOSA's rounding) or "qdq" (as tflite, with the float factors of
    onnxruntime, and operations on two values that are those of floats).

    Batch normalization is folded into layers, clamps are fused, other functions of one value become
    tables, channels are equalized across layers and biases corrected. Ranges are chosen by
    `method`: "minmax", "percentile" (99.99 of 100 elements) or "mse" (the least mean squared
    error). `weight_bits` is 8 or 4, and `activation_bits` 8 or 16 (of the schemes cvm and tflite):
    one number, or numbers by the names of layers and values, where "" stands for all others.
    `within` is a budget, such as 0.01: layers with 8-bit weights get 4 bits, the least sensitive
    first, as long as that share of the results at most differs from the float program: of rows, by
    the place of the largest element. `equalized=False` leaves the channels of weights as they are.
    By `float_io` arguments and results stay floats, and the program has the conversions.
    `progress` is called with the batches and the name of the step, and gives them back, as tqdm
    does. Raises Error with each operation that cannot be quantized, and its line.
    """
    if (made := SCHEMES.get(scheme)) is None:
        raise cvm.Error(f"scheme is one of {', '.join(SCHEMES)}; got {scheme!r}")
    if within is not None and not 0 <= within < 1:
        raise cvm.Error(f"within is a share from 0 to 1, such as 0.01; got {within}")
    if method not in METHODS:
        raise cvm.Error(f"method is one of {', '.join(METHODS)}; got {method!r}")
    module = _read(model, data, entry)
    graph = float_graph(module, entry)
    _check_floats(graph)
    calls = list(batches(data, graph.function.arguments))
    if equalized:
        equalize(graph)
    plan = Plan(graph, made)
    layers = {plan.own_key(o.results[0]): o.results[0] for o in plan.layers}
    weights = plan.widths("weight_bits", weight_bits, layers, (8, 4))
    widths = plan.widths("activation_bits", activation_bits, plan.parameter_keys(), made.widths)
    shown = progress or (lambda items, _: items)
    observed = _observed(graph, plan, shown(calls, "calibrating"))
    parameters = plan.parameters(observed, method, widths)
    means = {v: observed[v].mean for v in plan.layer_inputs}
    bits = {layers[key]: n for key, n in weights.items()}
    wide = [o for o in plan.layers if bits[o.results[0]] == 8]
    order = [] if within is None else ranking(graph, made, wide, calls, shown)
    of_name = {o.results[0].name: o.results[0] for o in wide}

    def emitted(narrow: int) -> QuantizedModule:
        """The program with the first layers of the ranking in 4 bits."""
        ranked = [replace(r, bits=4 if n < narrow else 8) for n, r in enumerate(order)]
        chosen = bits | {of_name[r.name]: r.bits for r in ranked}
        emitter = made(graph, parameters, plan.fused, plan.paths, means, chosen)
        program = emitter.program(float_io)
        report = compared(graph, emitter, program, observed, shown(calls, "comparing"))
        report.ranking = ranked
        return QuantizedModule(program.functions, program.filename, report=report)

    if within is None:
        return emitted(0)
    return emitted(most_that_fit(len(order), lambda n: emitted(n).report, within))


def _read(model: object, data: Any, entry: str) -> Module:
    """The program; that of a Python function takes one sample."""
    if isinstance(model, (str, PathLike)):
        from cvm.terminal.files import load

        return load(str(model))
    if isinstance(model, Module):
        return model
    if not callable(model):
        raise cvm.Error(
            f"expected a module, a path or a Python function, got {type(model).__name__}"
        )
    if not isinstance(data, np.ndarray) or not data.ndim or entry != "main":
        raise cvm.Error("a Python function is traced for data that is one array, of samples")
    traced: Any = model if hasattr(model, "trace") else cvm.compile(model)
    program = traced.trace(data[:1])
    (function,) = program.functions.values()
    return Module({"main": function}, program.filename)


def _check_floats(graph: FloatGraph) -> None:
    """Refuse arguments and results that are no tensors of floats."""
    for value in (*graph.function.arguments, *graph.function.results):
        type = value.known_type
        if not isinstance(type, TensorType) or type.element.kind != "float":
            raise cvm.Error(
                Diagnostic(
                    f"expected a program of floats, but %{value.name} is {type}",
                    value.span,
                    "quantize",
                )
            )
    if not graph.function.arguments:
        raise cvm.Error(Diagnostic("the program has no arguments", graph.function.span, "quantize"))


class Plan:
    """The values of a float graph that become integers, and the clamps that their roots are emitted
    with.
    """

    def __init__(self, graph: FloatGraph, scheme: type[Scheme]) -> None:
        self.graph, self.scheme, self.paths = graph, scheme, graph.paths()
        self.made = graph.definitions()
        # a value of each function of a root
        self.shown: dict[Key, Value] = {(a, ()): a for a in graph.function.arguments}
        read: set[Key] = set()
        self.layers: list[Operation] = []
        self.layer_inputs: list[Value] = []
        for operation in graph.live:
            (first, *_) = operation.results
            self.shown.setdefault(self.paths[first].key, first)
            if self.paths[first].root is first:
                operands = graph.operands(operation)
                read.update(self.paths[v].key for v in operands)
                if scheme.rule_name(graph, operation) == "weighted":
                    self.layers.append(operation)
                    self.layer_inputs += operands[:1]
        returned = {self.paths[r].key for r in graph.function.results if graph.array(r) is None}
        self.wanted = read | returned
        by_root = defaultdict[Value, list[Key]](list)
        for key in self.wanted:
            by_root[key[0]].append(key)
        # that nothing reads, neither an operation nor a table
        self.returned = {k for k in returned - read if k[1] or len(by_root[k[0]]) == 1}
        self.fused = {
            root: keys[0]
            for root, keys in by_root.items()
            if len(keys) == 1
            and keys[0][1]
            and self.owns(root)
            and root in self.made
            and graph.clamp(keys[0][1]) is not None
        }

    def owns(self, root: Value) -> bool:
        """Test whether a root has parameters of its own, and not those of an operand."""
        operation = self.made.get(root)
        return operation is None or self.scheme.rule_name(self.graph, operation) in OWN

    def keys(self) -> list[Key]:
        """The values that are chosen parameters for."""
        roots = {key[0] for key in self.wanted}
        found = {self.own_key(r) for r in roots if self.owns(r) or self.is_join(r)}
        return [*found, *(k for k in self.wanted if k[1] and k not in found)]

    def own_key(self, root: Value) -> Key:
        return self.fused.get(root, (root, ()))

    def parameter_keys(self) -> list[Key]:
        """The values that have parameters of their own, arguments first."""
        arguments = ((a, ()) for a in self.graph.function.arguments)
        return [*dict.fromkeys([*arguments, *self.keys()])]

    def widths(
        self,
        option: str,
        given: int | Mapping[str, int],
        keys: Iterable[Key],
        choices: tuple[int, ...],
    ) -> dict[Key, int]:
        """The number of bits of each value, by the names of roots and of functions."""
        by_name = given if isinstance(given, Mapping) else {"": given}
        names = {key[1][-1].results[0].name if key[1] else key[0].name: key for key in keys}
        names |= {key[0].name: key for key in names.values() if self.own_key(key[0]) == key}
        for name, bits in by_name.items():
            if bits not in choices or isinstance(bits, bool):
                said = " or ".join(map(str, choices))
                raise cvm.Error(f"{option} of the scheme {self.scheme.name} is {said}, got {bits}")
            if name and name not in names:
                raise cvm.Error(f"{option} is of {', '.join(names)}; got {name}")
        found = dict.fromkeys(names.values(), by_name.get("", 8))
        return found | {names[name]: bits for name, bits in by_name.items() if name}

    def is_join(self, root: Value) -> bool:
        return self.scheme.rule_name(self.graph, self.made[root]) == "joined"

    def parameters(
        self, observed: Mapping[Value, Observed], method: str, widths: Mapping[Key, int]
    ) -> dict[Key, Parameters]:
        chosen: dict[Key, Parameters] = {}
        for key, bits in widths.items():
            seen = observed[self.shown[key]]

            def error(low: float, high: float, x: np.ndarray) -> np.ndarray:
                p = self.scheme.chosen(low, high, bits)  # noqa: B023
                return p.numbers(p.integers(x)) - x

            low, high = seen.range(method, error)
            declared = () if key[1] else key[0].attributes.get("range", ())
            low, high = declared or (low, high)
            p = self.scheme.chosen(low, high, bits)
            if declared:
                ends = map(int, p.integers(declared))
                p = Parameters(p.scale, p.zero_point, *ends)
            chosen[key] = self.scheme.widened(p) if key in self.returned else p
        return chosen


def _observed(
    graph: FloatGraph, plan: Plan, calls: Iterable[list[np.ndarray]]
) -> dict[Value, Observed]:
    """Observations of each value on the data."""
    values = [*dict.fromkeys([*plan.shown.values(), *plan.layer_inputs])]
    observed = {v: Observed(v in plan.layer_inputs) for v in values}

    def add(n: int, value: Value, array: np.ndarray) -> None:
        if not observed[values[n]].add(array):
            said = f"%{values[n].name} cannot be quantized: on the data it is not finite"
            raise cvm.Error(Diagnostic(said, values[n].span, "quantize"))

    run(graph.program(values), calls, add)
    return observed


__all__ = ["QuantizedModule", "Report", "fake_quantize", "quantize"]
