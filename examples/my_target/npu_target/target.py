"""The target npu: text for a machine that adds products of 16 x 16 tiles of i32 by one instruction,
mma, and a model of the machine, which runs the text.
"""

from __future__ import annotations

import numpy as np
from cvm.extending import I32, I64, Alloc, Apply, CompiledFunction, Const, Diagnostic, For, Index
from cvm.extending import (
    Kernel,
    Let,
    Read,
    Store,
    Target,
    TargetError,
    Tensor,
    Var,
    constant,
)
from cvm.extending import map_expressions, register_strategy, register_target, rewrite, walk

TILE = 16  # rows, columns and terms of mma
COMMON = {"add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "neg": "(-{})"}
COMMON |= {"max": "max({}, {})", "min": "min({}, {})"}
FUNCTIONS = {I32: COMMON, I64: COMMON | {"floordiv": "({} // {})", "floormod": "({} % {})"}}
MACHINE = {
    "i32": np.int32,
    "buffer": lambda *shape: np.zeros(shape, np.int32),
    "mma": lambda tile, a, b: np.add(tile, a @ b, out=tile),
}


class Tile(Tensor):
    """A buffer to which mma adds."""


def product_of(kernel):
    """The axes, accumulator, start, factors and epilogue of a product of matrices, or None."""
    loops, block = [], kernel.body
    while len(block) == 1 and isinstance(block[0], For):
        loops, block = [*loops, block[0]], block[0].body
    match block:
        case (Alloc(acc), Store(_, _, start), For(_, (Store(to, _, value),)) as terms, *last):
            loops.append(terms)
        case _:
            return None
    match value:
        case Apply("add", (Read(added), Apply("mul", (Read() as a, Read() as b)))):
            a, b = (a, b) if loops[0].index in a.indices else (b, a)
        case _:
            return None
    axes = [loop.index for loop in loops if loop.is_whole]
    if len(axes) != len(loops) or len(axes) != 3 or not to is added is acc:
        return None
    (i, j, k), ranks = axes, (len(a.indices), len(b.indices))
    fits = ranks == (2, 2) and {*a.indices} == {i, k} and {*b.indices} == {j, k}
    plain = fits and all(isinstance(s, Store) for s in last)
    return (axes, acc, start, (a, b), last) if plain else None


def match(kernel: Kernel) -> str:
    """The reason why mma cannot compute a kernel, or nothing."""
    if (product := product_of(kernel)) is None:
        return "it is no product of two matrices"
    axes, acc, _, factors, _ = product
    if any(t.element is not I32 for t in (acc, *(f.tensor for f in factors))):
        return "factors and sums are not i32"
    whole = all(isinstance(n.extent, int) and n.extent % TILE == 0 for n in axes)
    return "" if whole else f"an extent is no multiple of {TILE}"


def cost(kernel: Kernel) -> int:
    """The number of instructions mma."""
    axes = product_of(kernel)[0]  # a kernel that `match` accepts
    return int(np.prod([n.extent // TILE for n in axes]))


def build(kernel: Kernel) -> Kernel:
    """Tile a product of matrices; `vector` marks the loops as final."""
    axes, acc, start, (a, b), last = product_of(kernel)
    rows, columns, terms = blocks = [Index("block", n.extent // TILE) for n in axes]
    m, n, k = inner = [Index("element", TILE) for _ in axes]
    at = {axis: o * TILE + e for axis, o, e in zip(axes, blocks, inner, strict=True)}
    tile = Tile("tile", (TILE, TILE), I32, "stack")

    def tiled(e):
        return rewrite(
            e, lambda x: tile[m, n] if isinstance(x, Read) and x.tensor is acc else at.get(x)
        )

    def over(index, *body):
        return For(index, body, kind="vector", width=TILE) if index is n else For(index, body)

    multiplied = Store(tile, (m, n), tile[m, n] + tiled(a) * tiled(b))
    begun = over(m, over(n, Store(tile, (m, n), start)))
    steps = over(terms, over(m, over(k, over(n, multiplied))))
    ended = over(m, over(n, *map_expressions(last, tiled)))
    return kernel.with_body((over(rows, over(columns, Alloc(tile), begun, steps, ended)),))


class Source:
    """The text of a plan; names of the program do not enter it."""

    def __init__(self, plan):
        self.names, arrays = {}, dict.fromkeys((*plan.arguments, *plan.results, *plan.constants))
        self.lines = [f"def run({', '.join(self.name(t) for t in arrays)}):"]
        for kernel in plan.kernels:
            self.kernel = kernel
            if type(kernel) is not Kernel or kernel.condition is not None:
                self.fail("a loop over a program or a conditional kernel")
            for tensor in kernel.parameters:
                home = plan.home.get(tensor, tensor)
                if home not in self.names:
                    self.line(1, f"{self.name(home)} = buffer{home.shape}")
                if tensor not in self.names:
                    self.line(1, f"{self.name(tensor)} = {self.name(home)}.reshape({tensor.shape})")
            self.block(kernel.body, 1)
        self.text = "\n".join([*self.lines, "    return", ""])

    def fail(self, lacking):
        raise TargetError(Diagnostic(f"target npu: {lacking} is not supported", self.kernel.span))

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def name(self, node):
        if isinstance(node, Tensor) and node.element is not I32 and node not in self.names:
            raise TargetError(f"target npu: arrays of {node.element} are not supported")
        return self.names.setdefault(node, f"v{len(self.names)}")

    def block(self, block, depth):
        for s in block:
            match s:
                case For(_, (For(k, (For(_, (Store(Tile() as tile, (m, n), value),)),)),)):
                    a, b = value.operands[1].operands
                    parts = f"{self.part(a, m, k)}, {self.part(b, k, n)}"
                    self.line(depth, f"mma({self.name(tile)}, {parts})")
                case For(index, body, start):
                    head = f"range({self.value(start)}, {self.value(s.end)})"
                    self.line(depth, f"for {self.name(index)} in {head}:")
                    self.block(body, depth + 1)
                case Alloc(tensor):
                    self.line(depth, f"{self.name(tensor)} = buffer{tensor.shape}")
                case Let(var, value):
                    self.line(depth, f"{self.name(var)} = {self.value(value)}")
                case Store(tensor, at, value):
                    self.line(depth, f"{self.value(Read(tensor, at))} = {self.value(value)}")
                case _:
                    self.fail(f"the statement {type(s).__name__}")

    def part(self, factor, *order):
        """The tile of a factor, with its axes in this order."""
        zero = {x: constant(0, I64) for x in order}
        bases = [self.value(rewrite(e, zero.get)) for e in factor.indices]
        text = f"{self.name(factor.tensor)}[{', '.join(f'{b}:{b} + {TILE}' for b in bases)}]"
        return text if order[0] in walk(factor.indices[0]) else f"{text}.T"

    def value(self, e):
        match e:
            case Const(value, element) if element in FUNCTIONS:
                return f"i32({value})" if element is I32 else f"{value}"
            case Index() | Var():
                return self.name(e)
            case Read(tensor, at):
                return f"{self.name(tensor)}[{', '.join(map(self.value, at)) or '()'}]"
            case Apply(function, operands, t) if function in FUNCTIONS.get(t, ()):
                return FUNCTIONS[t][function].format(*map(self.value, operands))
        return self.fail(f"the expression {getattr(e, 'function', type(e).__name__)}")


class NpuFunction(CompiledFunction):
    """A function on the model of the machine."""

    target = "npu"

    def __init__(self, module, function, options):
        super().__init__(module, function, options)
        if not self.is_static or self.overwritten:
            message = "target npu: unknown sizes and overwritten arguments are not supported"
            raise TargetError(Diagnostic(message, function.span))
        exec(self.source.text, known := {**MACHINE})
        self.machine = known["run"]

    def _run(self, arrays, outputs):
        with np.errstate(over="ignore"):  # arithmetic wraps
            self.machine(*arrays, *outputs, *self.plan.constants.values())


register_strategy("npu_mma", match, cost, build, target="npu")
register_target(
    Target(
        "npu",
        load=NpuFunction,
        emit=lambda plan, options: Source(plan),
        stages={"npu": lambda source, options: source.text},
    )
)
