"""`cvm diff`: the first operation whose values differ between two targets, programs or pipelines,
or from saved arrays.

In: two sides, each a program, the passes it goes through and the target that runs it. Every value
of an operation that both sides have becomes a result; arguments are then made as small as the
difference allows. Values are paired by their positions where two files have the same operations,
whatever their names, else by name.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import product
from typing import Any

import numpy as np

from cvm.dialect.builtin import Const
from cvm.dialect.ir.function import Function, Graph, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.types.unify import agree
from cvm.jit.compile import find
from cvm.terminal.arguments import inputs, load as load_arrays, random_arrays
from cvm.terminal.display import shown
from cvm.terminal.read_program import Level, compiled, entries, named, read_level, signature
from cvm.terminal.run_pipeline import text_after
from cvm.terminal.usage import Usage
from cvm.testing.differences import Arrays, distance, smallest

Values = Mapping[str, np.ndarray]
Evaluate = Callable[[Arrays], Values]


@dataclass(frozen=True)
class Side:
    """A program on a target, or saved arrays; `label` says which in messages."""

    label: str
    entry: str = "main"
    program: Level | None = None
    target: str = "cpu"
    saved: Values | None = None
    file: str = ""

    @property
    def function(self) -> Function:
        assert self.program is not None
        function = (
            find(self.program, self.entry)
            if isinstance(self.program, Module)
            else signature(self.program)
        )
        if isinstance(function, Graph):
            raise Usage("diff compares functions, not graphs")
        return function

    def values(self) -> dict[str, Value]:
        """The values that can be compared, by name, in the order of the operations: of kernels, the
        arrays they write.
        """
        function = self.function
        computed = [
            r for o in function.operations if not isinstance(o.operator, Const) for r in o.results
        ]
        return {v.name: v for v in computed or function.results}

    def evaluate(self, pairs: Mapping[str, str], caller: "Side") -> Evaluate:
        """A function from the caller's arguments to this side's values, by the caller's names."""
        names = [*pairs.values()]
        if self.saved is not None:
            saved = self.saved
            return lambda _: {n: saved[own] for n, own in pairs.items()}
        function, program = self.function, self.program
        assert program is not None
        if isinstance(program, Module):
            tapped = replace(
                function,
                results=tuple(self.values()[n] for n in names),
                declared=None,
                return_spans=(),
            )
            program = program.with_functions({**program.functions, self.entry: tapped})
        f = compiled(program, self.entry, self.target)
        places = _places(caller, self)

        def values(arrays: Arrays) -> Values:
            found = named(f, f(*[arrays[n].copy() for n in places]))
            return {n: found[own] for n, own in pairs.items()}

        return values


@dataclass(frozen=True)
class Difference:
    """A value that differs, at the index of its first such element."""

    name: str
    index: tuple[int, ...]
    a: Any
    b: Any
    ulps: int | None
    count: int
    size: int


def diff(options: Namespace) -> int:
    a, b = _sides(options)
    if not (pairs := _pairs(a, b)):
        raise Usage(f"{a.label} and {b.label} have no value of one name, and other operations")
    has_inputs = (
        options.inputs
        or options.input
        or options.random_inputs is not None
        or not a.function.arguments
    )
    for seed in range(1 if has_inputs else options.seeds):
        arrays = inputs(a.function, options) if has_inputs else random_arrays(a.function, seed)
        if said := explain(a, b, arrays, options.ulps):
            print(said)
            return 1
    print(f"{a.label} and {b.label}: all {len(pairs)} values are the same")
    return 0


def _pairs(a: Side, b: Side) -> dict[str, str]:
    """The names of the values that are compared, on one side and on the other.

    Of two files with equal sequences of operations every value; otherwise those of one name, and
    results in their order; where no name is shared, the longest common sequences of operations.
    """
    own, results = a.values(), [r.name for r in a.function.results]
    if b.saved is not None:
        named = {n: n for n in own if n in b.saved}
        return named or (
            dict(zip(results, b.saved, strict=True)) if len(results) == len(b.saved) else {}
        )
    other = b.values()
    keys, others = _keys(a), _keys(b)
    if keys == others and a.file != b.file:  # of one file, names say more
        return dict(zip(own, other, strict=True))
    pairs = {n: n for n in own if n in other}
    of_results = [r.name for r in b.function.results]
    if not pairs:
        names, others_names = [*own], [*other]
        for n, m, length in SequenceMatcher(
            None, keys, others, autojunk=False
        ).get_matching_blocks():
            pairs |= dict(zip(names[n : n + length], others_names[m : m + length], strict=True))
    for n, m in zip(results, of_results, strict=False):
        if n in own and m in other and n not in pairs and m not in pairs.values():
            pairs[n] = m
    return {n: pairs[n] for n in own if n in pairs}


def _keys(side: Side) -> list[tuple[str, object]]:
    """The operator and the type of each value, or of the arrays that kernels write."""
    operators = {r: o.operator.name for o in side.function.operations for r in o.results}
    return [(operators.get(v, ""), _unnamed(v)) for v in side.values().values()]


def _unnamed(value: Value) -> object:
    """The type of a value, without the names of its sizes."""
    type = value.known_type
    return type.element, tuple(d if isinstance(d, int) else "?" for d in type.array_shape)


def _places(caller: Side, callee: Side) -> Sequence[int]:
    """The arguments of one side in the other's order: by position if types agree, else by name.

    Kernels have their arrays in the order in which they use them: by name first.
    """
    given, wanted = caller.function.arguments, callee.function.arguments
    names = [v.name for v in given]
    by_name = [names.index(v.name) for v in wanted] if {*names} == {v.name for v in wanted} else []
    by_position = range(len(given)) if len(given) == len(wanted) else []
    if not (isinstance(caller.program, Module) and isinstance(callee.program, Module)):
        return by_name or by_position  # kernels have arrays in other shapes
    alike: tuple[Callable[[Value, Value], bool], ...] = (
        lambda v, w: _unnamed(v) == _unnamed(w),
        lambda v, w: agree(v.known_type, w.known_type),
    )
    for same, order in product(alike, (by_position, by_name)):
        if len(order) == len(wanted) and all(map(same, wanted, (given[n] for n in order))):
            return order
    listed = (", ".join(f"%{v.name}: {v.type}" for v in side) for side in (given, wanted))
    raise Usage(
        "the arguments differ: ({}) on {}, ({}) on {}".format(
            *(
                part
                for pair in zip(listed, (caller.label, callee.label), strict=True)
                for part in pair
            )
        )
    )


def _sides(options: Namespace) -> tuple[Side, Side]:
    """The two sides: where an option is given once or not at all, they share it."""
    targets = options.target or (
        ["cpu", "reference"] if options.b is None and not options.pipeline else ["cpu"]
    )
    if len(targets) > 2 or len(pipelines := options.pipeline or [""]) > 2:
        raise Usage("diff compares two: --target and --pipeline are given twice at most")
    files, targets, pipelines = (
        [options.a, options.b or options.a],
        (targets * 2)[:2],
        (pipelines * 2)[:2],
    )
    if options.a.endswith(".npz"):
        raise Usage("saved arrays are the second of the two")
    sides = []
    for name, target, pipeline in zip(files, targets, pipelines, strict=True):
        if name.endswith(".npz"):
            saved = load_arrays(name)
            sides.append(Side(name, saved=saved if isinstance(saved, dict) else {}))
            continue
        program = read_level(name)
        if pipeline:
            program = read_level(f"{name} after {pipeline}", text_after(program, pipeline).encode())
        parts = ((name, files), (pipeline, pipelines), (target, targets))
        label = " ".join(part for part, pair in parts if part and pair[0] != pair[1])
        entry = (
            _entry(program, options.entry, sides)
            if isinstance(program, Module)
            else entries(program)[0]
        )
        sides.append(Side(label or name, entry, program, target, file=name))
    return sides[0], sides[1]


def _entry(program: Module, name: str, before: Sequence[Side]) -> str:
    """The function of this name, or, on the second side, the only one of the first's signature."""
    if name not in program.functions and before and before[0].program is not None:
        first = before[0].function

        def alike(f: Function) -> bool:
            pairs = [(first.arguments, f.arguments), (first.results, f.results)]
            return all(
                len(x) == len(y)
                and all(agree(v.known_type, w.known_type) for v, w in zip(x, y, strict=True))
                for x, y in pairs
            )

        found = [n for n, f in program.functions.items() if alike(f)]
        if len(found) == 1:
            return found[0]
    return find(program, name).name


def explain(a: Side, b: Side, arrays: Arrays, ulps: int = 0) -> str:
    """The first operation whose values differ, in words; empty where there is none."""
    pairs = _pairs(a, b)
    results = [v.name for v in a.function.results if v.name in pairs]
    chosen = filter(
        None, ([*pairs], results, *([n] for n in pairs))
    )  # what is shown may be right, and wrong if fused
    tried = ({n: pairs[n] for n in names} for names in chosen)
    return next(filter(None, (_explain(a, b, some, arrays, ulps) for some in tried)), "")


def _explain(a: Side, b: Side, pairs: Mapping[str, str], arrays: Arrays, ulps: int) -> str:
    kernels = isinstance(b.program, Plan) or isinstance(a.program, Plan)
    of_a, of_b = a.evaluate({n: n for n in pairs}, a), b.evaluate(pairs, a)
    if (difference := first_difference(of_a(arrays), of_b(arrays), ulps, kernels)) is None:
        return ""
    name = difference.name

    def at(tried: Arrays) -> Difference | None:
        return first_difference({name: of_a(tried)[name]}, {name: of_b(tried)[name]}, ulps, kernels)

    small = arrays if b.saved is not None else smallest(a.function, arrays, at)
    return "\n".join(_text(a, b, at(small) or difference, small, pairs[name]))


def first_difference(
    a: Values, b: Values, ulps: int = 0, kernels: bool = False
) -> Difference | None:
    """The first value, in the order of the first side, with elements more than some units in the
    last place apart.
    """
    for name, x in a.items():
        if name not in b:
            continue
        y = b[name]
        if kernels and x.size == y.size:  # passes give arrays other shapes
            y = y.reshape(x.shape)
        if x.shape != y.shape or x.dtype != y.dtype:
            return Difference(
                name,
                (),
                f"{x.dtype}{list(x.shape)}",
                f"{y.dtype}{list(y.shape)}",
                None,
                x.size,
                x.size,
            )
        apart = distance(x, y)
        if (wrong := apart > ulps).any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return Difference(name, at, x[at], y[at], int(apart[at]), int(wrong.sum()), x.size)
    return None


def _text(a: Side, b: Side, first: Difference, arrays: Arrays, other: str) -> Iterator[str]:
    operation = next(
        (o for o in a.function.operations if first.name in [r.name for r in o.results]), None
    )
    place = f"%{first.name}"
    if operation is not None:
        place = f"{operation.span}: {place} of {operation.operator.name or 'call'}"
    if other != first.name:
        place += f", %{other} on {b.label},"
    values = [v if isinstance(v, str) else repr(v.item()) for v in (first.a, first.b)]
    apart = (
        ""
        if first.ulps is None or first.ulps >= 2**63
        else f", {first.ulps} ulp{'s' * (first.ulps != 1)} apart"
    )
    yield (
        f"{place} differs at {list(first.index)}: {values[0]} on {a.label}, {values[1]} on "
        f"{b.label}{apart}"
    )
    yield f"{first.count} of {first.size} elements differ; arguments that show it:"
    for argument, array in zip(a.function.arguments, arrays, strict=True):
        yield shown(f"%{argument.name}", array)
