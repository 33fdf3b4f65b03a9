"""Each PTX instruction as a function of the threads that execute it: registers, memory and the warp's other threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from . import warp_operations
from .arithmetic import operation
from .memory import SPACE, Local, Memory, Shared
from .ptx import Instruction, Unsupported
from .ptx_types import TRUTH, TYPES, WORD, Array, dtype
from .registers import SPACES, Active, Registers

Step: TypeAlias = Callable[[Active], None]
_ATOMIC = {
    "add": np.add, "max": np.maximum, "min": np.minimum, "or": np.bitwise_or, "and": np.bitwise_and,
    "xor": np.bitwise_xor,
}  # fmt: skip
_NOTHING = {"membar", "fence", "bar", "barrier", "prefetch", "prefetchu"}


class Instructions:
    """The instructions of one kernel bound to registers and memory."""

    def __init__(self, registers: Registers, memory: Memory, shared: Shared, local: Local) -> None:
        self.registers = registers
        self.memory = memory
        self.inner: dict[int, Shared | Local] = {SPACES["shared"] >> SPACE: shared, SPACES["local"] >> SPACE: local}

    def bind(self, i: Instruction) -> Step:
        """The instruction as a function."""
        special: dict[str, Callable[[Instruction], Step]] = {
            "ld": self.load, "st": self.store, "atom": self.atomic, "red": self.atomic, "shfl": self.shuffle,
            "vote": self.vote, "mma": self.matrix, "activemask": self.activemask,
        }  # fmt: skip
        if i.name in _NOTHING:
            return lambda active: None
        if i.name in special:
            step = special[i.name](i)
        elif i.name == "mov" and any("{" in o for o in i.operands):
            step = self.pack(i)
        elif i.name == "cvta":
            step = self.convert_address(i)
        else:
            step = self.compute(i)
        return step if i.guard is None else self.guarded(step, *i.guard)

    def guarded(self, step: Step, name: str, negated: bool) -> Step:
        truth, registers = self.registers.register(name), self.registers

        def run(active: Active) -> None:
            held = truth[active]
            chosen = registers.active(registers.lanes[active][~held if negated else held])
            if chosen is not None:
                step(chosen)

        return run

    def compute(self, i: Instruction) -> Step:
        """An instruction on registers alone."""
        bound = operation(i)
        names = [o.strip() for o in i.operands[0].split("|")]
        if len(names) > 1:
            raise Unsupported(f"the instruction {i}")
        to, function = self.registers.target(names[0], bound.result), bound.compute
        given = [self.registers.source(o, kind) for o, kind in zip(i.operands[1:], bound.operands, strict=True)]
        match given:
            case [a]:

                def step(active: Active) -> None:
                    to[active] = function(a[active])
            case [a, b]:

                def step(active: Active) -> None:
                    to[active] = function(a[active], b[active])
            case _:

                def step(active: Active) -> None:
                    to[active] = function(*(x[active] for x in given))

        return step

    def pack(self, i: Instruction) -> Step:
        """mov between a register and the parts of a vector."""
        kind = dtype(i.type)
        first, second = (o.strip("{} ").split(",") for o in i.operands)
        count = max(len(first), len(second))
        part = np.dtype(f"u{kind.itemsize // count}")
        narrow, wide = (first, second) if len(first) > 1 else (second, first)
        whole = self.registers.register(wide[0].strip())
        places = [whole.view(part)[n::count] for n in range(count)]
        names = [n.strip() for n in narrow]
        if len(first) > 1:
            pairs = [(self.registers.target(n, part), p) for n, p in zip(names, places, strict=True)]
        else:
            pairs = [(p, self.registers.source(n, part)) for n, p in zip(names, places, strict=True)]

        def step(active: Active) -> None:
            for to, of in pairs:
                to[active] = of[active]

        return step

    def convert_address(self, i: Instruction) -> Step:
        """Between addresses of one space and those of all."""
        space = np.uint64(next((SPACES[m] for m in i.modifiers if m in SPACES), 0))
        wide = np.dtype(np.uint64)
        to, of = self.registers.target(i.operands[0], wide), self.registers.source(i.operands[1], wide)

        def step(active: Active) -> None:
            to[active] = of[active] - space if "to" in i.modifiers else of[active] + space

        return step

    # memory

    def _addresses(self, place: str) -> Callable[[Active], Array]:
        base, offset = self.registers.address(place)
        return lambda active: base[active].astype(np.uint64, copy=False) + offset

    def _access(
        self, i: Instruction, place: str, width: int
    ) -> Callable[[Active], tuple[Array, Shared | Local | None]]:
        """The addresses of so many bytes each, which are aligned, and the memory that they lie in; None for global memory."""
        addresses, lanes = self._addresses(place), self.registers.lanes
        space = next((SPACES[m] for m in i.modifiers if m in SPACES), 0) >> SPACE
        what = "load" if i.name == "ld" else "store"

        def reach(active: Active) -> tuple[Array, Shared | Local | None]:
            at = addresses(active)
            inner = self.inner.get(space or int(at[0]) >> SPACE)
            if np.any(at & np.uint64(width - 1)):
                raise warp_operations.Fault(f"an access to {width} bytes that is not aligned")
            if self.memory.statistics is not None and inner is None:
                self.memory.count(what, lanes[active], at, width)
            elif self.memory.statistics is not None and isinstance(inner, Shared):
                self.memory.count_banks(lanes[active], at & _OFFSET, width)
            return at, inner

        return reach

    def _vector(self, i: Instruction, operand: str) -> list[str]:
        return [n.strip() for n in operand.strip("{}").split(",")]

    def load(self, i: Instruction) -> Step:
        kind = dtype(i.type)
        names = self._vector(i, i.operands[0])
        targets = [self.registers.target(n, kind) for n in names]
        if "param" in i.modifiers:
            held = self.registers.arguments[i.operands[1].strip("[]")] & (1 << 8 * kind.itemsize) - 1
            value = np.array(held, f"u{kind.itemsize}").view(kind)

            def parameter(active: Active) -> None:
                targets[0][active] = value

            return parameter
        reach, lanes = self._access(i, i.operands[1], kind.itemsize * len(names)), self.registers.lanes

        def step(active: Active) -> None:
            at, inner = reach(active)
            for n, to in enumerate(targets):
                place = at + np.uint64(n * kind.itemsize)
                to[active] = (
                    self.memory.load(place, kind) if inner is None else inner.load(place & _OFFSET, lanes[active], kind)
                )

        return step

    def store(self, i: Instruction) -> Step:
        kind = dtype(i.type)
        sources = [self.registers.source(n, kind) for n in self._vector(i, i.operands[1])]
        reach, lanes = self._access(i, i.operands[0], kind.itemsize * len(sources)), self.registers.lanes

        def step(active: Active) -> None:
            at, inner = reach(active)
            for n, of in enumerate(sources):
                place = at + np.uint64(n * kind.itemsize)
                if inner is None:
                    self.memory.store(place, of[active])
                else:
                    inner.store(place & _OFFSET, lanes[active], of[active])

        return step

    def atomic(self, i: Instruction) -> Step:
        kind = dtype(i.type)
        function = next((_ATOMIC[m] for m in i.modifiers if m in _ATOMIC), None)
        if function is None or "shared" in i.modifiers:
            raise Unsupported(f"the instruction {i}")
        back = i.name == "atom"
        to = self.registers.target(i.operands[0], kind) if back else None
        place, operand = i.operands[back], i.operands[back + 1]
        addresses, value = self._addresses(place), self.registers.source(operand, kind)

        def step(active: Active) -> None:
            before = self.memory.update(addresses(active), value[active], function)
            if to is not None:
                to[active] = before

        return step

    # warps

    def shuffle(self, i: Instruction) -> Step:
        name, _, truth = i.operands[0].partition("|")
        to, of = self.registers.target(name, WORD), self.registers.source(i.operands[1], WORD)
        ok = self.registers.target(truth, TRUTH) if truth else None
        by, clamp = (self.registers.source(o, np.dtype(np.int32)) for o in i.operands[2:4])
        mode, lanes = i.modifiers[1], self.registers.lanes

        def step(active: Active) -> None:
            source, inside = warp_operations.shuffle_source(mode, lanes[active], by[active], clamp[active])
            if not np.isin(source, lanes[active]).all():
                raise warp_operations.Fault("a shuffle from a thread that does not take part")
            to[active] = of[source]
            if ok is not None:
                ok[active] = inside

        return step

    def vote(self, i: Instruction) -> Step:
        mode, truth = i.modifiers[1], i.operands[1]
        negated = truth.startswith("!")
        of = self.registers.source(truth.lstrip("!"), TRUTH)
        to, lanes = self.registers.target(i.operands[0], dtype(i.type)), self.registers.lanes

        def step(active: Active) -> None:
            to[active] = warp_operations.vote(mode, lanes[active], of[active] ^ negated)

        return step

    def activemask(self, i: Instruction) -> Step:
        to, lanes = self.registers.target(i.operands[0], WORD), self.registers.lanes

        def step(active: Active) -> None:
            to[active] = warp_operations.vote("ballot", lanes[active], np.ones(len(lanes[active]), bool))

        return step

    def matrix(self, i: Instruction) -> Step:
        if "m16n8k32" not in i.modifiers or i.modifiers[-1] != "s32":
            raise Unsupported(f"the instruction {i}")
        kinds = np.dtype(TYPES[i.modifiers[-3]]), np.dtype(TYPES[i.modifiers[-2]])
        word, lanes = np.dtype(np.int32), self.registers.lanes
        targets = [self.registers.target(n, word) for n in self._vector(i, i.operands[0])]
        a, b, c = ([self.registers.source(n, word) for n in self._vector(i, o)] for o in i.operands[1:])

        def step(active: Active) -> None:
            warp_operations.whole_warps(lanes[active])
            left, right, total = ([x[active] for x in part] for part in (a, b, c))
            found = warp_operations.matrix_product(left, right, total, kinds)
            for to, values in zip(targets, found, strict=True):
                to[active] = values

        return step


_OFFSET = np.uint64((1 << SPACE) - 1)
