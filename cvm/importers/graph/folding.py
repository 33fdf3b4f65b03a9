"""A builder that computes operations on constants at once, by our own reference, where that is
little work.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cvm.dialect.builtin import Calling, Const, Data, owned
from cvm.dialect.ir.builder import Builder, Node
from cvm.dialect.ir.function import Literal, Operation, Value
from cvm.dialect.spec.operator import Operator
from cvm.dialect.spec.unmet import Unmet
from cvm.dialect.support.diagnostics import Span
from cvm.dialect.types.tensor_types import BY_DTYPE, TensorType

MAX_COMPUTED = (
    1 << 16
)  # elements that an operation reads and writes, to be computed while importing
MAX_MOVED = 1 << 26  # likewise, of operations that NumPy does in one go
MOVING = {
    "cvm.transpose",
    "cvm.reshape",
    "cvm.squeeze",
    "cvm.concatenate",
    "cvm.slice",
    "theano.dimshuffle",
    "builtin.reshape",
    "builtin.pad",
}
ARITHMETIC = {
    "cast",
    "add",
    "sub",
    "mul",
    "second",
    "identity",
}  # scalar operations that are as cheap as a copy


@dataclass
class FoldingBuilder(Builder):
    """Operations in order, the arrays of those that are constants, and the values that operations
    read.
    """

    constants: dict[Value, np.ndarray] = field(default_factory=dict)
    read: set[Value] = field(default_factory=set)

    def add(
        self, operator: Operator[Value], span: Span | None = None, names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        results = super().add(operator, span, names)
        if isinstance(operator, Const):
            self.constants[results[0]] = operator.data.array
            return results
        operands = [v for _, v in operator.operands()]
        constant = operands and all(isinstance(v, Literal) or v in self.constants for v in operands)
        if not constant or isinstance(operator, Calling) or not is_cheap(self.operations[-1]):
            self.read.update(operands)
            return results
        try:
            with np.errstate(all="ignore"):
                arrays = operator.map(
                    lambda v: v.array if isinstance(v, Literal) else self.constants[v]
                ).reference()
        except Unmet:  # it fails when the program runs
            self.read.update(operands)
            return results
        self.operations.pop()
        return tuple(
            self.constant(owned(a)).value
            for a in (arrays if isinstance(arrays, tuple) else (arrays,))
        )

    def release(self, start: int) -> set[Value]:
        """Drop constants from the operation of this number on that none reads, such as those that
        others were computed of.
        """
        made = self.operations[start:]
        dropped = {
            o.results[0]
            for o in made
            if isinstance(o.operator, Const)
            and o.results[0] in self.constants
            and o.results[0] not in self.read
        }
        self.operations[start:] = [o for o in made if o.results[0] not in dropped]
        for value in dropped:
            del self.constants[value]
        return dropped

    def constant(self, array: np.ndarray) -> Node:
        """An array as an operation; one element for all, where it is one that is repeated."""
        splat = array.size > 1 and not any(
            s for s, n in zip(array.strides, array.shape, strict=True) if n > 1
        )
        kept = splat or array.flags.c_contiguous
        whole = array if kept else owned(np.array(array, order="C"))
        return self.node(
            self.add(
                Const(Data(whole, splat=splat), TensorType(array.shape, BY_DTYPE[array.dtype]))
            )[0]
        )


def is_cheap(operation: Operation) -> bool:
    """Test whether an operation may be computed while importing."""
    operator = operation.operator
    sizes = [v.known_type.size for v in (*(v for _, v in operator.operands()), *operation.results)]
    moving = (
        operator.view or operator.name in MOVING or getattr(operator, "scalar_op", "") in ARITHMETIC
    )
    return all(isinstance(n, int) for n in sizes) and sum(sizes) <= (
        MAX_MOVED if moving else MAX_COMPUTED
    )
