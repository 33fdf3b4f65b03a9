"""Programs to differentiate, and their derivatives by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cvm.dialect.ir.function import Function, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import verify
from cvm.dialect.spec.operator import Operator
from cvm.dialect.theano.grad_lop_rop import LOp, ROp
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import BY_DTYPE, TensorType, Type
from cvm.jit.compile import compile_function

import cvm

Arrays = list[np.ndarray]


def program(
    op: Operator[np.ndarray], types: Sequence[Type] = (), derived: bool = True
) -> tuple[Module, Arrays, tuple[int, ...]]:
    """@f of one operation and, where they are wanted, @back of its cotangents and @forth of its
    tangents, by the operands that are floats.

    The operands are tensors, or have the given types.
    """
    arrays: Arrays = []

    def operand(array: np.ndarray) -> Value:
        arrays.append(array)
        type = types[len(arrays) - 1] if types else TensorType(array.shape, BY_DTYPE[array.dtype])
        return Value(f"x{len(arrays)}", type)

    operator = op.map(operand)
    values = [v for _, v in operator.operands()]
    results = tuple(Value(n, None) for n in op.results)
    module = verify(
        Module({"f": Function("f", tuple(values), (Operation(operator, results),), results)})
    )
    wrt = tuple(n for n, a in enumerate(arrays) if a.dtype.kind in "fc")
    if not derived:
        return module, arrays, wrt
    seeds = [
        Value(f"g{n}", declarable(t)) for n, t in enumerate(module.functions["f"].result_types)
    ]
    tangents = [Value(f"d{n}", values[n].type) for n in wrt]
    pulled = tuple(Value(f"c{n}", None) for n in wrt)
    pushed = tuple(Value(f"t{n}", None) for n in range(len(results)))

    def derivative(
        name: str, kind: Any, given: Sequence[Value], found: tuple[Value, ...]
    ) -> Function:
        arguments = tuple(Value(v.name, v.type) for v in (*values, *given))
        return Function(
            name, arguments, (Operation(kind(arguments, Symbol("f"), wrt=wrt), found),), found
        )

    functions = {
        "back": derivative("back", LOp, seeds, pulled),
        "forth": derivative("forth", ROp, tangents, pushed),
    }
    return verify(module.with_functions({**module.functions, **functions})), arrays, wrt


def declarable(type: Type) -> Type:
    """The type as an argument may have it: a size that is computed from others is one that is not
    known.
    """
    return type.with_array_shape(
        tuple(d if isinstance(d, int) or d.is_atom else Size.unknown() for d in type.array_shape)
    )


def check(
    op: Operator[np.ndarray],
    random: np.random.Generator,
    tolerance: float = 2e-6,
    step: float = 1e-6,
    types: Sequence[Type] = (),
) -> None:
    """The types of derivatives, the reverse rule against finite differences, and the forward rule
    against the reverse one.
    """
    module, arrays, wrt = program(op, types)

    def run(name: str, *more: np.ndarray) -> Arrays:
        found = compile_function(module, name, "reference")(*arrays, *more)
        return list(found) if isinstance(found, tuple) else [found]

    results = run("f")
    seeds = [normal(random, r) for r in results]
    tangents = [normal(random, arrays[n]) for n in wrt]
    back, forth = run("back", *seeds), run("forth", *tangents)
    for found, like in zip((*back, *forth), (*(arrays[n] for n in wrt), *results), strict=True):
        assert found.shape == like.shape, f"a derivative of {found.shape} for {like.shape}: {op}"
        assert found.dtype == like.dtype or like.dtype.kind not in "fc", (
            f"a derivative of {found.dtype}: {op}"
        )
    function = compile_function(module, "f", "reference")
    along = numerical(lambda moved: function(*moved), arrays, wrt, tangents, step)
    reverse = sum(inner(c, t) for c, t in zip(back, tangents, strict=True))
    forward = sum(inner(s, t) for s, t in zip(seeds, forth, strict=True))
    expected = sum(inner(s, d) for s, d in zip(seeds, along, strict=True))
    scale = 1 + abs(expected)
    assert abs(reverse - expected) < tolerance * scale, (
        f"reverse {reverse}, finite differences {expected}: {op}"
    )
    exact = max(1e-9, 30 * float(np.finfo(arrays[wrt[0]].dtype).eps))
    assert abs(forward - reverse) < exact * scale, f"forward {forward}, reverse {reverse}: {op}"


def normal(random: np.random.Generator, like: np.ndarray) -> np.ndarray:
    """Random numbers of an array's shape and type."""
    found = random.normal(size=like.shape)
    return np.asarray(
        found + 1j * random.normal(size=like.shape) if like.dtype.kind == "c" else found, like.dtype
    )


def inner(a: np.ndarray, b: np.ndarray) -> float:
    """The inner product of a cotangent and a tangent; for complex numbers, part by part."""
    return float((np.conj(a) * b).real.sum())


def numerical(
    function: Callable[[Arrays], Any],
    arrays: Arrays,
    wrt: Sequence[int],
    tangents: Arrays,
    step: float,
) -> Arrays:
    """The derivative along the tangents, by differences of the fourth order."""

    def at(distance: float) -> Arrays:
        moved = list(arrays)
        for n, t in zip(wrt, tangents, strict=True):
            moved[n] = arrays[n] + t * t.dtype.type(distance)
        found = function(moved)
        return list(found) if isinstance(found, tuple) else [found]

    near, far = zip(at(step), at(-step), strict=True), zip(at(2 * step), at(-2 * step), strict=True)
    return [(8 * (a - b) - (c - d)) / (12 * step) for (a, b), (c, d) in zip(near, far, strict=True)]


__all__ = ["check", "cvm", "numerical", "program"]
