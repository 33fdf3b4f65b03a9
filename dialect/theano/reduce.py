"""Theano's reductions, by commutative and associative scalar operations, with accumulator types of
their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from ..kernel_ir.expressions import Element, Expr, Index, Tensor, axes, constant, reduce, select
from ..kernel_ir.reduce_in_order import reduce_in_order
from ..kernel_ir.scalar_references import largest, smallest
from ..kernel_ir.traverse import substitute
from ..spec.broadcasting import all_of
from ..spec.operator import C, Operator, T, declare, operator
from ..types.tensor_types import I1, ElementType, TensorType, compute_type, element_of
from .dimensions import are_distinct, axes_exist, reduced
from .scalar_op import SCALAR_OPS
from .wrapping_casts import cast_to_element, to_element

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes

NumpyReduction: TypeAlias = Callable[[np.ndarray, tuple[int, ...]], Any]
MUL_WITHOUT_ZEROS = "mul_without_zeros"


@dataclass(frozen=True, eq=False)
class Reduction(Operator[T]):
    """The family of Y[kept...] = reduction by scalar_op of X over the axes in `axis`; all of them
    where it is absent, none where it is [].

    X is converted to the accumulator's type, reduced in it, and the result converted to its own
    type. A reduction of floats has the documented order (see the lowering); it is the same on every
    target, for all numbers of threads.
    """

    x: T
    axis: tuple[int, ...] | None = None

    function: ClassVar[Any]  # the scalar operation of the reduction
    symbols = {
        "N": lambda o: o.x.rank,
        "n_j": lambda o: next(
            n for n in map(o.x.shape.__getitem__, o.over()) if isinstance(n, int) and n < 1
        ),
        "accumulator": lambda o: o.accumulator(),
    }
    constraints = (
        C(1, "axis in [-N, N)", lambda o: axes_exist(o.axis, o.x.rank), at="axis"),
        C(2, "no axis repeats in axis", lambda o: are_distinct(o.axis, o.x.rank), at="axis"),
    )

    def accumulator(self: "Reduction[Any]") -> ElementType:
        """The type in which X is reduced."""
        return self.x.element

    def result(self: "Reduction[Any]") -> ElementType:
        return self.x.element

    def over(self: "Reduction[Any]", rank: int | None = None) -> tuple[int, ...]:
        return reduced(self.axis, len(self.x.shape) if rank is None else rank)

    def infer(self: "Reduction[TensorType]") -> TensorType:
        return TensorType(
            tuple(n for j, n in enumerate(self.x.shape) if j not in self.over()), self.result()
        )

    def typed(self: "Reduction[Any]") -> Any:
        """The operator over types."""
        return self.map(
            lambda x: x if isinstance(x, TensorType) else TensorType(x.shape, element_of(x))
        )

    def prepared(self, x: Any, convert: Callable[[Any, ElementType], Any]) -> Any:
        """The elements in the accumulator's type; f16 and bf16 are reduced in f32."""
        return convert(x, compute_type(self.typed().accumulator()))

    def pullback(self: "Reduction[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        """By the operation of the reduction; a reduction in integers has no derivative but zero."""
        x, (y,), (g,) = self.x, results, cotangents
        if x.element.is_discrete and self.typed().accumulator().is_discrete:
            return [None]
        over = self.over()
        g = g.with_ones(over)
        match self.function:
            case "add":
                return [g.like(x)]
            case "mul":
                return [self._of_product(x, y.with_ones(over), g)]
            case "maximum" | "minimum":
                return [x.scalar("eq", y.with_ones(over)).scalar("switch", g, 0)]
            case "mul_without_zeros":
                zeros = x.scalar("eq", 0)
                others = y.with_ones(over) / zeros.scalar(
                    "switch", 1, x
                )  # finite: what is not chosen is derived, too
                return [zeros.scalar("switch", 0, g * others.scalar("conj"))]
        return [None]

    def _of_product(self, x: "Node", y: "Node", g: "Node") -> "Node":
        if getattr(self, "no_zeros_in_input", False):
            return g * (y / x).scalar("conj")
        if x.element.kind == "complex":
            raise NotImplementedError(f"{self.name} of complex numbers, some of which may be 0,")
        return g * x.cast(self.typed().accumulator()).reduce("product_of_others", self.over())

    def simplified(self: "Reduction[Any]", definition: object) -> Any:
        """The operand, where no axis is reduced, its type is kept, and the accumulator holds all of
        it.
        """
        typed: Any = self.map(lambda x: x.known_type)
        return (
            self.x
            if typed.x.element.is_discrete == typed.accumulator().is_discrete and not typed.over()
            else None
        )

    def reference(self: "Reduction[np.ndarray]") -> np.ndarray:
        typed = self.typed()
        in_order = typed.result().is_discrete and not typed.accumulator().is_discrete
        reduce = (IN_ORDER if in_order else NUMPY_REDUCTIONS).get(
            self.function, NUMPY_REDUCTIONS[self.function]
        )
        return to_element(
            np.asarray(reduce(self.prepared(self.x, to_element), self.over())), typed.result()
        )

    def element(self: "Reduction[Tensor]", y: Tensor) -> Element:
        d = iter(at := axes(y.shape))
        over = {j: Index(f"k{j}", self.x.shape[j]) for j in self.over()}
        x = self.prepared(
            self.x[tuple(over[j] if j in over else next(d) for j in range(self.x.rank))],
            cast_to_element,
        )
        return Element(
            at, cast_to_element(reduction(self.function, tuple(over.values()), x), y.element)
        )


def reduction(function: str, over: tuple[Index, ...], x: Expr) -> Expr:
    """The reduction of an element by a scalar operation."""
    if not over:
        return x
    if function == MUL_WITHOUT_ZEROS:
        product = reduction(
            "mul", over, select(x.eq(0), constant(1, x.type), x) if x.type is not I1 else x | ~x
        )
        again = tuple(
            Index(i.name, i.extent) for i in over
        )  # each reduction has indices of its own
        x = substitute(x, dict(zip(over, again, strict=True)))
        return select(
            reduce("or", again, x.ne(0) if x.type is not I1 else x), product, constant(0, x.type)
        )
    name = SCALAR_OPS[function].reduction
    assert name is not None
    if x.type is I1:
        name = ON_BOOL.get(name, name)
    elif x.type.kind != "float":
        name = {"maximum": "max", "minimum": "min"}.get(name, name)
    return reduce(name, over, x)


ON_BOOL = {"add": "or", "mul": "and", "maximum": "or", "minimum": "and"}


def _product_of_nonzero(product: NumpyReduction) -> NumpyReduction:
    def reduce(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
        if not axis:
            return x
        products = product(np.where(x == 0, np.ones((), x.dtype), x), axis)
        return np.where((x != 0).any(axis), products, np.zeros((), x.dtype))

    return reduce


def _accurate(ufunc: Any) -> NumpyReduction:
    """NumPy's reduction in the array's own type, which a float sum does pairwise."""
    return lambda x, axis: ufunc.reduce(x, axis, x.dtype) if axis else x


def _in_order(ufunc: object, by_rows: bool = False) -> NumpyReduction:
    return lambda x, axis: reduce_in_order(ufunc, x, axis, by_rows) if axis else x


NUMPY_REDUCTIONS: dict[str, NumpyReduction] = {
    "add": _accurate(np.add),
    "mul": _accurate(np.multiply),
    "maximum": lambda x, axis: largest(x, axis) if axis else x,
    "minimum": lambda x, axis: smallest(x, axis) if axis else x,
    "and_": _accurate(np.bitwise_and),
    "or_": _accurate(np.bitwise_or),
    "xor": _accurate(np.bitwise_xor),
    MUL_WITHOUT_ZEROS: _product_of_nonzero(_accurate(np.multiply)),
}
IN_ORDER: dict[
    str, NumpyReduction
] = {  # where floats accumulate what becomes an integer, whose bits go by the order
    "add": _in_order(np.add),
    "mul": _in_order(np.multiply),
    MUL_WITHOUT_ZEROS: _product_of_nonzero(_in_order(np.multiply, by_rows=True)),
}

NONEMPTY = C(
    3,
    "n_j > 0 for j in axis, n being shape(x): the reduction has no identity",
    lambda o: (
        o.function not in ("maximum", "minimum")
        or all_of((lambda j=j: o.x.shape[j] > 0) for j in o.over())
    ),
)
REDUCIBLE = C(
    4,
    "scalar_op is commutative and associative",
    lambda o: o.scalar_op in NUMPY_REDUCTIONS,
    "scalar_op",
    NUMPY_REDUCTIONS,
)
BY_ATTRIBUTE = property(
    lambda o: o.scalar_op
)  # the function of a reduction by any scalar operation
ELEMENTS = C(
    5, "element(x) can be reduced by scalar_op", lambda o: is_reducible(o.scalar_op, o.x.element)
)


def is_reducible(function: str, element: ElementType) -> bool:
    if function in ("maximum", "minimum") and element.kind == "complex":
        return False
    return SCALAR_OPS[function].takes(element, element)


@operator
class Careduce(Reduction[T]):
    """A reduction by `scalar_op`, in the operand's type: no upcast, integers wrap.   (CAReduce)"""

    scalar_op: str = field(kw_only=True)

    constraints = (REDUCIBLE, *Reduction.constraints, ELEMENTS, NONEMPTY)
    example = '%x {scalar_op = "xor", axis = [1]}', "%x: 2x3xi32", "2xi32"

    function = BY_ATTRIBUTE


class Extreme(Reduction[T]):
    """The family of reductions to the largest or the smallest element, NaN if one is."""

    constraints = (
        *Reduction.constraints,
        C(5, "element(x) is not complex", lambda o: o.x.element.kind != "complex"),
        NONEMPTY,
    )


class Truth(Reduction[T]):
    """The family of reductions of the truth of elements; NaN is true."""

    example = "%x {axis = [1]}", "%x: 2x3xf32", "2xi1"

    def accumulator(self) -> ElementType:
        return I1

    def result(self) -> ElementType:
        return I1


declare(
    "Max",
    Extreme,
    "The largest element, NaN if one is.   (CAReduce of maximum)",
    function="maximum",
    example=("%x {axis = [-1]}", "%x: 2x3xf32", "2xf32"),
)
declare(
    "Min",
    Extreme,
    "The smallest element, NaN if one is.   (CAReduce of minimum)",
    function="minimum",
    example=("%x", "%x: 2x3xf32", "f32"),
)
declare("All", Truth, "True where no element is 0.   (All)", function="and_")
declare("Any", Truth, "True where some element is not 0.   (Any)", function="or_")
