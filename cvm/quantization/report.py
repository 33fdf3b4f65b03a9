"""The distance of a quantized program from its float program, on the data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import cvm
from cvm.dialect.builtin import Const
from cvm.dialect.ir.function import Function, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify

from .calibration import Observed

if TYPE_CHECKING:
    from .float_graph import FloatGraph
    from .scheme import Parameters, Scheme

SHOWN_BINS = 64  # of a histogram in the report


@dataclass
class Row:
    """One value of the program: its parameters, and how far it is from its float value."""

    name: str
    operation: str
    line: int
    scale: float
    zero_point: int
    low: float  # of the range that integers stand for
    high: float
    least: float  # on the data
    most: float
    snr: float  # in dB; of the error that all layers before have added, too
    saturated: float  # the share of elements beyond the range
    sum_bits: int | None  # that the largest possible sum takes
    table_error: float | None  # of the worst entry, in units of the scale
    histogram: list[int]
    bits: int
    weight_bits: int | None  # of a layer


@dataclass
class Ranked:
    """A layer: the signal to noise of the results, in dB, if it alone has weights of 4 bits, and
    the bits that its weights have.
    """

    name: str
    weights: int
    snr: float
    bits: int = 8


@dataclass
class Result:
    """A result of the program: signal to noise in dB, and the share of rows whose largest element
    is in the same place.
    """

    name: str
    snr: float
    largest_error: float
    agreement: float | None


@dataclass
class Report:
    """The results of a quantized program on the data, against the float program."""

    scheme: str = ""
    samples: int = 0
    rows: list[Row] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    float_bytes: int = 0  # of constants
    bytes: int = 0
    float_operations: int = 0  # of the first call, as `cvm cost` counts them
    operations: int = 0
    ranking: list[Ranked] = field(default_factory=list)  # of layers, the least sensitive first

    @property
    def quality(self) -> float:
        """The least share of the float results that is kept: of rows whose largest element is in
        the same place, or else 1 less the relative error.
        """
        kept = (
            1 - 10 ** (-r.snr / 20) if r.agreement is None else r.agreement for r in self.results
        )
        return min(kept, default=1.0)

    def as_json(self) -> dict[str, Any]:
        """The report for JSON, which has no infinity: an exact value has no ratio."""
        made = asdict(self)
        for row in (*made["rows"], *made["results"], *made["ranking"]):
            row["snr"] = row["snr"] if math.isfinite(row["snr"]) else None
        return made


@dataclass
class _Compared:
    """Sums over the elements of a value."""

    signal: float = 0.0
    noise: float = 0.0
    saturated: int = 0
    count: int = 0
    agreeing: int = 0
    rows: int = 0
    largest: float = 0.0

    def add(self, exact: np.ndarray, q: np.ndarray, p: Parameters, labels: bool) -> None:
        exact, near = exact.astype(np.float64), p.numbers(q)
        error = np.abs(near - exact)
        self.signal += float(np.square(exact).sum())
        self.noise += float(np.square(error).sum())
        ends = p.numbers(p.low) - p.scale / 2, p.numbers(p.high) + p.scale / 2
        self.saturated += int(((exact < ends[0]) | (exact > ends[1])).sum())
        self.count += exact.size
        self.largest = max(self.largest, float(error.max(initial=0)))
        if labels:
            self.agreeing += int((exact.argmax(-1) == near.argmax(-1)).sum())
            self.rows += exact[..., 0].size

    @property
    def snr(self) -> float:
        if not self.noise:
            return math.inf
        return 10 * math.log10(max(self.signal, 1e-300) / self.noise)


def compared(
    graph: FloatGraph,
    scheme: Scheme,
    program: Module,
    observed: dict[Value, Observed],
    calls: Iterable[list[np.ndarray]],
) -> Report:
    """The report of an integer program; each value is compared on the data."""
    main = program.functions["main"]

    in_order = sorted(observed, key=lambda v: len(scheme.paths[v].moves), reverse=True)
    shown = {scheme.paths[v].key: v for v in in_order}  # one that is moved least
    keys = [k for k in scheme.made if k in shown and not (k[0] in scheme.fused and not k[1])]
    results = [r for r in graph.function.results if graph.array(r) is None]
    exact_values = [*(shown[k] for k in keys), *results]
    made = [*(scheme.value(shown[k]) for k in keys), *(scheme.value(r) for r in results)]
    operations = tuple(scheme.builder.operations)
    full = Function("main", scheme.arguments, operations, tuple(m.node.value for m in made))
    integer = cvm.compile(verify(Module({"main": full}, program.filename)))
    exact = cvm.compile(graph.program(exact_values))
    found = [_Compared() for _ in made]
    samples, counts = 0, (0, 0)
    for arrays in calls:
        given = [
            a
            if v.known_type.element.kind == "float"
            else scheme.parameters[f, ()].integers(a).astype(v.known_type.element.dtype)
            for a, v, f in zip(arrays, main.arguments, graph.function.arguments, strict=True)
        ]
        if not samples:
            counts = _operations(exact, arrays), _operations(integer, given)
        samples += len(arrays[0]) if arrays[0].ndim else 1
        pairs = zip(found, _listed(exact(*arrays)), _listed(integer(*given)), made, strict=True)
        for n, (c, x, q, m) in enumerate(pairs):
            c.add(x, q, m.parameters, n >= len(keys) and x.ndim >= 2 and x.shape[-1] > 1)
    rows = [
        _row(graph, scheme, k, shown[k], observed[shown[k]], c)
        for k, c in zip(keys, found, strict=False)
    ]
    summary = [
        Result(r.name, c.snr, c.largest, c.agreeing / c.rows if c.rows else None)
        for r, c in zip(results, found[len(keys) :], strict=True)
    ]
    held = (o.operator.data.array for o in operations if isinstance(o.operator, Const))
    return Report(
        scheme.name,
        samples,
        rows,
        summary,
        sum(a.nbytes for v, a in graph.constants.items() if graph.uses()[v]),
        sum(_narrow(a) for a in held),
        *counts,
    )


def _operations(f: Any, arrays: list[np.ndarray]) -> int:
    """The operations of a call with these arrays."""
    sizes = {atom[0]: n for atom, n in f.sizes_of(arrays).items() if len(atom) == 1}
    return int(f.cost("operation", **sizes).operations)


def _narrow(array: np.ndarray) -> int:
    """The bytes of integers in the narrowest type that holds them; weights may have 4 bits."""
    ends = int(array.min(initial=0)), int(array.max(initial=0))
    widths = (4, 8, 16, 32, 64) if array.ndim > 1 else (8, 16, 32, 64)
    bits = next(n for n in widths if -(1 << (n - 1)) <= ends[0] and ends[1] < 1 << (n - 1))
    return -(-array.size * bits // 8)


def _listed(returned: Any) -> tuple[np.ndarray, ...]:
    return returned if isinstance(returned, tuple) else (returned,)


def _row(
    graph: FloatGraph, scheme: Scheme, key: Any, value: Value, seen: Observed, c: _Compared
) -> Row:
    made = graph.definitions()
    root = made.get(key[0])
    operation = made.get(value)
    p = scheme.made[key].parameters
    table = scheme.tables.get(key[1][-1]) if key[1] else None
    bound = (
        None if root is None or (key[1] and key[0] not in scheme.fused) else scheme.sums.get(root)
    )
    return Row(
        value.name,
        "argument"
        if operation is None
        else operation.operator.name
        if table is None
        else f"table of {table.name}",
        operation.at("op").line if operation is not None and operation.at("op").source.text else 0,
        p.scale,
        p.zero_point,
        float(p.numbers(p.low)),
        float(p.numbers(p.high)),
        seen.low,
        seen.high,
        c.snr,
        c.saturated / max(c.count, 1),
        None if bound is None else bound.bit_length() + 1,
        None if table is None else table.error,
        [int(n) for n in seen.counts.reshape(SHOWN_BINS, -1).sum(1)],
        p.bits,
        None if bound is None else scheme.weight_bits.get(key[0]),
    )
