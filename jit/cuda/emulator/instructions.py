"""Each PTX instruction as a function of the threads that execute it: registers, memory and the
warp's other threads.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from . import warp_operations
from .arithmetic import operation
from .memory import LOCAL, OFFSET, SHARED, SPACE, SPACES, WARP, Local, Memory
from .ptx import Instruction, Unsupported
from .ptx_types import TRUTH, WORD, Array, dtype
from .races import Fault
from .registers import Active, Registers
from .shared_memory import Shared

Step: TypeAlias = Callable[[Active], None]
Place: TypeAlias = "tuple[Array, Memory | Shared | Local]"
_ATOMIC = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "or": np.bitwise_or,
    "and": np.bitwise_and,
    "xor": np.bitwise_xor,
}
_NOTHING = {"bar", "barrier", "prefetch", "prefetchu"}


class Instructions:
    """The instructions of one kernel bound to registers and memory."""

    def __init__(self, registers: Registers, memory: Memory, shared: Shared, local: Local) -> None:
        self.registers = registers
        self.memory = memory
        self.shared = shared
        self.inner: dict[int, Shared | Local] = {SHARED: shared, LOCAL: local}

    def bind(self, i: Instruction) -> Step:
        special: dict[str, Callable[[Instruction], Step]] = {
            "ld": self.load,
            "st": self.store,
            "atom": self.atomic,
            "red": self.atomic,
            "shfl": self.shuffle,
            "vote": self.vote,
            "mma": self.matrix,
            "activemask": self.vote,
            "cvta": self.convert_address,
            "cp": self.copy,
            "ldmatrix": self.load_matrices,
            "membar": self.fence,
            "fence": self.fence,
        }
        if i.name in _NOTHING:
            return lambda active: None
        if i.name == "mov" and any("{" in o for o in i.operands):
            step = self.pack(i)
        else:
            step = special.get(i.name, self.compute)(i)
        return step if i.guard is None else self.guarded(step, *i.guard)

    def guarded(self, step: Step, name: str, negated: bool) -> Step:
        truth, registers = self.registers.register(name), self.registers

        def run(active: Active) -> None:
            held = truth[active]
            if (
                chosen := registers.active(registers.lanes[active][~held if negated else held])
            ) is not None:
                step(chosen)

        return run

    def compute(self, i: Instruction) -> Step:
        """An instruction on registers alone."""
        bound = operation(i)
        if "|" in i.operands[0]:
            raise Unsupported(f"the instruction {i}")
        to = self.registers.target(i.operands[0], bound.result)
        function = bound.compute
        given = [
            self.registers.source(o, kind)
            for o, kind in zip(i.operands[1:], bound.operands, strict=True)
        ]
        return self.several([to], lambda *x: [function(*x)], *given)

    def several(
        self, targets: Sequence[Array], function: Callable[..., Sequence[Array]], *given: Array
    ) -> Step:
        """A function that has a result for each target."""

        def step(active: Active) -> None:
            for to, values in zip(targets, function(*[x[active] for x in given]), strict=True):
                to[active] = values

        return step

    def pack(self, i: Instruction) -> Step:
        """mov between a register and the parts of a vector."""
        kind = dtype(i.type)
        parts, wide = (_vector(o) for o in i.operands)
        unpacks = len(parts) > 1
        parts, wide = (parts, wide) if unpacks else (wide, parts)
        part = np.dtype(f"u{kind.itemsize // len(parts)}")
        whole = self.registers.register(wide[0]).view(part)
        places = [whole[n :: len(parts)] for n in range(len(parts))]
        registers = [
            (self.registers.target if unpacks else self.registers.source)(n, part) for n in parts
        ]
        targets, given = (registers, places) if unpacks else (places, registers)
        return self.several(targets, lambda *x: x, *given)

    def convert_address(self, i: Instruction) -> Step:
        """Between addresses of one space and those of all."""
        space, wide = np.uint64(_space(i) << SPACE), np.dtype(np.uint64)
        to = self.registers.target(i.operands[0], wide)
        of = self.registers.source(i.operands[1], wide)
        return self.several([to], lambda a: [a - space if "to" in i.modifiers else a + space], of)

    # memory

    def _addresses(self, place: str) -> Callable[[Active], Array]:
        base, offset = self.registers.address(place)
        return lambda active: base[active].astype(np.uint64, copy=False) + offset

    def _access(self, i: Instruction, place: str, width: int) -> Callable[[Active], Place]:
        """The aligned addresses of `width` bytes each, and the memory that holds them."""
        addresses, lanes, space = self._addresses(place), self.registers.lanes, _space(i)
        what = "load" if i.name == "ld" else "store"

        def reach(active: Active) -> Place:
            at = addresses(active)
            memory = self.inner.get(space or int(at[0]) >> SPACE, self.memory)
            self._touch(what, memory, lanes[active], at, width)
            return at, memory

        return reach

    def _touch(
        self, what: str, memory: Memory | Shared | Local, lanes: Array, at: Array, width: int
    ) -> None:
        if np.any(at & np.uint64(width - 1)):
            raise Fault(f"an access to {width} bytes that is not aligned")
        if memory is self.memory and self.memory.counts:
            self.memory.count(what, lanes, at, width)
        elif memory is self.shared and self.memory.counts:
            self.memory.count_banks(lanes, at & OFFSET, width)

    def load(self, i: Instruction) -> Step:
        kind = dtype(i.type)
        targets = [self.registers.target(n, kind) for n in _vector(i.operands[0])]
        if "param" in i.modifiers:
            held = (
                self.registers.arguments[i.operands[1].strip("[]")] & (1 << 8 * kind.itemsize) - 1
            )
            value = np.array(held, f"u{kind.itemsize}").view(kind)
            return self.several(targets, lambda: [value])
        reach, lanes = (
            self._access(i, i.operands[1], kind.itemsize * len(targets)),
            self.registers.lanes,
        )

        def step(active: Active) -> None:
            at, memory = reach(active)
            for n, to in enumerate(targets):
                to[active] = memory.load(
                    at + np.uint64(n * kind.itemsize), lanes[active], kind, i.modifiers
                )

        return step

    def store(self, i: Instruction) -> Step:
        kind = dtype(i.type)
        sources = [self.registers.source(n, kind) for n in _vector(i.operands[1])]
        reach, lanes = (
            self._access(i, i.operands[0], kind.itemsize * len(sources)),
            self.registers.lanes,
        )

        def step(active: Active) -> None:
            at, memory = reach(active)
            for n, of in enumerate(sources):
                memory.store(
                    at + np.uint64(n * kind.itemsize), lanes[active], of[active], i.modifiers
                )

        return step

    def atomic(self, i: Instruction) -> Step:
        kind = dtype(i.type)
        function = next((_ATOMIC[m] for m in i.modifiers if m in _ATOMIC), None)
        if function is None or "shared" in i.modifiers:
            raise Unsupported(f"the instruction {i}")
        to, place, operand = i.operands if i.name == "atom" else ("_", *i.operands)
        target, addresses = self.registers.target(to, kind), self._addresses(place)
        value, lanes = self.registers.source(operand, kind), self.registers.lanes

        def step(active: Active) -> None:
            old = self.memory.update(
                addresses(active), lanes[active], value[active], function, i.modifiers
            )
            target[active] = old

        return step

    def fence(self, i: Instruction) -> Step:
        """One that orders a thread's accesses for other blocks; within a block, barriers do."""
        lanes, order = self.registers.lanes, self.memory.order
        wide = i.modifiers[-1] in ("gl", "gpu", "sys") and "proxy" not in i.modifiers
        return lambda active: order.fence(lanes[active]) if wide else None

    def copy(self, i: Instruction) -> Step:
        """cp.async: copies from global to shared memory that run beside the thread, in groups that
        it waits for.
        """
        lanes, what = self.registers.lanes, ".".join(i.modifiers[:2])
        if what == "async.commit_group":
            return lambda active: self.shared.commit(lanes[active])
        if what in ("async.wait_group", "async.wait_all"):
            pending = int(i.operands[0]) if i.operands else -1
            return lambda active: self.shared.wait(lanes[active], pending)
        width = int(i.operands[2]) if what in ("async.ca", "async.cg") else 0
        if width not in ((16,) if what == "async.cg" else (4, 8, 16)):
            raise Unsupported(f"the instruction {i}")
        sizes = self.registers.source((i.operands[3:] or (str(width),))[0], WORD)
        to, of = self._access(i, i.operands[0], width), self._addresses(i.operands[1])

        byte, pack = np.arange(width, dtype=np.uint64), np.dtype(f"V{width}")

        def step(active: Active) -> None:
            """The bytes beyond a thread's size are zeros, and are not read."""
            (places, _), at, size = to(active), of(active), sizes[active]
            if np.any(size > width):
                raise Fault(f"a copy of {width} bytes that is of more bytes than that")
            values = np.zeros((len(at), width), np.uint8)
            some = size > 0
            self._touch("load", self.memory, lanes[active][some], at[some], width)
            whole = size == width
            values[whole] = (
                self.memory.load(at[whole], lanes[active][whole], pack)
                .view(np.uint8)
                .reshape(-1, width)
            )
            wanted = (byte < size[:, None]) & ~whole[:, None]
            rest = lanes[active].repeat(wanted.sum(1))
            values[wanted] = self.memory.load((at[:, None] + byte)[wanted], rest, values.dtype)
            self.shared.copy(places, lanes[active], values.view(pack)[:, 0])

        return step

    # warps

    def load_matrices(self, i: Instruction) -> Step:
        """ldmatrix: 1, 2 or 4 matrices of 8 rows of 16 bytes, whose addresses 8 threads each of a
        warp give.
        """
        targets = [self.registers.target(n, WORD) for n in _vector(i.operands[0])]
        if "m8n8" not in i.modifiers or i.type != "b16" or f"x{len(targets)}" not in i.modifiers:
            raise Unsupported(f"the instruction {i}")
        addresses, lanes, given = (
            self._addresses(i.operands[1]),
            self.registers.lanes,
            8 * len(targets),
        )
        first, second = (
            np.arange(WARP) // 4,
            np.arange(WARP) % 4,
        )  # the row and column of a thread's two elements
        half = np.dtype(np.uint16)

        def step(active: Active) -> None:
            warp_operations.whole_warps(mine := lanes[active])
            at = addresses(active).reshape(-1, WARP)[:, :given]
            self._touch(
                "load", self.shared, mine.reshape(-1, WARP)[:, :given].ravel(), at.ravel(), 16
            )
            for m, to in enumerate(targets):
                rows = at[:, 8 * m : 8 * m + 8]
                for n in range(2):
                    row, column = (
                        (2 * second + n, first)
                        if "trans" in i.modifiers
                        else (first, 2 * second + n)
                    )
                    places = (rows[:, row] + (2 * column).astype(np.uint64)).reshape(-1)
                    to.view(half)[n::2][active] = self.shared.load(places, mine, half)

        return step

    def shuffle(self, i: Instruction) -> Step:
        name, _, truth = i.operands[0].partition("|")
        to = self.registers.target(name, WORD)
        of = self.registers.source(i.operands[1], WORD)
        ok = self.registers.target(truth or "_", TRUTH)
        by, clamp = (self.registers.source(o, np.dtype(np.int32)) for o in i.operands[2:4])

        def shuffled(lanes: Array, by: Array, clamp: Array) -> tuple[Array, Array]:
            source, inside = warp_operations.shuffle_source(i.modifiers[1], lanes, by, clamp)
            if not np.isin(source, lanes).all():
                raise Fault("a shuffle from a thread that does not take part")
            return of[source], inside

        return self.several([to, ok], shuffled, self.registers.lanes, by, clamp)

    def vote(self, i: Instruction) -> Step:
        """A vote; `activemask` is that of all threads which are active."""
        mode, truth, type = (
            (i.modifiers[1], i.operands[1], i.type) if i.name == "vote" else ("ballot", "1", "b32")
        )
        of = self.registers.source(truth.lstrip("!"), TRUTH)
        to = self.registers.target(i.operands[0], dtype(type))
        negated = truth.startswith("!")
        function = lambda lanes, of: [warp_operations.vote(mode, lanes, of ^ negated)]  # noqa: E731
        return self.several([to], function, self.registers.lanes, of)

    def matrix(self, i: Instruction) -> Step:
        if "m16n8k32" not in i.modifiers or i.modifiers[-1] != "s32":
            raise Unsupported(f"the instruction {i}")
        kinds, word = (dtype(i.modifiers[-3]), dtype(i.modifiers[-2])), np.dtype(np.int32)
        targets = [self.registers.target(n, word) for n in _vector(i.operands[0])]
        given = [self.registers.source(n, word) for o in i.operands[1:] for n in _vector(o)]

        def product(lanes: Array, *words: Array) -> list[Array]:
            warp_operations.whole_warps(lanes)
            return warp_operations.matrix_product(words[:4], words[4:6], words[6:], kinds)

        return self.several(targets, product, self.registers.lanes, *given)


def _vector(operand: str) -> list[str]:
    return [n.strip() for n in operand.strip("{}").split(",")]


def _space(i: Instruction) -> int:
    return next((SPACES[m] for m in i.modifiers if m in SPACES), 0)
