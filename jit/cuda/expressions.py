"""Expressions of CUDA C beside those of any C: half precision, packs of elements, and buffers of
which every thread of a block has its own part.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ...dialect.kernel_ir.expressions import Apply, Expr, Index, Tensor
from ...dialect.types.tensor_types import F16, I1, ElementType
from ..c.addresses import Val
from ..c.spelling import Row
from ..c.statements import Statements
from .scalar_spelling import CUDA


class CudaStatements(Statements):
    """Values and memory of CUDA C."""

    def __init__(self, sizes: Mapping[object, str], written: Iterable[Tensor]) -> None:
        super().__init__(CUDA, sizes, written)
        self.private: set[Tensor] = (
            set()
        )  # buffers of which every thread of a block has its own part
        self.thread: Index | None = None
        self.thread_name = ""

    @contextmanager
    def unrolled(self, index: Index) -> Iterator[str]:
        """A loop over all of an index, unrolled; its variable."""
        name = self.fresh()
        self.line("#pragma unroll")
        self.line(f"for (int {name} = 0; {name} < {index.extent}; ++{name}) {{")
        outer = dict(self.known)
        self.known[id(index)] = Val(name, "int")
        self.kept.append(index)
        with self.deeper():
            yield name
        self.known = outer
        self.line("}")

    def apply(self, function: str, operands: tuple[Expr, ...], type: ElementType) -> Val:
        value = super().apply(function, operands, type)
        element = operands[-1].type
        if element is F16 and self.row(function, element).mode == "rounded":
            return Val(f"half({value.text})", value.ctype)
        return value

    def row(self, function: str, element: ElementType) -> Row:
        if function == "fma" and element is F16:
            return Row("fma_half({a}, {b}, {c})")
        return super().row(function, element)

    def convert(self, operand: Expr, type: ElementType) -> Val:
        if operand.type is F16 and CUDA.value_type(type) == CUDA.value_type(F16):
            return self.exact(operand)  # it is carried as one
        return super().convert(operand, type)

    def load(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val:
        if tensor in self.private and at[0] is not self.thread:
            return self.shuffled(self.place(tensor, at), at[0], tensor.element)
        if tensor.element is F16 and self.in_memory(tensor):
            return Val(f"from_half({self.place(tensor, at)})", "float")
        return super().load(tensor, at)

    def shuffled(self, text: str, at: Expr, element: ElementType) -> Val:
        """A shuffle: the register of another thread of the warp. It is a statement, since no thread
        may skip it, as by `&&`.
        """
        assert isinstance(at, Apply) and at.function == "xor" and at.operands[0] is self.thread, (
            "a thread of the warp"
        )
        wide = "int" if element.is_discrete and element.bits < 32 else CUDA.value_type(element)
        shuffle = f"__shfl_xor_sync(0xffffffffu, {text}, {self.address(at.operands[1]).text})"
        return self.named(Val(f"{shuffle} != 0" if element is I1 else shuffle, wide), wide)

    def store(self, tensor: Tensor, at: tuple[Expr, ...], value: Expr) -> None:
        if tensor.element is not F16 or not self.in_memory(tensor):
            super().store(tensor, at, value)
            return
        text = self.exact(value).text
        self.line(f"{self.place(tensor, at)} = to_half({text});")

    def pack(self, tensor: Tensor, at: Expr, width: int) -> str:
        """A pack, or the row-major place of one in an array."""
        if tensor.space == "pack":
            return self.arrays[tensor]
        constant = "" if tensor in self.written else "const "
        where = self.address(at).text
        return (
            f"*({constant}Pack<{self.declared(tensor)}, {width}>*)({self.arrays[tensor]} + {where})"
        )

    def place(self, tensor: Tensor, at: tuple[Expr, ...]) -> str:
        shape, name = tensor.shape, self.arrays[tensor]
        if tensor in self.private:
            at, shape = at[1:], shape[1:]
        if tensor.space == "pack":
            name += ".at"
        return self.element(name, at, shape, self.in_memory(tensor) and tensor.space != "shared")
