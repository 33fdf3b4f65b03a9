"""Execute kernels over z3's terms: every element that they store, for arrays of known sizes.

    for i of 2 in 0..2 { y[i] = i8(max(x[i], 0)) }  =>  y = [i8(max(x!0, 0)), i8(max(x!1, 0))]

Loops run iteration by iteration, so their bounds are numbers; a branch on data runs both sides and
chooses element by element. Loops over plans, jumps and loops on a condition are `Unsupported`.
"""

from collections.abc import Sequence
from math import prod

import z3

from cvm.dialect.kernel_ir import expressions as ex, loops as ir
from cvm.dialect.kernel_ir.execution_plan import Loop, Plan
from cvm.dialect.kernel_ir.formulas import Formulas
from cvm.dialect.types.sizes import Dim, Size
from cvm.dialect.types.tensor_types import BF16

from .bit_vectors import Term, Unsupported, simplified
from .meaning import TRUE, IndexValues, Meaning, Symbols, Translation

MAX_NODES = 400_000  # of the terms of all elements (by hand)
MAX_STATEMENTS = 100_000  # that are executed; bounds the time before z3 begins (by hand)


class Execution(Translation):
    """The state of a plan's arrays while its kernels run."""

    max_nodes = MAX_NODES

    def __init__(
        self,
        plan: Plan,
        symbols: Symbols,
        limits: dict[int, tuple[int, int]],
        like: Sequence[ex.Tensor],
    ) -> None:
        constants = dict(plan.constants)
        shell = Formulas(plan.name, plan.arguments, plan.results, constants, (), ())
        super().__init__(shell, symbols, {}, limits)
        if any(t.element.kind == "complex" or t.element is BF16 for t in like):
            raise Unsupported("kernels of complex numbers or bf16, which have another form")
        self.plan = plan
        self.memory: dict[ex.Tensor, list[Term | None]] = {}
        self.scope: dict[ex.Expr, Term] = {}
        self.path, self.defined, self.statements = TRUE, TRUE, 0
        for kernel in plan.kernels:
            if isinstance(kernel, Loop):
                raise Unsupported("a loop over another function")
            body = (
                kernel.body if kernel.condition is None else (ir.If(kernel.condition, kernel.body),)
            )
            self.run(body)

    def result(self, number: int, at: Sequence[Term]) -> Meaning:
        return Meaning(self.read(self.plan.results[number], at).value, self.defined)

    def home(self, tensor: ex.Tensor) -> ex.Tensor:
        home = self.plan.home.get(tensor, tensor)
        if home.element.bits != tensor.element.bits:
            raise Unsupported(f"%{tensor.name} as {tensor.element} of {home.element}")
        return home

    def place(self, shape: Sequence[Dim], at: Sequence[Term]) -> int:
        """The row-major position of an element."""
        position = 0
        for size, index in zip(shape, at, strict=True):
            number = simplified(index)
            if not z3.is_int_value(number) or isinstance(size, Size):
                raise Unsupported("kernels of arrays whose sizes or places are not known")
            position = position * int(size) + number.as_long()
        return position

    def read(self, tensor: ex.Tensor, at: Sequence[Term]) -> Meaning:
        home, at = self.home(tensor), [z3.simplify(i) for i in at]
        is_given = home in self.arguments or home in self.formulas.constants
        if home is tensor and is_given and home not in self.memory:
            return super().read(tensor, at)
        position = self.place(tensor.shape, at)
        if home in self.memory:
            values = self.memory[home]
            if values[position] is None:  # whatever lies there
                values[position] = z3.FreshConst(self.arithmetic.sort(tensor.element), "unwritten")
            return Meaning(values[position], TRUE)
        own: list[Term] = []
        for size in reversed(home.shape):
            position, index = divmod(position, int(size))
            own.insert(0, z3.IntVal(index))
        return super().read(home, own)

    def value(self, e: ex.Expr) -> Term:
        found = self.of(e, IndexValues(self.scope))
        self.require(found.defined)
        return found.value

    def require(self, condition: Term) -> None:
        if not z3.is_true(condition):
            self.defined = z3.And(self.defined, z3.Implies(self.path, condition))

    def number(self, e: ex.Expr) -> int:
        return self.place((1,), [self.value(e)])

    def run(self, block: ir.Block) -> None:
        for statement in block:
            self.statements += 1
            if self.statements > MAX_STATEMENTS:
                raise Unsupported(f"kernels of more than {MAX_STATEMENTS} steps")
            self.execute(statement)

    def execute(self, statement: ir.Statement) -> None:
        match statement:
            case ir.For(index, body, start):
                for i in range(self.number(start), self.number(statement.end)):
                    self.scope[index] = z3.IntVal(i)
                    self.run(body)
            case ir.If(condition, then, otherwise):
                test = z3.simplify(self.value(condition))
                if z3.is_true(test) or z3.is_false(test):
                    self.run(then if z3.is_true(test) else otherwise)
                else:
                    self.branch(test, then, otherwise)
            case ir.Let(var, value):
                self.scope[var] = self.value(value)
            case ir.Alloc(tensor):
                self.allocate(tensor)
            case ir.Store(tensor, at, value):
                position = self.place(tensor.shape, [self.value(i) for i in at])
                home = self.home(tensor)
                if home not in self.memory:
                    if home in self.arguments:
                        raise Unsupported(f"%{tensor.name}, which kernels overwrite")
                    self.allocate(home)
                self.memory[home][position] = self.arithmetic.data(self.value(value), value.type)
            case ir.Assert(condition, _, _):
                self.require(self.value(condition))
            case ir.Prefetch():
                pass
            case _:
                raise Unsupported(f"{statement.__class__.__name__.lower()} in a kernel")

    def allocate(self, tensor: ex.Tensor) -> None:
        if any(isinstance(d, Size) for d in tensor.shape):
            raise Unsupported(f"%{tensor.name}, whose size is not known")
        self.memory[tensor] = [None] * prod(map(int, tensor.shape))

    def branch(self, test: Term, then: ir.Block, otherwise: ir.Block) -> None:
        """Run both sides, and choose the elements that differ."""
        before, path = {t: [*v] for t, v in self.memory.items()}, self.path
        self.path = z3.And(path, test)
        self.run(then)
        chosen, self.memory = self.memory, before
        self.path = z3.And(path, z3.Not(test))
        self.run(otherwise)
        self.path = path
        for tensor, values in chosen.items():
            others = self.memory.setdefault(tensor, [None] * len(values))
            for n, (a, b) in enumerate(zip(values, others, strict=True)):
                if a is not b and a is not None:
                    others[n] = a if b is None else z3.If(test, a, b)
