"""Lower complex elements to pairs of floats, the real part first (MLIR's convert-complex-to-standard).

    y: tensor<Nxcomplex<f32>>  =>  y: tensor<Nx2xf32>

Legal since the storage is the same bytes; back ends see no complex type. Sums, differences, products, selects and
(in)equality are split here; dialects define the other functions by `real`, `imag` and `complex`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...dialect.ir.types import C64, F32, F64, ElementType
from ...dialect.notation import expressions as ex
from ...dialect.notation import loops as ir
from ...dialect.notation.plan import Plan
from ...dialect.notation.traverse import children, with_children
from ..passes import plan_pass

Pair = tuple[ex.Expr, ex.Expr]


@plan_pass
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
    buffers = {s.tensor for k in plan.kernels for s in ir.statements(k.body) if isinstance(s, ir.Alloc)}
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


def _mentions_complex(kernel: ir.Kernel) -> bool:
    return any(e.type.kind == "complex" for e in ir.nodes(kernel.body))


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
        self.tensors: dict[ex.Tensor, ex.Tensor] = {}
        self.names: dict[ex.Expr, Pair] = {}
        self.pairs: dict[int, Pair] = {}
        self.reals: dict[int, ex.Expr] = {}
        self.kept: list[ex.Expr] = []

    def tensor(self, t: ex.Tensor) -> ex.Tensor:
        if t.element.kind != "complex":
            return t
        if t not in self.tensors:
            self.tensors[t] = ex.Tensor(t.name, (*t.shape, 2), part_type(t.element), t.space)
        return self.tensors[t]

    def block(self, block: ir.Block) -> ir.Block:
        return tuple(new for s in block for new in self.statement(s))

    def statement(self, s: ir.Statement) -> ir.Block:
        match s:
            case ir.For(_, body, start, stop):
                return (
                    replace(
                        s, body=self.block(body), start=self.real(start), stop=None if stop is None else self.real(stop)
                    ),
                )
            case ir.If(condition, then, otherwise):
                return (ir.If(self.real(condition), self.block(then), self.block(otherwise)),)
            case ir.Let(var, value) if var.type.kind == "complex":
                parts = (ex.Var(f"{var.name}.re", part_type(var.type)), ex.Var(f"{var.name}.im", part_type(var.type)))
                self.names[var] = parts
                return tuple(ir.Let(v, p) for v, p in zip(parts, self.pair(value), strict=True))
            case ir.Let(var, value):
                return (ir.Let(var, self.real(value)),)
            case ir.Alloc(tensor):
                return (ir.Alloc(self.tensor(tensor)),)
            case ir.Store(tensor, at, value) if tensor.element.kind == "complex":
                place = tuple(map(self.real, at))
                t = self.tensor(tensor)
                names = (
                    ex.Var("re", t.element),
                    ex.Var("im", t.element),
                )  # both parts are computed before either is stored
                lets = tuple(ir.Let(v, p) for v, p in zip(names, self.pair(value), strict=True))
                return (*lets, *(ir.Store(t, (*place, ex.as_index(n)), v, s.streaming) for n, v in enumerate(names)))
            case ir.Store(tensor, at, value):
                return (replace(s, indices=tuple(map(self.real, at)), value=self.real(value)),)
            case ir.Assert(condition, message, span):
                return (ir.Assert(self.real(condition), message, span),)
            case ir.Prefetch(tensor, at):
                place = tuple(map(self.real, at))
                return (
                    ir.Prefetch(
                        self.tensor(tensor), (*place, ex.as_index(0)) if tensor.element.kind == "complex" else place
                    ),
                )

    def real(self, e: ex.Expr) -> ex.Expr:
        """A real expression with its complex operands split."""
        if id(e) not in self.reals:
            self.reals[id(e)] = self._real(e)
            self.kept.append(e)
        return self.reals[id(e)]

    def _real(self, e: ex.Expr) -> ex.Expr:
        match e:
            case ex.Apply("real" | "imag", (z,), _):
                return self.pair(z)[e.function == "imag"]
            case ex.Apply("eq" | "ne", (a, b), _) if a.type.kind == "complex":
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                return ar.eq(br) & ai.eq(bi) if e.function == "eq" else ar.ne(br) | ai.ne(bi)
            case ex.Cast(z, type) if z.type.kind == "complex":
                re, im = self.pair(z)
                return re.ne(0) | im.ne(0) if type.kind == "bool" else ex.cast(re, type)
        parts = children(e)
        new = tuple(map(self.real, parts))
        return e if all(a is b for a, b in zip(parts, new, strict=True)) else with_children(e, new)

    def pair(self, e: ex.Expr) -> Pair:
        """The real and the imaginary part of a complex expression."""
        if id(e) not in self.pairs:
            self.pairs[id(e)] = self._pair(e)
            self.kept.append(e)
        return self.pairs[id(e)]

    def _pair(self, e: ex.Expr) -> Pair:
        part = part_type(e.type)
        match e:
            case ex.Const(value, _):
                z = complex(value)
                return ex.constant(z.real, part), ex.constant(z.imag, part)
            case ex.Var():
                return self.names[e]
            case ex.Read(tensor, at):
                place = tuple(map(self.real, at))
                t = self.tensor(tensor)
                return ex.Read(t, (*place, ex.as_index(0))), ex.Read(t, (*place, ex.as_index(1)))
            case ex.Cast(z, _) if z.type.kind == "complex":
                re, im = self.pair(z)
                return ex.cast(re, part), ex.cast(im, part)
            case ex.Cast(x, _):
                return ex.cast(self.real(x), part), ex.constant(0, part)
            case ex.Apply("complex", (re, im), _):
                return self.real(re), self.real(im)
            case ex.Apply("select", (c, a, b), _):
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                test = self.real(c)
                return ex.select(test, ar, br), ex.select(test, ai, bi)
            case ex.Apply("neg", (a,), _):
                re, im = self.pair(a)
                return -re, -im
            case ex.Apply("add", (a, b), _):
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                return ar + br, ai + bi
            case ex.Apply("sub", (a, b), _):
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                return ar - br, ai - bi
            case ex.Apply("mul", (a, b), _):
                (ar, ai), (br, bi) = self.pair(a), self.pair(b)
                return ar * br - ai * bi, ar * bi + ai * br
        raise TypeError(f"{getattr(e, 'function', type(e).__name__)} of complex numbers is stated through their parts")
