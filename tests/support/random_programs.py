"""Random valid programs, as Hypothesis strategies: several functions, calls, constants, literals,
sizes known and unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import samples_dali  # noqa: F401  (adds to SAMPLES)
from cvm.dialect.builtin import Call, Const, Data
from cvm.dialect.ir import verify
from cvm.dialect.ir.function import Function, Literal, Operation, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.literal_types import fit, literal_type
from cvm.dialect.types.sizes import Dim, Size
from cvm.dialect.types.tensor_types import (
    BY_DTYPE,
    ELEMENT_TYPES,
    I32,
    ElementType,
    TensorType,
    Type,
)
from hypothesis import strategies as st
from samples import SAMPLES

NAMES = st.from_regex(r"[A-Za-z_$.][A-Za-z0-9_$.]{0,6}|[0-9]{1,3}", fullmatch=True)
SIZES = st.one_of(
    st.integers(0, 6), st.sampled_from("NCHW").map(Size.named), st.builds(Size.unknown)
)
ELEMENTS = st.sampled_from(list(ELEMENT_TYPES.values()))


class Writer:
    """A function being written: its values, with names that may repeat."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.arguments: list[Value] = []
        self.operations: list[Operation] = []

    def argument(self, type: Type, called: bool = False) -> Value:
        attributes: dict[str, Any] = {}
        if type.element.is_integer and self.draw(st.booleans()):
            attributes["range"] = tuple(
                sorted(self.draw(st.tuples(*[st.integers(*type.element.limits)] * 2)))
            )
        if not called and self.draw(st.integers(0, 5)) == 0:
            attributes["inplace"] = True
        self.arguments.append(Value(self.draw(NAMES), type, attributes=attributes))
        return self.arguments[-1]

    def operation(
        self, operator: Any, results: int = 1, declared: tuple[Type, ...] | None = None
    ) -> tuple[Value, ...]:
        made = tuple(Value(self.draw(NAMES), None) for _ in range(results))
        self.operations.append(Operation(operator, made, declared=declared))
        return made

    def constant(self, array: np.ndarray, element: ElementType, splat: bool = False) -> Value:
        return self.operation(Const(Data(array, splat=splat), TensorType(array.shape, element)))[0]

    def sampled(self, name: str) -> tuple[Value, ...]:
        """An operator of the samples, its operands constants or arguments."""
        sample = SAMPLES[name](np.random.default_rng(self.draw(st.integers(0, 999))))
        operator = sample.map(lambda a: self.given(np.asarray(a)))
        found = sample.map(lambda a: TensorType(a.shape, BY_DTYPE[a.dtype])).result_types()
        return self.operation(operator, len(found), found if self.draw(st.booleans()) else None)

    def given(self, array: np.ndarray) -> Value:
        element = BY_DTYPE[array.dtype]
        return (
            self.constant(array, element)
            if self.draw(st.booleans())
            else self.argument(TensorType(array.shape, element))
        )

    def elementwise(self, x: Value) -> Value:
        """One operator more on an i32 value of any sizes."""
        literal = self.draw(st.integers(*I32.limits))
        explicit = self.draw(st.booleans())
        return self.operation(
            self.draw(
                st.sampled_from(
                    [
                        OPERATORS["cvm.relu"](x),
                        OPERATORS["cvm.abs"](x),
                        OPERATORS["cvm.clip"](x, a_min=-5, a_max=7),
                        OPERATORS["cvm.broadcast_add"](x, x),
                        OPERATORS["cvm.broadcast_add"](
                            x, Literal(literal, TensorType((), I32), explicit=explicit)
                        ),
                    ]
                )
            )
        )[0]

    def function(self, name: str, results: tuple[Value, ...]) -> Function:
        return Function(name, tuple(self.arguments), tuple(self.operations), results)


def floats(width: Any) -> st.SearchStrategy[float]:
    """Floats of a width; the bits of a NaN are not told apart."""
    return st.floats(width=width).map(lambda f: math.nan if math.isnan(f) else f)


def of_element(element: ElementType) -> st.SearchStrategy[Any]:
    """Values of an element type."""
    match element.kind:
        case "bool":
            return st.booleans()
        case "float":
            return floats(element.bits)
        case "complex":
            return st.builds(complex, floats(element.bits // 2), floats(element.bits // 2))
    return st.integers(*element.limits)


@st.composite
def constants(draw: Callable[[Any], Any]) -> Function:
    """A function that returns constants of every element type, special values among them."""
    writer = Writer(draw)
    for _ in range(draw(st.integers(1, 4))):
        element = draw(ELEMENTS)
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
        values = draw(st.lists(of_element(element), min_size=1, max_size=6))
        values = np.array(values, element.dtype)
        splat = bool(shape) and 0 not in shape and draw(st.booleans())
        array = np.broadcast_to(values[0], shape) if splat else np.resize(values, shape)
        writer.constant(array, element, splat)
    return writer.function("constants", tuple(o.results[0] for o in writer.operations))


@st.composite
def literals(draw: Callable[[Any], Any]) -> Function:
    """A function of literal operands, their types implied by the dialect or stated."""
    writer = Writer(draw)
    for _ in range(draw(st.integers(1, 3))):
        value = draw(
            st.one_of(st.integers(-(2**31), 2**31 - 1), st.floats(width=32), st.just(True))
        )
        element = draw(st.sampled_from([I32, ELEMENT_TYPES["f64"], ELEMENT_TYPES["f32"]]))
        if isinstance(value, float) and element is I32:
            element = ELEMENT_TYPES["f64"]
        stated = not isinstance(value, bool) and draw(st.booleans())
        type = TensorType((), element) if stated else literal_type("dali", value)
        x = writer.argument(
            TensorType((2, draw(SIZES)), draw(st.sampled_from([I32, ELEMENT_TYPES["ui8"]])))
        )
        literal = Literal(fit(value, type.element), type, explicit=stated)
        pair = draw(st.permutations([x, literal]))
        writer.operation(OPERATORS["dali.add"](*pair))
    return writer.function("literals", tuple(o.results[0] for o in writer.operations))


@st.composite
def layers(draw: Callable[[Any], Any], name: str) -> Function:
    """A function of elementwise operators over sizes known, named and unknown."""
    writer = Writer(draw)
    shape: tuple[Dim, ...] = tuple(draw(st.lists(SIZES, max_size=3)))
    values = [writer.argument(TensorType(shape, I32), called=True)]
    for _ in range(draw(st.integers(0, 4))):
        values.append(writer.elementwise(draw(st.sampled_from(values))))
    return writer.function(
        name, tuple(draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))
    )


@st.composite
def operators(draw: Callable[[Any], Any]) -> Function:
    """A function of operators from the samples."""
    writer = Writer(draw)
    results: list[Value] = []
    for _ in range(draw(st.integers(1, 3))):
        results += writer.sampled(draw(st.sampled_from(sorted(SAMPLES))))
    return writer.function("operators", tuple(results))


@st.composite
def modules(draw: Callable[[Any], Any]) -> Module:
    """A verified module whose main function calls a layer, perhaps twice."""
    layer = draw(layers("layer"))
    writer = Writer(draw)
    x = writer.argument(layer.arguments[0].known_type)
    called = [
        writer.operation(Call((x,), Symbol("layer")), len(layer.results))
        for _ in range(draw(st.integers(1, 2)))
    ]
    main = writer.function("main", called[-1])
    functions = [
        *draw(st.lists(st.one_of(constants(), literals(), operators()), max_size=2)),
        layer,
        main,
    ]
    return verify.verify(Module({f.name: f for f in functions}))
