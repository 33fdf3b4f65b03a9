"""Run a kernel's grid: blocks in batches, all their threads in lockstep, divergent groups one after
the other.

A group is threads at the same place; the group that is furthest behind runs first, so that threads
reconverge after branches. A barrier holds a group until every thread of its block has arrived.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .instructions import Instructions, Step
from .memory import WARP, Local, Memory
from .ptx import Entry, Instruction, Unsupported, end_of
from .races import ATOMIC, Fault
from .registers import Active, Registers
from .shared_memory import Shared

LANES = 1 << 15  # threads that run together
Groups = list[tuple[int, Active]]  # where threads are, by number of a basic block


def launch(
    entry: Entry,
    grid: int,
    threads: int,
    arguments: Sequence[int],
    memory: Memory,
    some: range | None = None,
    shared: int = 0,
) -> None:
    """Run a kernel over `grid` blocks of `threads` threads, or `some` of the blocks. `arguments`
    are addresses and integers, in order; `shared` is the size in bytes of the dynamic shared array,
    where the kernel has one.
    """
    named = {name: value for (name, _), value in zip(entry.parameters, arguments, strict=True)}
    memory.begin()
    tables = {
        name: memory.give(np.frombuffer(data, np.uint8)) for name, data in entry.tables.items()
    }
    named.update(tables)
    if shared:
        entry = replace(entry, shared={name: (0, shared) for name in entry.shared})
    blocks = some or range(grid)
    together = max(1, min(len(blocks), LANES // threads))
    batch = _Batch(entry, together, threads, grid, named, memory)
    for first in blocks[::together]:
        if blocks.stop - first < together:
            batch = _Batch(entry, blocks.stop - first, threads, grid, named, memory)
        with np.errstate(all="ignore"):
            batch.run(first)
    for address in tables.values():
        memory.free(address)


class _Batch:
    """Blocks that run together."""

    def __init__(
        self,
        entry: Entry,
        blocks: int,
        threads: int,
        grid: int,
        arguments: dict[str, int],
        memory: Memory,
    ) -> None:
        self.entry, self.memory = entry, memory
        self.registers = Registers(entry, blocks, threads, grid, arguments)
        self.shared = Shared(blocks, end_of(entry.shared), threads, memory.order)
        instructions = Instructions(
            self.registers, memory, self.shared, Local(blocks * threads, end_of(entry.local))
        )
        self.steps: list[list[Step]] = []
        self.ends: list[Instruction | None] = []
        for block in entry.blocks:
            last = block[-1] if block and block[-1].ends else None
            self.steps.append([instructions.bind(i) for i in (block[:-1] if last else block)])
            self.ends.append(last)

    def run(self, first: int) -> None:
        """Runs the blocks from this number on."""
        self.shared.wait(self.registers.lanes, -1)
        self.memory.order.barrier()
        block, thread = np.divmod(self.registers.lanes, self.registers.threads)
        self.registers.special["%ctaid.x"][...] = first + block
        self.memory.order.threads = (first + block) * 2 * ATOMIC | thread
        running: Groups = [(0, slice(0, self.registers.count))]
        waiting: Groups = []
        while running or waiting:
            if not running:
                running = self.meet(waiting)
                waiting = []
            place = min(p for p, _ in running)
            here = [a for p, a in running if p == place]
            later = [g for g in running if g[0] != place]
            active = here[0] if len(here) == 1 else self.merged(here)
            limit = min((p for p, _ in later), default=len(self.steps))
            while True:
                if self.memory.counts:
                    warps = len(np.unique(self.registers.lanes[active] // WARP))
                    for i in self.entry.blocks[place]:
                        self.memory.statistics[".".join(("issued", i.name, *i.modifiers))] += warps
                for i, step in zip(self.entry.blocks[place], self.steps[place], strict=False):
                    try:
                        step(active)
                    except Fault as e:
                        raise self.fault(str(e), i) from None
                follow = self.follow(place, active, waiting)
                if len(follow) != 1 or follow[0][0] >= limit:
                    break
                place, active = follow[0]
            running = [*later, *follow]

    def merged(self, parts: list[Active]) -> Active:
        together = self.registers.active(
            np.sort(np.concatenate([self.registers.lanes[a] for a in parts]))
        )
        assert together is not None
        return together

    def follow(self, place: int, active: Active, waiting: Groups) -> Groups:
        """The successors of the threads at the end of a basic block."""
        if (end := self.ends[place]) is None:
            return [(place + 1, active)]
        leave, stay = self.divided(end, active)
        groups: Groups = [] if stay is None else [(place + 1, stay)]
        if leave is None:
            return groups
        if end.name == "bra":
            groups.append((self.entry.labels[end.operands[0]], leave))
        elif end.name in ("bar", "barrier"):
            if "sync" not in end.modifiers or end.operands[0] != "0":
                raise Unsupported(f"the instruction {end}")
            waiting.append((place + 1, leave))
        elif end.name == "trap":
            raise self.fault("a trap", end)
        return groups

    def divided(self, end: Instruction, active: Active) -> tuple[Active | None, Active | None]:
        """Split the threads at a predicate: those that execute the instruction, and those that go
        on.
        """
        if end.guard is None:
            return active, None
        name, negated = end.guard
        truth = self.registers.register(name)[active] ^ negated
        lanes = self.registers.lanes[active]
        return self.registers.active(lanes[truth]), self.registers.active(lanes[~truth])

    def fault(self, text: str, i: Instruction) -> Fault:
        return Fault(f"{self.entry.name}, line {i.line} of its PTX, {i}: {text}")

    def meet(self, waiting: Groups) -> Groups:
        """The threads after a barrier, each block's having come to the same one."""
        threads = self.registers.threads
        came = np.zeros(self.registers.count // threads, np.int64)
        for place, active in waiting:
            blocks, count = np.unique(self.registers.lanes[active] // threads, return_counts=True)
            if np.any(came[blocks]) or np.any(count != threads):
                text = f"{int(count.min())} of {threads} threads of a block come to a barrier"
                raise self.fault(text, self.entry.blocks[place - 1][-1])
            came[blocks] = count
        self.memory.order.barrier()
        return list(waiting)
