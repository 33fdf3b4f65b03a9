"""Expressions of the loop language as C: values and the places of array elements.

A value is exact, or a number modulo 2^width, made exact where that matters. What is used more than
once gets a name.
"""

from ...dialect.kernel_ir.expressions import (
    Apply,
    Bitcast,
    Cast,
    Const,
    Expr,
    Extent,
    Index,
    Read,
    Tensor,
)
from ...dialect.kernel_ir.index_bounds import is_nonzero
from ...dialect.kernel_ir.scalar_functions import DIVISIONS
from ...dialect.kernel_ir.simplify_node import linear_index
from ...dialect.types.sizes import Shape
from ...dialect.types.tensor_types import F64, I1, I64, ElementType
from .addresses import Addresses, Val, is_index
from .spelling import ATOM, EQUALITY, UNARY, Row


class Expressions(Addresses):
    """Values and memory."""

    # values

    def value(self, e: Expr) -> Val:
        """An expression, exact or modulo 2^width."""
        if isinstance(e, Const):
            text = self.c.number(e.value, e.type)
            return Val(text, self.c.value_type(e.type), UNARY if text.startswith("-") else ATOM)
        if id(e) in self.known:
            return self.known[id(e)]
        if is_index(e):
            return self.address(e)
        computed = self.compute(e)
        if id(e) in self.shared or len(computed.text) > self.longest:
            computed = self.named(self.made_exact(computed, e.type), self.c.value_type(e.type))
            self.remember(e, computed)
        return computed

    def exact(self, e: Expr) -> Val:
        return self.made_exact(self.value(e), e.type)

    def made_exact(self, value: Val, element: ElementType) -> Val:
        if value.exact:
            return value
        if (wanted := self.c.value_type(element)) == value.ctype:
            return Val(value.text, wanted, value.level)
        return Val(f"({wanted}){value.at(UNARY)}", wanted, UNARY)

    def of_type(self, e: Expr) -> Val:
        """The exact value in the C type of its element, for functions that are overloaded."""
        value = self.exact(e)
        wanted = self.c.value_type(e.type)
        narrow = (
            isinstance(e, Const) and e.type.is_integer and e.type.bits < 32
        )  # C has no literals of these
        return (
            value
            if value.ctype == wanted and not narrow
            else Val(f"({wanted}){value.at(UNARY)}", wanted, UNARY)
        )

    def modular(self, e: Expr) -> Val:
        value = self.value(e)
        wanted = self.c.modular_type(e.type)
        if value.ctype == wanted:
            return value
        if isinstance(e, Const) and e.value >= 0:
            return Val(f"{e.value}{'ull' if e.type.bits == 64 else 'u'}", wanted)
        return Val(f"({wanted}){value.at(UNARY)}", wanted, UNARY, False)

    def compute(self, e: Expr) -> Val:
        match e:
            case Index() | Extent():
                return self.address(e)
            case Read(tensor, at):
                return self.load(tensor, at)
            case Cast(operand, type):
                return self.convert(operand, type)
            case Bitcast(operand, type):
                row = self.c.reinterpretation(operand.type, type)
                return Val(
                    row.text.format(a=self.of_type(operand).at(ATOM)),
                    self.c.value_type(type),
                    row.level,
                )
            case Apply(function, operands, type):
                return self.apply(function, operands, type)
        raise LookupError(f"{getattr(e, 'name', e.__class__.__name__)} has no value here")

    def computed(self, function: str, operands: tuple[Expr, ...], type: ElementType) -> Val:
        return self.made_exact(self.apply(function, operands, type), type)

    def apply(self, function: str, operands: tuple[Expr, ...], type: ElementType) -> Val:
        element = operands[-1].type
        row = self.row(function, element)
        if row.mode == "modular":
            values = [self.modular(o) for o in operands]
            exact = element.bits >= 32 and element.kind == "uint"
            return Val(self.spell(row, values), self.c.modular_type(element), row.level, exact)
        divisor = operands[-1]
        divides = function in DIVISIONS and element.is_integer and not is_nonzero(divisor)
        known = isinstance(divisor, Const) and divisor.value not in (0, -1)
        if function in ("div", "rem") and element.kind == "int" and known:
            row = self.c.rows[function, "uint"]
        if all(map(is_index, operands)):
            values = [self.address(o) for o in operands]
            if divides:
                values[1] = self.nonzero(values[1])
            if row.calls:
                values = self.widened(values)
                return Val(self.spell(row, values), values[0].ctype, row.level)
        else:
            values = [(self.of_type if row.calls else self.exact)(o) for o in operands]
            if (
                type is I64 is element and values[-1].ctype == self.c.word
            ):  # of an index: C's choice of two is one, too
                values[-1] = self.wide(values[-1])
            if divides:
                values[1] = self.nonzero(values[1])
        for n, letter in enumerate("abc"[: len(values)]):
            if row.text.count("{" + letter + "}") > 1 and values[n].level < ATOM:
                values[n] = self.named(values[n], self.c.value_type(operands[n].type))
        text = self.spell(row, values, suffix="" if element is F64 else "f")
        small = element.is_integer and element.bits < 32 and type.kind != "bool"
        return Val(text, self.c.word if small else self.c.value_type(type), row.level)

    def convert(self, operand: Expr, type: ElementType) -> Val:
        if (source := operand.type) is type:
            return self.value(operand)
        if (
            source.is_integer and type.is_integer
        ):  # the low bits of a number modulo 2^width are those of its value
            value = self.value(operand)
            if type.bits > source.bits:
                value = self.made_exact(value, source)
            elif not value.exact and type.bits == source.bits == 32:
                return Val(value.text, value.ctype, value.level, type.kind == "uint")
        else:
            value = self.exact(operand)
        row = self.c.conversion(source, type)
        level = 0 if row.level == ATOM else row.level
        return Val(
            row.text.format(a=value.at(level)),
            self.c.value_type(type),
            ATOM if level == 0 else row.level,
        )

    def row(self, function: str, element: ElementType) -> Row:
        """The spelling of a function of this element type."""
        return self.c.rows[function, element.kind]

    def nonzero(self, divisor: Val) -> Val:
        return Val(f"nonzero{self.c.suffix(divisor.ctype)}({divisor.text})", divisor.ctype)

    # memory

    def load(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val:
        text = self.place(tensor, at)
        if tensor.element is I1 and self.in_memory(tensor):
            return Val(
                f"{text} != 0", self.c.value_type(I1), EQUALITY
            )  # as for NumPy, every byte but 0 is true
        return Val(text, self.c.value_type(tensor.element))

    def store(self, tensor: Tensor, at: tuple[Expr, ...], value: Expr) -> None:
        text = self.exact(value).text
        self.line(f"{self.place(tensor, at)} = {text};")

    def in_memory(self, tensor: Tensor) -> bool:
        return tensor.space not in ("register", "stack")

    def declared(self, tensor: Tensor) -> str:
        return (
            self.c.memory_type(tensor.element)
            if self.in_memory(tensor)
            else self.c.value_type(tensor.element)
        )

    def place(self, tensor: Tensor, at: tuple[Expr, ...]) -> str:
        """An element of an array, as C writes it."""
        return self.element(self.arrays[tensor], at, tensor.shape, self.in_memory(tensor))

    def element(self, name: str, at: tuple[Expr, ...], shape: Shape, is_pointer: bool) -> str:
        """The element of an array of a shape; an array of rank 0 is a variable, or a pointer."""
        if not at:
            return f"{name}[0]" if is_pointer else name
        return f"{name}[{self.address(linear_index(at, shape)).text}]"
