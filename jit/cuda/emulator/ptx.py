"""Parse PTX text to instructions in basic blocks, without knowledge of their meaning."""

import re
from dataclasses import dataclass, field
from functools import lru_cache


class Unsupported(Exception):
    """PTX that the emulator does not implement."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """`@guard name.modifiers operands`: `guard` is a register and whether it is negated."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    guard: tuple[str, bool] | None = None
    line: int = field(default=0, compare=False)  # of the module

    @property
    def type(self) -> str:
        return self.modifiers[-1] if self.modifiers else ""

    @property
    def ends(self) -> bool:
        """Test whether the instruction ends a basic block."""
        return self.name in ENDS and "warp" not in self.modifiers

    def __str__(self) -> str:
        guard = ""
        if self.guard:
            register, negated = self.guard
            guard = f"@!{register} " if negated else f"@{register} "
        return f"{guard}{'.'.join((self.name, *self.modifiers))} {', '.join(self.operands)}"


@dataclass
class Entry:
    """One kernel: parameters with types, registers by prefix, variables in shared, local and global
    memory, and its code.
    """

    name: str
    parameters: list[tuple[str, str]]
    registers: dict[str, str] = field(default_factory=dict)
    shared: dict[str, tuple[int, int]] = field(default_factory=dict)  # offset and size
    local: dict[str, tuple[int, int]] = field(default_factory=dict)
    tables: dict[str, bytes] = field(default_factory=dict)  # of the module, in global memory
    # basic blocks: a branch, a barrier or a return can only be the last instruction
    blocks: list[list[Instruction]] = field(default_factory=lambda: [[]])
    labels: dict[str, int] = field(default_factory=dict)


def end_of(variables: dict[str, tuple[int, int]]) -> int:
    return max((offset + size for offset, size in variables.values()), default=0)


ENDS = {"bra", "ret", "exit", "bar", "barrier", "trap"}
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{", re.S)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s[^,]*?\s)?([\w$]+)")
_VARIABLE = re.compile(
    r"\.(shared|local)\s+\.align\s+(\d+)\s+\.[a-z](\d+)\s+([\w$]+)(?:\[(\d+)\])?"
)
_TABLE = re.compile(
    r"\.global\s+\.align\s+\d+\s+\.[a-z](\d+)\s+([\w$]+)\[(\d+)\]\s*=\s*\{([^}]*)\};"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)")
_LABEL = re.compile(r"([\w$]+):\s*")
_GUARD = re.compile(r"@(!?)(%\w+)\s+(.*)", re.S)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
_BRACE = re.compile("[{}]")
_GROUP = "{} "  # braces of inline assembly only group


def parse(text: str) -> dict[str, Entry]:
    """The kernels of a PTX module, by name."""
    text = re.sub(r"//[^\n]*", "", text)
    tables = {
        name: _bytes(numbers, _BYTES[bits], int(count))
        for bits, name, count, numbers in _TABLE.findall(text)
    }
    text = _TABLE.sub(lambda match: "\n" * match[0].count("\n"), text)
    if re.search(r"\.(global|const)\s+\.align", text):
        raise Unsupported("variables in global memory")
    outside: dict[str, tuple[int, int]] = {}
    entries: dict[str, Entry] = {}
    position = 0
    for match in _ENTRY.finditer(text):
        _variables(text[position : match.start()], "shared", outside)
        body, position = _body(text, match.end())
        entry = Entry(match[1], [(name, type) for type, name in _PARAMETER.findall(match[2])])
        entry.shared.update(outside)
        entry.tables.update(tables)
        _fill(entry, body, 1 + text.count("\n", 0, match.end()))
        entries[entry.name] = entry
    return entries


@lru_cache(32)  # most kernels have the same
def _bytes(numbers: str, width: int, count: int) -> bytes:
    """`count` integers of a width as bytes; unlisted ones are zero."""
    listed = [
        (int(n, 0) & (1 << 8 * width) - 1).to_bytes(width, "little") for n in numbers.split(",")
    ]
    return b"".join(listed).ljust(count * width, b"\0")


def _body(text: str, start: int) -> tuple[str, int]:
    """The text between the brace before `start` and the matching one."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[start : brace.start()], brace.end()
    raise Unsupported("a kernel without its end")


def _variables(text: str, space: str, variables: dict[str, tuple[int, int]]) -> None:
    for where, align, bits, name, count in _VARIABLE.findall(text):
        if where == space:
            variables[name] = (
                -(-end_of(variables) // int(align)) * int(align),
                _BYTES[bits] * int(count or 1),
            )


def _fill(entry: Entry, body: str, line: int) -> None:
    _variables(body, "shared", entry.shared)
    _variables(body, "local", entry.local)
    for piece in body.split(";"):
        statement = " ".join(piece.split()).lstrip(_GROUP)
        last = line + piece.rstrip().count("\n")
        line += piece.count("\n")
        while label := _LABEL.match(statement):
            entry.blocks += [[]] if entry.blocks[-1] else []
            entry.labels[label[1]] = len(entry.blocks) - 1
            statement = statement[label.end() :].lstrip(_GROUP)
        if declared := _REGISTERS.match(statement):
            for name in declared[2].split(","):
                entry.registers[re.sub(r"<\d+>", "", name.strip())] = declared[1]
        elif statement and not statement.startswith("."):
            entry.blocks[-1].append(instruction := _instruction(statement, last))
            entry.blocks += [[]] if instruction.ends else []
    entry.blocks.append([Instruction("ret", (), ())])


def _instruction(statement: str, line: int) -> Instruction:
    guard = None
    if match := _GUARD.match(statement):
        guard = (match[2], match[1] == "!")
        statement = match[3]
    opcode, _, rest = statement.partition(" ")
    name, *modifiers = opcode.split(".")
    operands = tuple(o.strip() for o in _OPERAND.findall(rest))
    return Instruction(name, tuple(m for m in modifiers if m), operands, guard, line)
