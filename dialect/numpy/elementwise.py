"""`numpy.elementwise`: a universal function of NumPy on tensors, with NumPy's broadcasting and
promotion.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernel_ir.expressions import Element, Tensor, axes
from ..spec.broadcasting import broadcast, broadcastable, cannot_broadcast, source
from ..spec.operator import C, NoRule, T, operator
from ..spec.unmet import Unmet
from ..theano.elemwise import Broadcasting
from ..theano.scalar_op import SCALAR_OPS
from ..types.sizes import Shape
from ..types.tensor_types import BF16, BY_DTYPE, ElementType, TensorType, compute_type
from .arithmetic import NEGATIVE_POWER
from .logical_where_astype import astype, in_range
from .ufunc_table import UFUNCS, Ufunc

if TYPE_CHECKING:
    from ..ir.builder import Cotangents, Node, Nodes

TO_ELEMENT = {"astype": astype, "in_range": in_range}


@operator
class Elementwise(Broadcasting[T]):
    """Y[d...] = ufunc of the operands at d..., in the element types that NumPy's promotion gives.
    (NumPy 2, ufuncs)

    Operands of lower rank are completed on the left, and repeated along dimensions of size 1, even
    if a size turns out to be 1 only when the program is called. `astype` converts to the element
    type `dtype` as ndarray.astype does; `in_range` does so with integers that must fit.
    `scalar_power` is NumPy's power of f32 and f64 with one exponent for all elements, of which 0.5
    takes the root. Integers wrap modulo 2^width, and division by an integer zero gives 0. Floats
    are rounded once.
    """

    ufunc: str
    dtype: ElementType | None = None

    constraints = (
        C(
            1,
            "ufunc is a universal function of NumPy that has a formula",
            lambda o: o.ufunc in UFUNCS or o.ufunc in TO_ELEMENT,
            "ufunc",
            UFUNCS,
        ),
        C(
            2,
            "dtype is given for astype and in_range, and only there",
            lambda o: (o.dtype is None) == (o.ufunc not in TO_ELEMENT),
        ),
        C(3, "operands = arity of ufunc", lambda o: len(o.xs) == o.op.arity),
        C(
            4,
            "NumPy has a loop of ufunc for elements",
            lambda o: o.op.loop(tuple(x.element for x in o.xs)) is not None,
        ),
        C(
            5,
            "sizes that meet are equal or 1",
            lambda o: broadcastable(*(x.shape for x in o.xs)),
            plainly=lambda o: cannot_broadcast(*(x.shape for x in o.xs)),
        ),
    )
    example = '%z = %x, %y {ufunc = "floor_divide"}', "%x: 2x3xi64, %y: 3xi8", "2x3xi64"

    @property
    def op(self) -> Ufunc:
        return UFUNCS[self.ufunc] if self.dtype is None else TO_ELEMENT[self.ufunc](self.dtype)

    def shape(self: "Elementwise[Any]") -> Shape:
        return broadcast(*(x.shape for x in self.xs))

    def element(self: "Elementwise[Tensor]", y: Tensor) -> Element:
        at = axes(y.shape)
        return Element(at, self.op.expression([x[source(at, x)] for x in self.xs], y.element))

    def infer(self: "Elementwise[TensorType]") -> TensorType:
        types = self.op.loop(tuple(x.element for x in self.xs))
        assert types is not None
        return TensorType(self.shape(), types[-1])

    def reference(self: "Elementwise[np.ndarray]") -> np.ndarray:
        elements = tuple(BY_DTYPE[x.dtype] for x in self.xs)
        types = self.op.loop(elements)
        assert types is not None
        wide = [
            compute_type(e) if BF16 in elements and not self.op.keeps_f16 else e for e in elements
        ]
        try:
            xs = [x.astype(e.dtype, copy=False) for x, e in zip(self.xs, wide, strict=True)]
            return np.asarray(self.op.numpy(*xs), types[-1].dtype)
        except OverflowError as e:
            raise Unmet(str(e)) from None
        except ValueError:
            raise Unmet(NEGATIVE_POWER) from None

    def pullback(self: "Elementwise[Node]", results: "Nodes", cotangents: "Nodes") -> "Cotangents":
        (y,), (g,) = results, cotangents
        if self.dtype is not None:
            return [g.cast(self.xs[0].element)]
        if self.op.gradient is None:
            raise NotImplementedError(f"numpy.elementwise of {self.ufunc}")
        types = self.op.loop(tuple(x.element for x in self.xs))
        assert types is not None, "the constraints found a loop"
        inner = [x.cast(t).stretched(y) for x, t in zip(self.xs, types, strict=False)]
        pulled = SCALAR_OPS[self.op.gradient].pulled(g, inner, y)
        return [
            d.gathered(x) if d and not isinstance(d, NoRule) else d
            for d, x in zip(pulled, self.xs, strict=True)
        ]
