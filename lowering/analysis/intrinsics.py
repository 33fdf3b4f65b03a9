"""Intrinsics: code that a package declares for a nest of loops, and the nests that it may stand
for.

A loop of the kind `intrinsic` keeps its body, so every analysis, and every target without the code,
goes on with that. Where machine code is emitted, the body is matched with the meaning of the
intrinsic, statement by statement, and the code is called if they are the same; else the loops run.
The code is given a pointer to the first element of each parameter, for parameters of two axes or
more the distances of neighbors along all axes but the last, in elements, and the sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.affine import Affine, affine, key
from ...dialect.kernel_ir.kernel_printer import statement_text
from ...dialect.kernel_ir.traverse import substitute, walk
from ...dialect.types.sizes import Size, strides
from .accesses import depends, stores

Subscripts = tuple[ex.Expr, ...]


@dataclass(frozen=True, eq=False)
class Intrinsic:
    """A nest of loops, and code that computes the same: the definition of a function in LLVM IR,
    and the declarations of those that it calls.

    `requires` names the features that a processor has to have; `portable` code holds no address of
    this process. `verify` compares the code with the nest, and raises Error where they differ.
    """

    kernel: ir.Kernel
    sizes: tuple[Size, ...]
    code: str
    calls: tuple[str, ...]
    requires: frozenset[str]
    portable: bool
    verify: Callable[[], None]


INTRINSICS: dict[str, Intrinsic] = {}


class Differs(Exception):
    """A nest is not that of an intrinsic; the message says where."""


@dataclass(frozen=True)
class Window:
    """The part of an array that a parameter of an intrinsic stands for.

    A subscript of the array is that of the part's first element, and the subscripts of the
    parameter times the factors.
    """

    tensor: ex.Tensor
    first: tuple[Affine, ...]
    factors: tuple[tuple[int, ...], ...]  # of each subscript, by the axes of the parameter


class Match:
    """The arrays and numbers of a loop that the parameters and sizes of an intrinsic stand for;
    raises Differs.
    """

    def __init__(self, name: str, loop: ir.For) -> None:
        self.intrinsic = INTRINSICS[name]
        self.parameters = self.intrinsic.kernel.parameters
        self.windows: dict[ex.Tensor, Window] = {}
        self.sizes: dict[Size, ex.Expr] = {}
        self._same: dict[ex.Expr, ex.Expr] = {}  # indices and variables of the meaning
        self._buffers: dict[ex.Tensor, ex.Tensor] = {}
        self._at: tuple[ir.Statement, ir.Statement] = self.intrinsic.kernel.body[0], loop
        self._block(self.intrinsic.kernel.body, (loop,))
        self._check(loop)

    @property
    def places(self) -> list[tuple[ex.Tensor, Subscripts]]:
        """The first element of each parameter."""
        found = [self.windows[p] for p in self.parameters]
        return [(w.tensor, tuple(f.expression() for f in w.first)) for w in found]

    @property
    def numbers(self) -> list[ex.Expr]:
        """The distances of neighbors, and the sizes."""
        found: list[ex.Expr] = []
        for p in self.parameters:
            w = self.windows[p]
            steps = [*zip(w.factors, map(ex.as_index, strides(w.tensor.shape)), strict=True)]
            for axis in range(p.rank - 1):
                found.append(sum((by[axis] * step for by, step in steps if by[axis]), ex.ZERO))
        return [*found, *(self.sizes[size] for size in self.intrinsic.sizes)]

    def _block(self, meaning: ir.Block, block: ir.Block) -> None:
        if len(meaning) != len(block):
            self._differ(f"has {len(block)} statements where the intrinsic has {len(meaning)}")
        for a, b in zip(meaning, block, strict=True):
            self._at = a, b
            self._statement(a, b)

    def _statement(self, a: ir.Statement, b: ir.Statement) -> None:
        match a, b:
            case ir.For(kind="serial"), ir.For(kind="serial" | "intrinsic"):
                self._value(a.start, b.start)
                self._value(a.end, b.end)
                self._same[a.index] = b.index
                self._block(a.body, b.body)
            case ir.Store(), ir.Store():
                self._access(a.tensor, a.indices, b.tensor, b.indices)
                self._value(a.value, b.value)
            case ir.Let(), ir.Let():
                self._value(a.value, b.value)
                self._same[a.var] = b.var
            case ir.Alloc(t), ir.Alloc(u) if (t.shape, t.element) == (u.shape, u.element):
                self._buffers[t] = u
            case ir.If(), ir.If():
                self._value(a.condition, b.condition)
                self._block(a.then, b.then)
                self._block(a.otherwise, b.otherwise)
            case _:
                self._differ()

    def _value(self, a: ex.Expr, b: ex.Expr) -> None:
        match a, b:
            case ex.Extent(size), _:
                known = self.sizes.setdefault(size, b)
                same = _is_zero(affine(known) - affine(b))
            case ex.Read(p, at), ex.Read(t, where):
                self._access(p, at, t, where)
                return
            case ex.Apply(f, x, type), ex.Apply(g, y, other):
                same = f == g and type is other
                for inner in zip(x, y, strict=True) if same else ():
                    self._value(*inner)
            case ex.Cast(x, type) | ex.Bitcast(x, type), ex.Cast(y, other) | ex.Bitcast(y, other):
                same = a.__class__ is b.__class__ and type is other
                self._value(x, y)
            case ex.Const(), ex.Const():
                same = key(a) == key(b)
            case _:
                same = self._same.get(a) is b
        if not same:
            self._differ()

    def _access(
        self, p: ex.Tensor, at: Sequence[ex.Expr], t: ex.Tensor, where: Sequence[ex.Expr]
    ) -> None:
        wanted = [affine(substitute(e, self._same)) for e in at]
        found = [affine(e) for e in where]
        if p not in self.parameters:
            gaps = [a - b for a, b in zip(wanted, found, strict=True)]
            if self._buffers.get(p) is not t or not all(map(_is_zero, gaps)):
                self._differ()
            return
        if p.element is not t.element:
            self._differ(f"has {t.element} where the intrinsic has {p.element}")
        if p not in self.windows:
            factors = tuple(tuple(_factor(f, wanted, a) for a in range(p.rank)) for f in found)
            firsts = (_rest(f, by, wanted) for f, by in zip(found, factors, strict=True))
            self.windows[p] = Window(t, tuple(firsts), factors)
        w = self.windows[p]
        if w.tensor is not t:
            self._differ()
        for f, by, first in zip(found, w.factors, w.first, strict=True):
            if not _is_zero(_rest(f, by, wanted) - first):
                self._differ()

    def _check(self, loop: ir.For) -> None:
        """Raise Differs unless the parameters are windows that the code may be given."""
        inside = ir.statements((loop,))
        bound: set[ex.Expr] = {s.index for s in inside if isinstance(s, ir.For)}
        bound |= {s.var for s in inside if isinstance(s, ir.Let)}
        written = {s.tensor for s in stores((loop,))}
        self._at = self.intrinsic.kernel.body[0], loop
        if lacking := [p for p in self.parameters if p not in self.windows]:
            self._differ(f"does not access %{lacking[0].name}")
        for p, w in self.windows.items():
            last = [by[-1] if p.rank else 1 for by in w.factors]
            if p.rank and last != [0] * (len(last) - 1) + [1]:
                self._differ(f"does not have the last axis of %{p.name} side by side in memory")
            others = [q for q, v in self.windows.items() if q is not p and v.tensor is w.tensor]
            if others and w.tensor in written:
                names = f"%{p.name} and %{others[0].name}"
                self._differ(f"writes %{w.tensor.name}, which is both {names}")
        starts = [f.expression() for w in self.windows.values() for f in w.first]
        for e in (*starts, *self.sizes.values()):
            reads = {n.tensor for n in walk(e) if isinstance(n, ex.Read)}
            if depends(e, bound) or not reads.isdisjoint(written):
                self._differ("has a part of an array that moves within the nest")

    def _differ(self, how: str = "") -> None:
        theirs, given = (statement_text(s).partition("\n")[0].strip() for s in self._at)
        name = self.intrinsic.kernel.name
        how = how or "differs"
        raise Differs(f"the nest {how}: `{given}`, and @{name} has `{theirs}`")


def match_intrinsic(loop: ir.For) -> Match | None:
    """The parameters of the intrinsic that a loop is marked with; None where it is not its nest."""
    try:
        return Match(loop.by, loop) if loop.by in INTRINSICS else None
    except Differs:
        return None


def _is_zero(form: Affine) -> bool:
    return not form.terms and form.constant == 0


def _rest(form: Affine, by: Sequence[int], wanted: Sequence[Affine]) -> Affine:
    for factor, other in zip(by, wanted, strict=True):
        form = form - other * factor
    return form


def _factor(form: Affine, wanted: Sequence[Affine], axis: int) -> int:
    """The factor of a subscript of a parameter in that of an array, by an index of its own."""
    others = {k for n, f in enumerate(wanted) if n != axis for k in f.terms}
    for k, (atom, factor) in wanted[axis].terms.items():
        if k not in others:
            return form.factor(atom) // factor
    return 0
