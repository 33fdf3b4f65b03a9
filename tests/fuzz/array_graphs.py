"""Random functions of arrays as Python source: producers and consumers of two sizes, n and m.

Every function runs under NumPy, traced, and under JAX. A step is kept if NumPy takes it at two
pairs of sizes, so that it is right for all sizes, of which 0 and 1 are special.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from cvm.dialect.ir.module import Module
from outcomes import assert_same

import cvm

from .differential import PROCESSORS, supported

Function = Callable[..., tuple[Any, ...]]

PROBES = (5, 3), (4, 7)  # n and m while a function is made
SIZES = (0, 3), (1, 1), (1, 4), (2, 1), (5, 3), (3, 3), (33, 17), (130, 5), (0, 0), (1, 0)
SHAPES = ("n", "m"), ("n", "m"), ("m",), ("n", 1), (1, "m"), (), ("m", "n")
STEPS = (
    *("{a} + {b}", "{a} - {b}", "{a} * {b}", "np.maximum({a}, {b})", "np.minimum({a}, {b})"),
    *("np.where({a} < {b}, {a}, {b})", "{a} @ {b}", "np.concatenate([{a}, {b}])", "{a} * 3 - 1"),
    *("-{a}", "abs({a})", "{a}.T", "{a}.sum(0)", "{a}.sum(-1, keepdims=True)", "{a}[::-1]"),
    *("{a}[..., ::2]", "{a}[1:]", "{a}[:, None]", "{a}.max(0)", "{a}.sum()", "np.clip({a}, -3, 5)"),
)
OF_FLOATS = (
    *("np.exp({a})", "np.tanh({a})", "{a} / (abs({b}) + 1)", "np.sqrt(abs({a}))", "{a}.mean(-1)"),
    *("{a} - {a}.max(-1, keepdims=True)",),
)
CALLS = 4  # of a program of open sizes
MOST = 12  # steps that are tried
ELEMENTS = 1 << 14  # of a value of a function


class Graph:
    """The function of a number."""

    def __init__(self, number: int) -> None:
        chance = self.chance = random.Random(number)
        self.dtype = np.dtype(chance.choice(("i4", "i4", "f4")))
        self.shapes = [chance.choice(SHAPES) for _ in range(chance.randint(1, 3))]
        names = [f"x{n}" for n in range(len(self.shapes))]
        values = [dict(zip(names, self.arrays(*sizes), strict=True)) for sizes in PROBES]
        head, used, lines = f"def main({', '.join(names)}):\n", set[str](), ""
        for n in range(chance.randint(2, MOST)):
            step = chance.choice(STEPS if self.dtype.kind == "i" else STEPS + OF_FLOATS)
            operands = {k: chance.choice(names[-3:] + names) for k in "ab" if f"{{{k}}}" in step}
            if ("0)" in step or "-1," in step) and np.ndim(values[0][operands["a"]]) == 0:
                continue  # which NumPy alone takes
            with suppress(ValueError, IndexError, TypeError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = [eval(step.format(**operands), {"np": np}, v) for v in values]
                if max(x.size for x in made) > ELEMENTS:
                    continue
                for v, x in zip(values, made, strict=True):
                    v[f"v{n}"] = x
                names.append(f"v{n}")
                used |= {*operands.values()}
                lines += f"    v{n} = {step.format(**operands)}\n"
        results = [n for n in names if n not in used]
        self.source = f"{head}{lines}    return ({', '.join(results)},)\n"

    def function(self, np: Any) -> Function:
        space = {"np": np}
        exec(self.source, space)
        return space["main"]  # type: ignore[return-value]

    def arrays(self, n: int, m: int) -> list[np.ndarray]:
        sizes = {"n": n, "m": m, 1: 1}
        made = random.Random(self.chance.random())
        found = []
        for shape in self.shapes:
            of = [sizes[d] for d in shape]
            quarters = [made.randint(-8, 8) for _ in range(int(np.prod(of)))]
            found.append(np.array(quarters, self.dtype).reshape(of))
        return [x / np.float32(4) if self.dtype.kind == "f" else x for x in found]

    def wanted(self, arrays: list[np.ndarray]) -> tuple[Any, ...] | None:
        """NumPy's results; None where it takes no arrays of these sizes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.function(np)(*arrays)
            except ValueError:
                return None

    def call(
        self, module: Module, arrays: list[np.ndarray], target: str, **options: Any
    ) -> list[Any]:
        return self.results(cvm.compile(module, target=target, **options), arrays, module)

    def results(self, f: Any, arrays: list[np.ndarray], module: Module) -> list[Any]:
        """The results, of which shapes, types and integers are NumPy's; none where it takes no
        arrays of these sizes.
        """
        if (wanted := self.wanted(arrays)) is None:
            return []
        shown = f"{[a.shape for a in arrays]}\n{self.source}{module}"
        try:
            found = f(*arrays)
        except cvm.Error as e:
            if any(d.code == "cvm.slice.C5" for d in e.diagnostics):
                return []  # an empty slice, for which traced functions are traced again
            raise AssertionError(f"{e}\n{shown}") from None
        found = [*found] if isinstance(found, tuple) else [found]
        for y, w in zip(found, map(np.asarray, wanted), strict=True):
            if w.dtype.kind == "f":
                assert (np.shape(y), np.asarray(y).dtype) == (w.shape, w.dtype), shown
            else:
                np.testing.assert_array_equal(y, w, shown, strict=isinstance(y, np.ndarray))
        return found

    def module(self, arrays: list[np.ndarray], opened: bool) -> Module:
        traced = cvm.compile(self.function(np))
        return traced._prepared(arrays, {}, opened, compiles=False)[2].module


def attack(data: bytes) -> None:
    """The function of a seed, optimized and not, at two vector widths, with sizes known and open:
    NumPy's integers, and the same bits of floats wherever it is optimized.
    """
    number = int.from_bytes(data, "little")
    graph, processors = Graph(number), [*filter(supported, PROCESSORS)]
    cpu, other = processors[number % len(processors)], processors[number % len(processors) - 1]
    arrays = graph.arrays(*PROBES[0])
    with suppress(cvm.TraceError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = graph.module(arrays, False)
        found = graph.call(known, arrays, "cpu", cpu=cpu)
        graph.call(known, arrays, "reference")
        if number % 4 == 0:
            graph.call(known, arrays, "cpu", optimize=0)
            assert_same(graph.call(known, arrays, "cpu", cpu=other), found, graph.source)
        elif number % 4 == 1:
            assert_same(graph.call(known, arrays, "cuda-sim"), found, graph.source)
        else:
            module = graph.module(arrays, True)  # a function may need its sizes
            f = cvm.compile(module, cpu=cpu)
            assert_same(graph.results(f, arrays, module), found, graph.source)
            for sizes in graph.chance.sample(SIZES, CALLS):
                graph.results(f, graph.arrays(*sizes), module)
