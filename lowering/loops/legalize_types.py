"""Lower element types that no back end has (LLVM's type legalization): complex ones to pairs of
floats, the real part first (MLIR's convert-complex-to-standard), and bf16 to its bits (TVM's
BF16StorageLegalize).

    y: tensor<Nxcomplex<f32>>  =>  y: tensor<Nx2xf32>
    y: tensor<Nxbf16>  =>  y: tensor<Nxui16>

Legal since the storage is the same bytes. Sums, differences, products, selects and (in)equality of
complex numbers are split here; dialects define the other functions by `real`, `imag` and `complex`.
Arithmetic of bf16 is mostly that of f32 by now.
"""

from dataclasses import replace
from itertools import chain
from typing import TypeAlias

import numpy as np

from ...dialect.kernel_ir import expressions as ex, loops as ir
from ...dialect.kernel_ir.execution_plan import Plan
from ...dialect.kernel_ir.traverse import over, rebuild
from ...dialect.types.tensor_types import BF16, BY_DTYPE, C64, F32, F64, UI16, ElementType
from ..math.bfloat16 import in_f32
from ..passes import plan_pass

Parts: TypeAlias = tuple[ex.Expr, ...]  # the real and the imaginary part, or a real number alone


@plan_pass
def legalize_types(plan: Plan) -> Plan:
    """The plan without elements that are complex or bf16."""
    tensors = {*plan.arguments, *plan.results, *plan.constants, *plan.home, *plan.home.values()}
    tensors.update(
        s.tensor for k in plan.kernels for s in ir.statements(k.body) if isinstance(s, ir.Alloc)
    )
    tensors.update(p for k in plan.kernels for p in k.parameters)
    values = (e.type for k in plan.kernels for e in ir.nodes(k.body))
    if all(map(_is_legal, chain((t.element for t in tensors), values))):
        return plan
    split = _Legalizing()
    arguments = tuple(map(split.tensor, plan.arguments))
    results = tuple(map(split.tensor, plan.results))
    constants = {split.tensor(t): _legal_array(a) for t, a in plan.constants.items()}
    pairs = zip(
        plan.kernels, (tuple(map(split.tensor, k.parameters)) for k in plan.kernels), strict=True
    )
    kernels = [replace(k, parameters=p, body=split.block(k.body)) for k, p in pairs]
    views = {split.tensor(t): split.tensor(h) for t, h in plan.views.items()}
    return replace(
        plan,
        arguments=arguments,
        results=results,
        constants=constants,
        kernels=tuple(kernels),
        views=views,
    )


def part_type(element: ElementType) -> ElementType:
    return F32 if element is C64 else F64


def _is_legal(element: ElementType) -> bool:
    return element.kind != "complex" and element is not BF16


def _legal_array(array: np.ndarray) -> np.ndarray:
    if BY_DTYPE[array.dtype] is BF16:
        return array.view(np.uint16)
    if array.dtype.kind != "c":
        return array
    whole = np.ascontiguousarray(array).reshape(array.shape)
    return whole.reshape((*array.shape, 1)).view(np.real(whole).dtype)


class _Legalizing:
    """One rewriting: the parts of each complex tensor and variable."""

    def __init__(self) -> None:
        self.tensors: dict[ex.Tensor, ex.Tensor] = {}
        self.names: dict[ex.Expr, tuple[ex.Var, ...]] = {}
        self.done: dict[int, Parts] = {}

    def tensor(self, t: ex.Tensor) -> ex.Tensor:
        if _is_legal(t.element):
            return t
        if t not in self.tensors:
            shape, element = (
                (t.shape, UI16) if t.element is BF16 else ((*t.shape, 2), part_type(t.element))
            )
            self.tensors[t] = ex.Tensor(t.name, shape, element, t.space)
        return self.tensors[t]

    def block(self, block: ir.Block) -> ir.Block:
        block = ir.map_expressions(block, lambda e: rebuild(e, in_f32, {}))
        return ir.map_expressions(ir.rewrite_block(block, self.statement), self.real)

    def statement(self, s: ir.Statement) -> ir.Block | None:
        match s:
            case ir.Let(var, value) if var.type.kind == "complex":
                names = self.named(var, [f"{var.name}.re", f"{var.name}.im"], part_type(var.type))
                return tuple(map(ir.Let, names, self.parts(value)))
            case ir.Let(var, value) if var.type is BF16:
                (name,) = self.named(var, [var.name], UI16)
                return (ir.Let(name, value),)
            case ir.Alloc(tensor):
                return (ir.Alloc(self.tensor(tensor)),)
            case ir.Store(tensor, at, value) if tensor.element.kind == "complex":
                t = self.tensor(tensor)
                names = ex.Var("re", t.element), ex.Var("im", t.element)
                lets = map(
                    ir.Let, names, self.parts(value)
                )  # both parts are computed before either is stored
                return (
                    *lets,
                    *(
                        ir.Store(t, (*at, ex.as_index(n)), v, s.streaming)
                        for n, v in enumerate(names)
                    ),
                )
            case ir.Prefetch(tensor, at) if tensor.element.kind == "complex":
                return (ir.Prefetch(self.tensor(tensor), (*at, ex.ZERO)),)
            case ir.Store(tensor) | ir.Prefetch(tensor) if tensor.element is BF16:
                return (replace(s, tensor=self.tensor(tensor)),)
        return None

    def named(self, var: ex.Var, names: list[str], element: ElementType) -> tuple[ex.Var, ...]:
        """The variables of a variable's parts, the same ones in each scope that defines it."""
        if var not in self.names:
            self.names[var] = tuple(ex.Var(name, element) for name in names)
        return self.names[var]

    def real(self, e: ex.Expr) -> ex.Expr:
        """A real expression with its complex operands split."""
        (part,) = self.parts(e)
        return part

    def parts(self, e: ex.Expr) -> Parts:
        return rebuild(e, self.split, self.done)

    def split(self, e: ex.Expr, operands: tuple[Parts, ...]) -> Parts:
        match e:
            case ex.Apply("real" | "imag", _, _):
                return (operands[0][e.function == "imag"],)
            case ex.Apply("eq" | "ne", (a, _), _) if a.type.kind == "complex":
                (ar, ai), (br, bi) = operands
                return (ar.eq(br) & ai.eq(bi) if e.function == "eq" else ar.ne(br) | ai.ne(bi),)
            case ex.Cast(z, type) if z.type.kind == "complex" and type.kind != "complex":
                re, im = operands[0]
                return (re.ne(0) | im.ne(0) if type.kind == "bool" else ex.cast(re, type),)
        if e.type is BF16 or (isinstance(e, ex.Bitcast) and e.operand.type is BF16):
            return (self.bits(e, tuple(part for (part,) in operands)),)
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
                re, im = (
                    operands[0] if len(operands[0]) == 2 else (*operands[0], ex.constant(0, part))
                )
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

    def bits(self, e: ex.Expr, operands: tuple[ex.Expr, ...]) -> ex.Expr:
        """The bits of a bf16, or an operation on them."""
        match e:
            case ex.Const(value, type):
                return ex.constant(int(np.array(value, type.dtype).view(np.uint16)), UI16)
            case ex.Var():
                return self.names[e][0]
            case ex.Read(tensor, _):
                return ex.Read(self.tensor(tensor), operands)
            case ex.Bitcast(_, type):
                to = UI16 if type is BF16 else type
                return operands[0] if operands[0].type is to else ex.Bitcast(operands[0], to)
            case ex.Apply("select" | "rarely" as function, _, _):
                return ex.apply(function, *operands)
            case ex.When() | ex.Check():
                return over(e, operands)
        raise TypeError(f"{getattr(e, 'function', e.__class__.__name__)} of bf16 is stated in f32")
