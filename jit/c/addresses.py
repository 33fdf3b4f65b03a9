"""Names, lines and index arithmetic of C.

Indices do not overflow: they are computed in 32 bits if their bounds allow it, otherwise in 64.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ...dialect.kernel_ir.expressions import Apply, Const, Expr, Extent, Index, Read, Tensor, Var
from ...dialect.kernel_ir.index_bounds import index_bounds
from ...dialect.kernel_ir.traverse import children, walk
from ...dialect.types.sizes import Dim, Size
from ...dialect.types.tensor_types import I64, ElementType
from .spelling import ATOM, CHOICE, PRODUCT, SUM, UNARY, Row, Spelling

_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Val:
    """A C expression: its text, its C type, how tightly it binds, and whether its value is
    exact.
    """

    text: str
    ctype: str
    level: int = ATOM
    exact: bool = True

    def at(self, level: int) -> str:
        """The text as an operand of something that binds this tightly."""
        return self.text if self.level >= level else f"({self.text})"


class Addresses:
    """The emitter's environment: names of indices, variables, arrays, sizes and expressions."""

    longest = 70  # characters of an expression that is not named

    def __init__(
        self, spelling: Spelling, sizes: Mapping[object, str], written: Iterable[Tensor]
    ) -> None:
        self.c = spelling
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.sizes = sizes
        self.written = set(written)
        self.arrays: dict[Tensor, str] = {}
        self.known: dict[int, Val] = {}
        self.dims: dict[object, str] = {}
        self.shared: set[int] = set()  # what the current statement uses more than once
        self.kept: list[object] = []
        self.stale: list[int] = []
        self.changing: dict[int, bool] = {}
        self.head: list[str] = []

    # lines and names

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, like: str = "") -> str:
        """A new name; dialects for people to read derive it from one of the program."""
        self.names += 1
        return f"v{self.names - 1}"

    def named(self, value: Val, ctype: str, like: str = "") -> Val:
        """The value under a name of its own."""
        name = self.fresh(like)
        self.line(f"const {ctype} {name} = {value.text};")
        return Val(name, ctype)

    def statement(self, *expressions: Expr) -> None:
        """Begin a statement: forget values read from arrays that the kernel writes."""
        for key in self.stale:
            self.known.pop(key, None)
        self.stale.clear()
        seen: set[int] = set()
        self.shared = set()
        for top in expressions:
            for e in (top, *(c for n in walk(top) for c in children(n))):
                if id(e) in seen and not isinstance(e, (Const, Index, Var, Extent)):
                    self.shared.add(id(e))
                seen.add(id(e))
        self.kept.append(expressions)

    def remember(self, e: Expr, value: Val) -> None:
        self.known[id(e)] = value
        self.kept.append(e)
        if self.changes(e):
            self.stale.append(id(e))

    def changes(self, e: Expr) -> bool:
        """Test whether an expression reads an array that the kernel writes."""
        if (change := self.changing.get(id(e))) is None:
            change = (isinstance(e, Read) and e.tensor in self.written) or any(
                map(self.changes, children(e))
            )
            self.changing[id(e)] = change
            self.kept.append(e)
        return change

    # index arithmetic

    def address(self, e: Expr) -> Val:
        """An index expression, in 32 or 64 bits."""
        match e:
            case Const(value, _):
                text, ctype = (
                    (str(value), self.c.word)
                    if abs(value) <= _INT
                    else (f"{value}ll", self.c.long_word)
                )
                return Val(text, ctype, ATOM if value >= 0 else UNARY)
            case Extent(size):
                return Val(self.size(size), self.c.long_word)
        if id(e) in self.known:
            return self.known[id(e)]
        found = self.index_arithmetic(e)
        if id(e) in self.shared or len(found.text) > self.longest:
            found = self.named(found, found.ctype)
            self.remember(e, found)
        return found

    def index_arithmetic(self, e: Expr) -> Val:
        if (
            not isinstance(e, Apply)
            or e.type is not I64
            or any(o.type is not I64 for o in e.operands)
        ):
            return self.exact(e)
        row = _INDEX.get(e.function)
        divides = e.function in ("floordiv", "floormod")
        if row is None or (divides and not _plain_division(*e.operands)):
            return self.computed(e.function, e.operands, I64)
        values = [self.address(o) for o in e.operands]
        word, long_word = self.c.word, self.c.long_word
        ctype = word if fits(e) and all(v.ctype == word for v in values) else long_word
        if ctype == long_word and row.level == ATOM:
            values = [self.wide(v) for v in values]  # overloaded functions want alike operands
        elif ctype == long_word and all(v.ctype == word for v in values):
            values = [self.wide(values[0]), *values[1:]]  # which widens the other
        return Val(self.spell(row, values), ctype, row.level)

    def size(self, dim: Dim) -> str:
        """A size that is known when the kernel is launched, computed at the kernel's start."""
        if isinstance(dim, int):
            return str(dim)
        if dim.is_atom:
            return self.sizes[dim.terms[0][0]]
        if dim.key not in self.dims:
            text = self._sum(dim)
            name = self.fresh()
            self.head.append(f"  const {self.c.long_word} {name} = {text};")
            self.dims[dim.key] = name
        return self.dims[dim.key]

    def _sum(self, dim: Size) -> str:
        parts = []
        for atom, factor in dim.terms:
            text = self.sizes[atom] if atom in self.sizes else self._operation(atom)
            parts.append(text if factor == 1 else f"{text} * {factor}")
        return " + ".join([*parts, *([str(dim.constant)] if dim.constant else [])])

    def _operation(self, atom: tuple) -> str:
        operation, *parts = atom
        a, b = (f"{p}ll" if isinstance(p, int) else self.size(p) for p in parts)
        if operation == "*":
            return f"{a} * {b}"
        if operation in ("max", "min"):
            return f"{operation}({a}, {b})"
        if isinstance(parts[1], int) and parts[1] > 0:
            return f"{a} / {b}" if _natural(parts[0]) else f"floor_quotient({a}, {b})"
        return f"({b} == 0 ? 0 : floor_quotient({a}, {b}))"

    def spell(self, row: Row, values: list[Val], suffix: str = "") -> str:
        inner = (0, 0, 0) if row.level == ATOM else (row.level, row.level + 1, row.level + 1)
        if row.level == CHOICE:
            inner = (CHOICE + 1, CHOICE + 1, CHOICE + 1)
        if row.level == UNARY:  # no `--`
            inner = (UNARY + 1,) * 3
        return row.text.format(
            **{k: v.at(n) for k, v, n in zip("abc", values, inner, strict=False)},
            s=suffix,
            t=self.c.suffix(values[-1].ctype),
        )

    def wide(self, value: Val) -> Val:
        """The index in 64 bits."""
        ctype = self.c.long_word
        return value if value.ctype == ctype else Val(f"({ctype}){value.at(UNARY)}", ctype, UNARY)

    def widened(self, values: list[Val]) -> list[Val]:
        """The indices in one type."""
        return values if len({v.ctype for v in values}) == 1 else [self.wide(v) for v in values]

    def exact(self, e: Expr) -> Val:
        """The value of an expression that is no index arithmetic."""
        raise NotImplementedError

    def computed(self, function: str, operands: tuple[Expr, ...], type: ElementType) -> Val:
        """The exact value of a function."""
        raise NotImplementedError


_INDEX = {
    "add": Row("{a} + {b}", SUM),
    "sub": Row("{a} - {b}", SUM),
    "mul": Row("{a} * {b}", PRODUCT),
    "floordiv": Row("{a} / {b}", PRODUCT),
    "floormod": Row("{a} % {b}", PRODUCT),
    "max": Row("max{t}({a}, {b})"),
    "min": Row("min{t}({a}, {b})"),
}


_BITS = 40  # of an index whose extent is not known: no array has more elements


def index_bits(e: Expr) -> int:
    """The bits of an index expression's values; more than 64 if it is no index arithmetic."""
    match e:
        case Const(value, _):
            return int(value).bit_length()
        case Index(extent=int(extent)):
            return extent.bit_length()
        case Index() | Extent():
            return _BITS
        case Apply("add" | "sub" | "max" | "min", (a, b), _) if e.type is I64:
            return max(index_bits(a), index_bits(b)) + 1
        case Apply("mul", (a, b), _) if e.type is I64:
            return index_bits(a) + index_bits(b)
        case Apply("floordiv" | "floormod", (a, b), _) if e.type is I64:
            return max(index_bits(a), index_bits(b))
    return 1000


def is_index(e: Expr) -> bool:
    """Test whether an expression is index arithmetic that cannot overflow, so that it need not
    wrap.
    """
    return e.type is I64 and index_bits(e) < 63


def _natural(dim: Dim) -> bool:
    return (
        dim >= 0
        if isinstance(dim, int)
        else dim.constant >= 0 and all(f >= 0 for _, f in dim.terms)
    )


def _plain_division(a: Expr, b: Expr) -> bool:
    """Test whether C's division rounds as floordiv does."""
    low, _ = index_bounds(a)
    return (
        low is not None
        and low >= 0
        and (isinstance(b, Extent) or (isinstance(b, Const) and b.value > 0))
    )


def fits(e: Expr, most: int = _INT) -> bool:
    """Test whether an index expression is known to fit 32 bits."""
    low, high = index_bounds(e)
    return low is not None and high is not None and -most <= low and high <= most
