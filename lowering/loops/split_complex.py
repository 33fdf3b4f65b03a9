"""Lower complex elements to pairs of floats, the real part first (MLIR's convert-complex-to-standard).

    y: tensor<Nxcomplex<f32>>  =>  y: tensor<Nx2xf32>

Legal since the storage is the same bytes; back ends see no complex type. Sums, differences, products, selects and
(in)equality are split here; dialects define the other functions by `real`, `imag` and `complex`.
"""

from dataclasses import replace
from itertools import chain
from typing import TypeAlias

import numpy as np

from ...dialect.ir.types import C64, F32, F64, ElementType
from ...dialect.notation import expressions as ex, loops as ir
from ...dialect.notation.plan import Plan
from ...dialect.notation.traverse import over, rebuild
from ..passes import plan_pass

Parts: TypeAlias = tuple[ex.Expr, ...]  # the real and the imaginary part, or a real number alone


@plan_pass
def split_complex(plan: Plan) -> Plan:
    """The plan without complex elements."""
    tensors = {*plan.arguments, *plan.results, *plan.constants, *plan.home, *plan.home.values()}
    tensors.update(s.tensor for k in plan.kernels for s in ir.statements(k.body) if isinstance(s, ir.Alloc))
    tensors.update(p for k in plan.kernels for p in k.parameters)
    values = (e.type for k in plan.kernels for e in ir.nodes(k.body))
    if not any(type.kind == "complex" for type in chain((t.element for t in tensors), values)):
        return plan
    split = _Split()
    arguments, results = tuple(map(split.tensor, plan.arguments)), tuple(map(split.tensor, plan.results))
    constants = {split.tensor(t): _floats(a) for t, a in plan.constants.items()}
    parameters = (tuple(map(split.tensor, k.parameters)) for k in plan.kernels)
    pairs = zip(plan.kernels, parameters, strict=True)
    kernels = [replace(k, parameters=p, body=split.block(k.body)) for k, p in pairs]
    views = {split.tensor(t): split.tensor(h) for t, h in plan.views.items()}
    return replace(plan, arguments=arguments, results=results, constants=constants, kernels=tuple(kernels), views=views)


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
        self.names: dict[ex.Expr, Parts] = {}
        self.done: dict[int, Parts] = {}

    def tensor(self, t: ex.Tensor) -> ex.Tensor:
        if t.element.kind != "complex":
            return t
        if t not in self.tensors:
            self.tensors[t] = ex.Tensor(t.name, (*t.shape, 2), part_type(t.element), t.space)
        return self.tensors[t]

    def block(self, block: ir.Block) -> ir.Block:
        return ir.map_expressions(ir.rewrite_block(block, self.statement), self.real)

    def statement(self, s: ir.Statement) -> ir.Block | None:
        match s:
            case ir.Let(var, value) if var.type.kind == "complex":
                part = part_type(var.type)
                names = self.names[var] = ex.Var(f"{var.name}.re", part), ex.Var(f"{var.name}.im", part)
                return tuple(map(ir.Let, names, self.parts(value)))
            case ir.Alloc(tensor):
                return (ir.Alloc(self.tensor(tensor)),)
            case ir.Store(tensor, at, value) if tensor.element.kind == "complex":
                t = self.tensor(tensor)
                names = ex.Var("re", t.element), ex.Var("im", t.element)
                lets = map(ir.Let, names, self.parts(value))  # both parts are computed before either is stored
                return (*lets, *(ir.Store(t, (*at, ex.as_index(n)), v, s.streaming) for n, v in enumerate(names)))
            case ir.Prefetch(tensor, at) if tensor.element.kind == "complex":
                return (ir.Prefetch(self.tensor(tensor), (*at, ex.ZERO)),)
        return None

    def real(self, e: ex.Expr) -> ex.Expr:
        """A real expression with its complex operands split."""
        (part,) = self.parts(e)
        return part

    def parts(self, e: ex.Expr) -> Parts:
        return rebuild(e, self.split, self.done)

    def split(self, e: ex.Expr, operands: tuple[Parts, ...]) -> Parts:
        """The parts of an expression, from those of its operands."""
        match e:
            case ex.Apply("real" | "imag", _, _):
                return (operands[0][e.function == "imag"],)
            case ex.Apply("eq" | "ne", (a, _), _) if a.type.kind == "complex":
                (ar, ai), (br, bi) = operands
                return (ar.eq(br) & ai.eq(bi) if e.function == "eq" else ar.ne(br) | ai.ne(bi),)
            case ex.Cast(z, type) if z.type.kind == "complex" and type.kind != "complex":
                re, im = operands[0]
                return (re.ne(0) | im.ne(0) if type.kind == "bool" else ex.cast(re, type),)
        if e.type.kind != "complex":
            return (over(e, tuple(part for (part,) in operands)),)
        part = part_type(e.type)
        match e:
            case ex.Const(value, _):
                z = complex(value)
                return ex.constant(z.real, part), ex.constant(z.imag, part)
            case ex.Var():
                return self.names[e]
            case ex.Read(tensor, _):
                at = tuple(i for (i,) in operands)
                return tuple(ex.Read(self.tensor(tensor), (*at, ex.as_index(n))) for n in (0, 1))
            case ex.Cast():
                re, im = operands[0] if len(operands[0]) == 2 else (*operands[0], ex.constant(0, part))
                return ex.cast(re, part), ex.cast(im, part)
            case ex.Apply("complex", _, _):
                return *operands[0], *operands[1]
            case ex.Apply("select", _, _):
                (test,), then, otherwise = operands
                return tuple(ex.select(test, a, b) for a, b in zip(then, otherwise, strict=True))
            case ex.Apply("neg" | "add" | "sub" as function, _, _):
                return tuple(ex.apply(function, *parts) for parts in zip(*operands, strict=True))
            case ex.Apply("mul", _, _):
                (ar, ai), (br, bi) = operands
                return ar * br - ai * bi, ar * bi + ai * br
        function = getattr(e, "function", e.__class__.__name__)
        raise TypeError(f"{function} of complex numbers is stated through their parts")
