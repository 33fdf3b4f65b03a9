"""Expressions of the loop language as CUDA C: values and the places of array elements.

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
from ...dialect.types.tensor_types import F16, F64, I1, I64, ElementType
from . import scalar_spelling as c
from .addresses import LONGEST, Addresses, Val, is_index, wide, widened


class Expressions(Addresses):
    """Values and memory."""

    # values

    def value(self, e: Expr) -> Val:
        """An expression, exact or modulo 2^width."""
        if isinstance(e, Const):
            text = c.number(e.value, e.type)
            return Val(text, c.value_type(e.type), c.UNARY if text.startswith("-") else c.ATOM)
        if id(e) in self.known:
            return self.known[id(e)]
        if is_index(e):
            return self.address(e)
        computed = self.compute(e)
        if id(e) in self.shared or len(computed.text) > LONGEST:
            computed = self.named(self.made_exact(computed, e.type), c.value_type(e.type))
            self.remember(e, computed)
        return computed

    def exact(self, e: Expr) -> Val:
        return self.made_exact(self.value(e), e.type)

    def made_exact(self, value: Val, element: ElementType) -> Val:
        if value.exact:
            return value
        if (wanted := c.value_type(element)) == value.ctype:
            return Val(value.text, wanted, value.level)
        return Val(f"({wanted}){value.at(c.UNARY)}", wanted, c.UNARY)

    def of_type(self, e: Expr) -> Val:
        """The exact value in the C type of its element, for functions that are overloaded."""
        value = self.exact(e)
        wanted = c.value_type(e.type)
        narrow = (
            isinstance(e, Const) and e.type.is_integer and e.type.bits < 32
        )  # C has no literals of these
        return (
            value
            if value.ctype == wanted and not narrow
            else Val(f"({wanted}){value.at(c.UNARY)}", wanted, c.UNARY)
        )

    def modular(self, e: Expr) -> Val:
        value = self.value(e)
        wanted = c.modular_type(e.type)
        if value.ctype == wanted:
            return value
        if isinstance(e, Const) and e.value >= 0:
            return Val(f"{e.value}{'ull' if e.type.bits == 64 else 'u'}", wanted)
        return Val(f"({wanted}){value.at(c.UNARY)}", wanted, c.UNARY, False)

    def compute(self, e: Expr) -> Val:
        match e:
            case Index() | Extent():
                return self.address(e)
            case Read(tensor, at):
                return self.load(tensor, at)
            case Cast(operand, type):
                return self.convert(operand, type)
            case Bitcast(operand, type):
                row = c.reinterpretation(operand.type, type)
                return Val(
                    row.text.format(a=self.of_type(operand).at(c.ATOM)),
                    c.value_type(type),
                    row.level,
                )
            case Apply(function, operands, type):
                return self.apply(function, operands, type)
        raise LookupError(f"{getattr(e, 'name', e.__class__.__name__)} has no value here")

    def computed(self, function: str, operands: tuple[Expr, ...], type: ElementType) -> Val:
        return self.made_exact(self.apply(function, operands, type), type)

    def apply(self, function: str, operands: tuple[Expr, ...], type: ElementType) -> Val:
        element = operands[-1].type
        row = c.ROWS[function, element.kind]
        if function == "fma" and element is F16:
            row = c.Row("fma_half({a}, {b}, {c})")
        if row.mode == "modular":
            values = [self.modular(o) for o in operands]
            exact = element.bits >= 32 and element.kind == "uint"
            return Val(self.spell(row, values), c.modular_type(element), row.level, exact)
        divisor = operands[-1]
        divides = function in DIVISIONS and element.is_integer and not is_nonzero(divisor)
        known = isinstance(divisor, Const) and divisor.value not in (0, -1)
        if function in ("div", "rem") and element.kind == "int" and known:
            row = c.ROWS[function, "uint"]
        overloaded = row.level == c.ATOM and "(" in row.text
        if all(map(is_index, operands)):
            values = [self.address(o) for o in operands]
            if divides:
                values[1] = _nonzero(values[1])
            if overloaded:
                values = widened(values)
                return Val(self.spell(row, values), values[0].ctype, row.level)
        else:
            values = [(self.of_type if overloaded else self.exact)(o) for o in operands]
            if (
                type is I64 is element and values[-1].ctype == "int"
            ):  # of an index: C's choice of two is one, too
                values[-1] = wide(values[-1])
            if divides:
                values[1] = _nonzero(values[1])
        for n, letter in enumerate("abc"[: len(values)]):
            if row.text.count("{" + letter + "}") > 1 and values[n].level < c.ATOM:
                values[n] = self.named(values[n], c.value_type(operands[n].type))
        text = self.spell(row, values, suffix="" if element is F64 else "f")
        if row.mode == "rounded" and element is F16:
            return Val(f"half({text})", "float")
        small = element.is_integer and element.bits < 32 and type.kind != "bool"
        return Val(text, "int" if small else c.value_type(type), row.level)

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
            if source is F16 and c.value_type(type) == value.ctype:  # it is carried as one
                return value
        row = c.conversion(source, type)
        level = (
            0
            if row.level == c.ATOM or (row.text.startswith("half(") and "double" not in row.text)
            else row.level
        )
        return Val(
            row.text.format(a=value.at(level)),
            c.value_type(type),
            c.ATOM if level == 0 else row.level,
        )

    # memory

    def load(self, tensor: Tensor, at: tuple[Expr, ...]) -> Val:
        text = self.place(tensor, at)
        if tensor in self.private and at[0] is not self.thread:
            return self.shuffled(text, at[0], tensor.element)
        if tensor.element is F16 and self.in_memory(tensor):
            return Val(f"from_half({text})", "float")
        if tensor.element is I1 and self.in_memory(tensor):
            return Val(
                f"{text} != 0", c.value_type(I1), c.EQUALITY
            )  # as for NumPy, every byte but 0 is true
        return Val(text, c.value_type(tensor.element))

    def shuffled(self, text: str, at: Expr, element: ElementType) -> Val:
        """A shuffle: the register of another thread of the warp. It is a statement, since no thread
        may skip it, as by `&&`.
        """
        assert isinstance(at, Apply) and at.function == "xor" and at.operands[0] is self.thread, (
            "a thread of the warp"
        )
        wide = "int" if element.is_discrete and element.bits < 32 else c.value_type(element)
        shuffle = f"__shfl_xor_sync(0xffffffffu, {text}, {self.address(at.operands[1]).text})"
        return self.named(Val(f"{shuffle} != 0" if element is I1 else shuffle, wide), wide)

    def store(self, tensor: Tensor, at: tuple[Expr, ...], value: Expr) -> None:
        text = self.exact(value).text
        if tensor.element is F16 and self.in_memory(tensor):
            text = f"to_half({text})"
        self.line(f"{self.place(tensor, at)} = {text};")

    def pack(self, tensor: Tensor, at: Expr, width: int) -> str:
        """A pack, or the row-major place of one in an array."""
        if tensor.space == "pack":
            return self.arrays[tensor]
        constant = "" if tensor in self.written else "const "
        where = self.address(at).text
        return (
            f"*({constant}Pack<{self.declared(tensor)}, {width}>*)({self.arrays[tensor]} + {where})"
        )

    def in_memory(self, tensor: Tensor) -> bool:
        return tensor.space not in ("register", "stack")

    def declared(self, tensor: Tensor) -> str:
        return (
            c.memory_type(tensor.element)
            if self.in_memory(tensor)
            else c.value_type(tensor.element)
        )

    def place(self, tensor: Tensor, at: tuple[Expr, ...]) -> str:
        """An element of an array, as C writes it."""
        name = self.arrays[tensor]
        shape = tensor.shape
        if tensor in self.private:
            at, shape = at[1:], shape[1:]
        if tensor.space == "pack":
            name += ".at"
        if not at:
            return name if not self.in_memory(tensor) or tensor.space == "shared" else f"{name}[0]"
        return f"{name}[{self.address(linear_index(at, shape)).text}]"


def _nonzero(divisor: Val) -> Val:
    return Val(f"nonzero({divisor.text})", divisor.ctype, c.ATOM)
