"""Emit plans as one file of C99 that needs no library: a static function for each kernel, constants
as const arrays, intermediate arrays as static buffers.

    static void main_0_dense(const int8_t *restrict w, const int32_t *restrict x, ...) { ... }
    int32_t net_main(const int32_t *in_x, int32_t *out_y) { main_0_dense(w, in_x, h); ... }

Wrapping arithmetic is done in unsigned types, so nothing is undefined in C. An array is accessed by
its own type alone; with an arena, arrays of one width share a buffer, and bytes lie in any, as C's
rules of aliasing allow. Names of the program become identifiers; no other text of it reaches the
code. Integers only: TargetError names the operation that has floats.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from ...dialect.ir.module import Module
from ...dialect.kernel_ir.execution_plan import Loop, Plan, Requirements
from ...dialect.kernel_ir.expressions import Tensor
from ...dialect.support.diagnostics import counted
from ...dialect.types.sizes import product
from ...dialect.types.tensor_types import ElementType
from ...lowering.storage.place_buffers import packed
from .c99 import BYTES, C99, HEAD, LINE, Names, helpers_text
from .kernels import Function, refuse_floats, tensors_of, unused


@dataclass(frozen=True)
class Sizes:
    """The memory of the emitted code, in bytes: static buffers, constants, and arrays on the
    stack.
    """

    buffers: int
    constants: int
    stack: int

    def __str__(self) -> str:
        stack = f", and {counted(self.stack, 'byte')} on the stack" if self.stack else ""
        return (
            f"RAM: {counted(self.buffers, 'byte')} of static buffers{stack}; "
            f"flash: {counted(self.constants, 'byte')} of constants, and the code"
        )


class File:
    """The C of several plans.

    With an `arena`, arrays of disjoint lifetimes share bytes of one buffer; else each has its own.
    """

    def __init__(
        self, module: Module, plans: Sequence[Plan], taken: Iterable[str], arena: bool
    ) -> None:
        self.module = module
        self.requirements = Requirements(plans)
        self.arena = arena
        self.names = Names(taken)
        self.constants: dict[tuple[ElementType, bytes], str] = {}
        self.head: list[str] = []
        self.functions: list[str] = []
        self.placed: dict[Tensor, str] = {}  # constants and intermediate arrays
        self.arenas: dict[str, int] = {}  # bytes, by the type of the elements
        self.arena_lines: list[str] = []  # the places of arrays in them
        self.buffers = self.stack = 0

    @property
    def sizes(self) -> Sizes:
        held = sum(len(data) for _, data in self.constants)
        return Sizes(self.buffers + sum(self.arenas.values()), held, self.stack)

    def workspace(self, plan: Plan) -> int:
        """The bytes of the static buffers of a plan."""
        return sum(int(t.bytes) for t in lifetimes(plan)[0])

    def text(self) -> str:
        """The file, without what stands before and after these functions."""
        body = "\n".join(self.functions)
        arenas = [
            f"static {ctype} {_arena(ctype)}[{size // BYTES[ctype]}];"
            for ctype, size in self.arenas.items()
        ]
        parts = (helpers_text(body), [*self.head, *arenas, *self.arena_lines])
        return "\n".join([HEAD, *("\n".join([*part, ""]) for part in parts if part), body])

    # a plan

    def define(
        self, plan: Plan, head: str, arrays: Mapping[Tensor, str], lead: Sequence[str] = ()
    ) -> None:
        """Define the function of a plan, after those of its kernels; `arrays` are its parameters'
        names, and `lead` the statements before all.
        """
        for kernel in plan.all_kernels:
            refuse_floats(self.module, kernel)
        self.place_constants(plan)
        self.place_buffers(plan)
        self.step(plan, head, arrays, lead)

    def step(
        self, plan: Plan, head: str, arrays: Mapping[Tensor, str], lead: Sequence[str] = ()
    ) -> None:
        """Define the function of a plan whose arrays have their places."""
        calls = self.run(plan, arrays)
        if any("status" in line for line in calls):
            lines = [*lead, "int32_t status = 0;", *calls, "return status;"]
        else:
            lines = [*lead, *calls, "return 0;"]
        lines = [*unused(arrays.values(), lines), *lines]
        self.functions.append("\n".join([f"{head} {{", *_indented(lines), "}", ""]))

    def place_constants(self, plan: Plan) -> None:
        """Define constants; equal ones are one."""
        used = {p.home[t] for p in plan.plans for k in p.kernels for t in tensors_of(k)}
        for tensor, array in ((t, a) for t, a in plan.data.items() if t in used):
            data = np.ascontiguousarray(array)
            element, ctype = tensor.element, C99.memory_type(tensor.element)
            if (key := (element, data.tobytes())) not in self.constants:
                self.constants[key] = name = self.names.of(tensor.name)
                if element.bits < 64:
                    numbers = [str(int(n)) for n in data.reshape(-1)]
                else:
                    numbers = [C99.number(n, element) for n in data.reshape(-1)]
                text = wrap(", ".join(numbers or ["0"]), LINE - 2, break_on_hyphens=False)
                opening = f"static const {ctype} {name}[{max(1, len(numbers))}] = {{"
                self.head += [opening, *_indented(text), "};"]
            self.placed[tensor] = self.constants[key]

    def place_buffers(self, plan: Plan) -> None:
        """Define the intermediate arrays of a plan and of its loops."""
        first, last, _ = lifetimes(plan)
        for ctype, tensors in _by_aliasing(first).items():
            ends = [{t: found[t] for t in tensors} for found in (first, last)]
            width = BYTES[ctype]
            offsets, size = packed(ends[0], ends[1], width)
            if self.arena and size:
                self.arenas[ctype] = max(int(size), self.arenas.get(ctype, 0))
            for tensor in tensors:
                self.placed[tensor] = name = self.names.of(tensor.name)
                own, length = C99.memory_type(tensor.element), max(1, int(product(tensor.shape)))
                if self.arena and size:
                    offset = int(offsets[tensor]) // width
                    place = f"{_arena(ctype)} + {offset}" if offset else _arena(ctype)
                    place = place if own == ctype else f"({own} *)({place})"
                    self.arena_lines.append(f"static {own} *const {name} = {place};")
                else:
                    self.head.append(f"static {own} {name}[{length}];")
                    self.buffers += length * tensor.element.bytes

    def run(self, plan: Plan, arrays: Mapping[Tensor, str]) -> list[str]:
        """The statements that call the kernels of a plan."""
        lines: list[str] = []
        known = {**self.placed, **arrays}
        named = {t: known[plan.home.get(t, t)] for k in plan.kernels for t in tensors_of(k)}
        for kernel in plan.kernels:
            if isinstance(kernel, Loop):
                lines += self.loop(kernel, named)
                continue
            function = Function(kernel, self.names, self.requirements)
            self.functions.append(function.define())
            self.stack = max(self.stack, function.stack)
            passed = [named[t] for t in tensors_of(kernel)]
            call = f"{function.name}({', '.join(passed)})"
            lines.append(f"status = max_i32(status, {call});" if function.reports else f"{call};")
        return lines

    def loop(self, loop: Loop, named: Mapping[Tensor, str]) -> list[str]:
        """The statements of a loop over a plan: a step is a call of that plan's function, and one
        that fails is the last.
        """
        inner, steps = loop.plan, loop.steps
        inputs = [named[loop.parameters[n]] for n in loop.operands]
        results = [named[t] for t in loop.outputs]
        spares = [named.get(t, "") for t in loop.scratch[:-1]]
        name, local = self.names.of(loop.name), Names()
        arrays = {t: local.of(t.name) for t in (*inner.arguments, *inner.results)}
        written = {inner.home[t] for k in inner.kernels for t in k.outputs}
        declared = ", ".join(
            f"{'' if t in written else 'const '}{C99.memory_type(t.element)} *{n}"
            for t, n in arrays.items()
        )
        self.step(inner, f"static int32_t {name}({declared or 'void'})", arrays)
        passed: dict[Tensor, str] = {}
        if steps.trips is None:
            stored = [*spares]
            for n in loop.in_place:
                stored[n + 1] = results[n]
            given = (*results, *inputs[1:], *stored)
            passed = dict(zip((*inner.arguments, *inner.results), given, strict=False))
            call = f"{name}({', '.join(passed[t] for t in arrays)})"
            return [
                f"if ({inputs[0]}[0] != 0) {{",
                f"  do status = max_i32(status, {call});",
                f"  while (status == 0 && {spares[0]}[0] != 0);",
                "}",
            ]
        last = f"{steps.trips} - 1 - step"
        at = f"({last})" if steps.reverse else "step"
        for n, (result, spare) in enumerate(zip(results, spares, strict=False)):
            ends = f"({last}) % 2 == 0 ? "
            passed[inner.results[n]] = f"{ends}{result} : {spare}"
            passed[inner.arguments[n]] = f"step == 0 ? {inputs[n]} : {ends}{spare} : {result}"
            if n in loop.in_place:
                passed[inner.arguments[n]] = passed[inner.results[n]] = result
        for n in range(steps.carry, len(inner.arguments)):
            sliced = f" + {at} * {product(inner.arguments[n].shape)}"
            passed[inner.arguments[n]] = inputs[n] + sliced * (n < steps.carry + steps.scan)
        for n in range(steps.carry, len(results)):
            passed[inner.results[n]] = f"{results[n]} + {at} * {product(inner.results[n].shape)}"
        call = f"{name}({', '.join(passed[t] for t in arrays)})"
        return [
            f"for (int32_t step = 0; step < {steps.trips} && status == 0; ++step) {{",
            f"  status = max_i32(status, {call});",
            "}",
        ]


def lifetimes(plan: Plan, start: int = 0) -> tuple[dict[Tensor, int], dict[Tensor, int], int]:
    """The first and the last use of each array of a plan and of its loops that is no argument,
    constant or result, counted in kernels from `start`, and the count after all.
    """
    placed = {*plan.arguments, *plan.constants, *plan.results}
    first: dict[Tensor, int] = {}
    last: dict[Tensor, int] = {}
    for kernel in plan.kernels:
        end = start
        if isinstance(kernel, Loop):
            within, until, end = lifetimes(kernel.plan, start)
            first |= within
            last |= until
        for tensor in (plan.home.get(t, t) for t in tensors_of(kernel)):
            if tensor not in placed:
                first.setdefault(tensor, start)
                last[tensor] = end
        start = end + 1
    return first, last, start


def _by_aliasing(tensors: Iterable[Tensor]) -> dict[str, list[Tensor]]:
    """Arrays by the signed type of a buffer in which C lets them share bytes: that of their width.
    Bytes may lie in any, and lie in that which has the most.
    """
    found: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        found.setdefault(tensor.element.bits if tensor.element.bits > 8 else 8, []).append(tensor)
    if len(found) > 1 and 8 in found:
        small = found.pop(8)
        most = max(found, key=lambda bits: sum(int(t.bytes) for t in found[bits]))
        found[most] += small
    return {f"int{bits}_t": group for bits, group in found.items()}


def _arena(ctype: str) -> str:
    return f"arena_of_{ctype.removesuffix('_t')}"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
