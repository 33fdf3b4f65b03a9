"""Lower complex elements to pairs of floats, the real part first (MLIR's convert-complex-to-standard).

    y: tensor<Nxcomplex<f32>>  =>  y: tensor<Nx2xf32>

Legal since the storage is the same bytes; back ends see no complex type. Sums, differences, products, selects and
(in)equality are split here; dialects define the other functions by `real`, `imag` and `complex`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...dialect.ir.types import C64, F32, F64, ElementType
from ...dialect.notation.expressions import (
    Apply,
    Cast,
    Const,
    Expr,
    Read,
    Tensor,
    Var,
    as_index,
    cast,
    constant,
    select,
)
from ...dialect.notation.loops import (
    Alloc,
    Assert,
    Block,
    For,
    If,
    Kernel,
    Let,
    Prefetch,
    Statement,
    Store,
    nodes,
    statements,
)
from ...dialect.notation.plan import Plan
from ...dialect.notation.traverse import children, with_children

Pair = tuple[Expr, Expr]


def split_complex(plan: Plan) -> Plan:
    """The plan without complex elements."""
    tensors = {
        *plan.arguments,
        *plan.results,
        *plan.constants,
        *plan.home,
        *plan.home.values(),
        *(p for k in plan.kernels for p in k.parameters),
    }
    buffers = {s.tensor for k in plan.kernels for s in statements(k.body) if isinstance(s, Alloc)}
    if not any(t.element.kind == "complex" for t in tensors | buffers) and not any(
        map(_mentions_complex, plan.kernels)
    ):
        return plan
    split = _Split()
    return replace(
        plan,
        arguments=tuple(map(split.tensor, plan.arguments)),
        results=tuple(map(split.tensor, plan.results)),
        constants={split.tensor(t): _floats(a) for t, a in plan.constants.items()},
        kernels=tuple(
            replace(k, parameters=tuple(map(split.tensor, k.parameters)), body=split.block(k.body))
            for k in plan.kernels
        ),
        views={split.tensor(t): split.tensor(h) for t, h in plan.views.items()},
    )


def _mentions_complex(kernel: Kernel) -> bool:
    return any(e.type.kind == "complex" for e in nodes(kernel.body))


def part_type(element: ElementType) -> ElementType:
    return F32 if element is C64 else F64


def _floats(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "c":
        return array
    whole = np.ascontiguousarray(array).reshape(array.shape)
    return whole.reshape((*array.shape, 1)).view(np.real(whole).dtype)


class _Split:
    """One rewriting: the parts of each complex tensor and variable."""

    def __init__(self) -> None:
        self.tensors: dict[Tensor, Tensor] = {}
        self.names: dict[Expr, Pair] = {}
        self.pairs: dict[int, Pair] = {}
        self.reals: dict[int, Expr] = {}
        self.kept: list[Expr] = []

    def tensor(self, t: Tensor) -> Tensor:
        if t.element.kind != "complex":
            return t
        if t not in self.tensors:
            self.tensors[t] = Tensor(t.name, (*t.shape, 2), part_type(t.element), t.space)
        return self.tensors[t]

    def block(self, block: Block) -> Block:
        return tuple(new for s in block for new in self.statement(s))

    def statement(self, s: Statement) -> Block:
        match s:
            case For(_, body, start, stop):
                return (
                    replace(
                        s, body=self.block(body), start=self.real(start), stop=None if stop is None else self.real(stop)
                    ),
                )
            case If(condition, then, otherwise):
                return (If(self.real(condition), self.block(then), self.block(otherwise)),)
            case Let(var, value) if var.type.kind == "complex":
                parts = (Var(f"{var.name}.re", part_type(var.type)), Var(f"{var.name}.im", part_type(var.type)))
                self.names[var] = parts
                return tuple(Let(v, p) for v, p in zip(parts, self.pair(value), strict=True))
            case Let(var, value):
                return (Let(var, self.real(value)),)
            case Alloc(tensor):
                return (Alloc(self.tensor(tensor)),)
            case Store(tensor, at, value) if tensor.element.kind == "complex":
                place = tuple(map(self.real, at))
                t = self.tensor(tensor)
                names = (Var("re", t.element), Var("im", t.element))  # both parts are computed before either is stored
                lets = tuple(Let(v, p) for v, p in zip(names, self.pair(value), strict=True))
                return (*lets, *(Store(t, (*place, as_index(n)), v, s.streaming) for n, v in enumerate(names)))
            case Store(tensor, at, value):
                return (replace(s, indices=tuple(map(self.real, at)), value=self.real(value)),)
            case Assert(condition, message, span):
                return (Assert(self.real(condition), message, span),)
            case Prefetch(tensor, at):
                place = tuple(map(self.real, at))
                return (
                    Prefetch(self.tensor(tensor), (*place, as_index(0)) if tensor.element.kind == "complex" else place),
                )

    def real(self, e: Expr) -> Expr:
        """A real expression with its complex operands split."""
        if id(e) not in self.reals:
            self.reals[id(e)] = self._real(e)
            self.kept.append(e)
        return self.reals[id(e)]

    def _real(self, e: Expr) -> Expr:
        match e:
            case Apply("real" | "imag", (z,), _):
                return self.pair(z)[e.function == "imag"]
            case Apply("eq" | "ne", (a, b), _) if a.type.kind == "complex":
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                return ar.eq(br) & ai.eq(bi) if e.function == "eq" else ar.ne(br) | ai.ne(bi)
            case Cast(z, type) if z.type.kind == "complex":
                re, im = self.pair(z)
                return re.ne(0) | im.ne(0) if type.kind == "bool" else cast(re, type)
        parts = children(e)
        new = tuple(map(self.real, parts))
        return e if all(a is b for a, b in zip(parts, new, strict=True)) else with_children(e, new)

    def pair(self, e: Expr) -> Pair:
        """The real and the imaginary part of a complex expression."""
        if id(e) not in self.pairs:
            self.pairs[id(e)] = self._pair(e)
            self.kept.append(e)
        return self.pairs[id(e)]

    def _pair(self, e: Expr) -> Pair:
        part = part_type(e.type)
        match e:
            case Const(value, _):
                z = complex(value)
                return constant(z.real, part), constant(z.imag, part)
            case Var():
                return self.names[e]
            case Read(tensor, at):
                place = tuple(map(self.real, at))
                t = self.tensor(tensor)
                return Read(t, (*place, as_index(0))), Read(t, (*place, as_index(1)))
            case Cast(z, _) if z.type.kind == "complex":
                re, im = self.pair(z)
                return cast(re, part), cast(im, part)
            case Cast(x, _):
                return cast(self.real(x), part), constant(0, part)
            case Apply("complex", (re, im), _):
                return self.real(re), self.real(im)
            case Apply("select", (c, a, b), _):
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                test = self.real(c)
                return select(test, ar, br), select(test, ai, bi)
            case Apply("neg", (a,), _):
                re, im = self.pair(a)
                return -re, -im
            case Apply("add", (a, b), _):
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                return ar + br, ai + bi
            case Apply("sub", (a, b), _):
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                return ar - br, ai - bi
            case Apply("mul", (a, b), _):
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                return ar * br - ai * bi, ar * bi + ai * br
        raise TypeError(f"{getattr(e, 'function', type(e).__name__)} of complex numbers is stated through their parts")
