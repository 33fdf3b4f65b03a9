"""Find what may be poison or undefined behavior in emitted LLVM IR: a table of instructions, and
how each has to be guarded.

LLVM's own proofs are not used. A value is followed to its definition inside of its function. What
the table does not know is reported, so that a new kind of instruction needs a row. DECLARED has
what holds for reasons that no text shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from cvm.jit.llvm.native_code import DEFINITIONS

DECLARED = {
    "inbounds": "the accesses of legal kernels are inside of their arrays "
    "(lowering/analysis/verify_kernel.py)",
    "nsw": "sizes and indices are below 2^40 (dialect/types/tensor_types.py); sums of data have "
    "no flag",
    "noalias": "an array that a kernel writes aliases none of its other arrays; iterations of "
    "parallel loops write disjoint elements",
    "align": "calls copy arrays that are not aligned to their elements (jit/calls/arguments.py)",
    "nontemporal": "a test of the address stands before such "
    "stores (jit/llvm/emit_nontemporal_stores.py)",
    "llvm.lrint": "an operand beyond i32 gives any integer, which "
    "is not poison; formulas use it inside "
    "of i32",
}
# of the files of IR: a pattern of what is found there, and why it holds
HAND_WRITTEN = {
    r"call .*@(Py\w+|pthread_\w+|sched_\w+|clock_gettime|syscall|empty_array|zeros|scalar)\(": ""
    "functions of CPython, NumPy and the C library, called as their headers declare",
    r"%(function|program)\(.*a call of an address": "the code of a kernel, whose address the table "
    "or the caller has",
    r"atomicrmw|cmpxchg": "words that threads share, by the protocol of "
    "thread_pool.ll, which test_thread_pool_protocol.py executes",
    r"@planned: .*: a divisor": "sizes, and values between -2^62 and 2^62 alone",
    r"@measure: .*, %shift": "the bits of an element's size (jit/calls/kernel_table.py)",
    r"inttoptr": "an address that a table of a call holds as a number (jit/calls/kernel_table.py)",
    r"@work: .* udiv i64 %left, %parts": "twice the number of threads",
    r"@(significand|rounded|\w+_of_doubles): .*: a (count|divisor)": "numbers of doubles' parts, "
    "which test_ir_of_doubles.py follows for random and edge values",
}
PLAIN = {
    *(
        "add",
        "sub",
        "mul",
        "and",
        "or",
        "xor",
        "fadd",
        "fsub",
        "fmul",
        "fdiv",
        "fneg",
        "icmp",
        "fcmp",
    ),
    *(
        "select",
        "zext",
        "sext",
        "trunc",
        "fpext",
        "fptrunc",
        "sitofp",
        "uitofp",
        "bitcast",
        "ptrtoint",
        "extractvalue",
    ),
    *("phi", "br", "ret", "switch", "alloca", "fence"),
}
FAST = re.compile(
    r"(?<![%\w.])(fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|exact|disjoint|nneg|undef|unreachable|volatile)\b"
)
CALLS = re.compile(
    r"llvm\.(smul\.with\.overflow|smax|smin|umax|umin|abs|ctlz|fabs|sqrt|floor|ceil|trunc|rint|fma|maximum|minimum|lrint|prefetch|fptosi\.sat|"
    r"fptoui\.sat|vector\.reduce\.(and|or)|x86\.[\w.]+|aarch64\.(neon\.[su]+dot[\w.]*|hint|[gs]et\.fpcr))(\.|$)"
)
LINE = re.compile(r"(?:(%[\w.]+) = )?(?:tail )?(\w+)(.*)")
VECTOR = re.compile(r"<(\d+) x (i\d+|half|float|double|ptr)>")
OPERAND = r"(%[\w.]+|-?\d+|splat \(i\d+ -?\d+\)|zeroinitializer)"


@dataclass
class Function:
    """A definition: its parameters, and its instructions by their results."""

    name: str
    head: str
    lines: list[str] = field(default_factory=list)
    made: dict[str, tuple[str, str]] = field(default_factory=dict)


def plain(text: str) -> str:
    """IR as the compiler prints it: without comments, and each instruction on a line of its own."""
    text = re.sub(r'("[^"\n]*")|;[^\n]*', lambda m: m[1] or "", text)
    lines: list[str] = []
    depth = 0
    for line in text.splitlines():
        if depth:
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
        inside = re.sub(r'c?"[^"]*"', "", line)
        depth += sum(inside.count(c) for c in "([") - sum(inside.count(c) for c in ")]")
    return "\n".join(lines)


def functions(text: str) -> Iterator[Function]:
    current: Function | None = None
    for line in plain(text).splitlines():
        if found := re.match(r"define .*?@([\w.]+)\((.*)\)", line):
            current = Function(found[1], found[2])
        elif line.startswith("}") and current is not None:
            yield current
            current = None
        elif current is not None and (found := LINE.fullmatch(line.split(" ;")[0].strip())):
            if line.strip().endswith(":"):
                continue
            result, opcode, rest = found.groups()
            current.lines.append(line.strip())
            if result:
                current.made[result] = opcode, rest


def violations(text: str) -> list[str]:
    """The instructions of a module that no row of the table allows, with the reason of each."""
    defined = {f.name for f in functions(text)} | {"parallel", "malloc", "free"}
    return [
        f"@{f.name}: {line}: {why}"
        for f in functions(text)
        for line, why in _Scan(f, defined).found()
    ]


class _Scan:
    def __init__(self, f: Function, defined: set[str]) -> None:
        self.f, self.defined = f, defined
        self.partial: dict[str, set[int]] = {}  # vectors of which some lanes are poison: the others

    def found(self) -> Iterator[tuple[str, str]]:
        yield from self.parameters()
        for line in self.f.lines:
            result, opcode, rest = LINE.fullmatch(line).groups()  # type: ignore[union-attr]
            if FAST.search(line):
                yield line, "a flag that makes values poison, or code without behavior"
            row = getattr(self, f"of_{opcode}", None)
            if row is not None:
                if why := row(result, rest, line):
                    yield line, why
            elif opcode not in PLAIN:
                yield line, "an instruction that the table does not know"
            if re.search(r"\b(nsw|nuw)\b", rest) and (why := self.overflow(opcode, rest)):
                yield line, why
            if opcode not in ("shufflevector", "insertelement"):
                if poisoned := [n for n in re.findall(r"%[\w.]+", rest) if n in self.partial]:
                    yield line, f"lanes of {poisoned[0]} are poison"
                if re.search(r"\bpoison\b", rest):
                    yield line, "poison as an operand"

    def parameters(self) -> Iterator[tuple[str, str]]:
        for parameter in self.f.head.split(", "):
            if "status" in parameter and "noalias" in parameter:
                yield parameter, "other threads write the status"
            name = parameter.split()[-1] if parameter else ""
            if "readonly" in parameter:
                for line in self.f.lines:
                    if line.startswith("store") and self.root(line) == name:
                        yield line, f"{name} is readonly"

    def root(self, line: str) -> str:
        """The pointer that an address begins with."""
        name = re.findall(r"ptr (%[\w.]+)", line)[-1]
        while name in self.f.made and self.f.made[name][0] == "getelementptr":
            name = re.findall(r"ptr (%[\w.]+)", self.f.made[name][1])[-1]
        return name

    # rows

    def of_call(self, result: str, rest: str, line: str) -> str:
        callee = re.search(r"@([\w.]+)\((.*)\)", rest)
        if callee is None:
            return "a call of an address"
        name = callee[1]
        if not (name in self.defined or name.partition(".")[0] in DEFINITIONS or CALLS.match(name)):
            return "a call that the table does not know"
        if name.startswith(("llvm.abs", "llvm.ctlz")) and "i1 false" not in callee[2]:
            return "poison for some operand"
        pointers = re.findall(r"ptr (%[\w.]+)", callee[2])
        if re.match(r"kernel_\d+", name) and len({*pointers}) < len(pointers):
            return "two arrays of a kernel are one, and both are noalias"
        return ""

    def of_fptosi(self, result: str, rest: str, line: str) -> str:
        """Clamped, with NaN as a number: select(x < most, select(x > least, select(ordered, x, 0),
        least), most).
        """
        name = re.findall(r"%[\w.]+", rest)[0]
        for test in ("olt", "ogt", "ord"):
            opcode, body = self.f.made.get(name, ("", ""))
            operands = re.findall(r"%[\w.]+", body)
            if opcode != "select" or len(operands) < 2:
                return "not guarded"
            if f" {test} " not in self.f.made.get(operands[0], ("", ""))[1]:
                return "not guarded"
            name = operands[1]
        return ""

    of_fptoui = of_fptosi

    def of_shl(self, result: str, rest: str, line: str) -> str:
        width, count = int(re.search(r"i(\d+)", rest)[1]), rest.rpartition(", ")[2]  # type: ignore[index]
        known = self.constant(count)
        if known is None and count in self.f.made and self.f.made[count][0] == "and":
            known = self.constant(self.f.made[count][1].rpartition(", ")[2])
        if known is None and self.chosen_below(count, width):
            return ""
        return (
            "" if known is not None and 0 <= known < width else "a count that may reach the width"
        )

    of_lshr = of_ashr = of_shl

    def chosen_below(self, name: str, width: int) -> bool:
        """Test for select(x < number, x, number), x as 64 bits without a sign."""
        opcode, body = self.f.made.get(name, ("", ""))
        found = re.fullmatch(rf" .* (%[\w.]+), .* (%[\w.]+), .*? {OPERAND}", body)
        if opcode != "select" or found is None:
            return False
        test = re.fullmatch(
            rf" ult (?:<\d+ x )?i64>? (%[\w.]+), {OPERAND}", self.f.made[found[1]][1]
        )
        if test is None or (last := self.constant(found[3])) is None:
            return False
        wide = self.f.made.get(test[1], ("", ""))
        same = test[1] == found[2] or (wide[0] in ("zext", "sext") and f" {found[2]} to" in wide[1])
        return same and (self.constant(test[2]) or width + 1) <= width and 0 <= last < width

    def of_udiv(self, result: str, rest: str, line: str) -> str:
        divisor = rest.rpartition(", ")[2]
        return "" if self.nonzero(divisor, 0) else "a divisor that may be 0"

    of_urem = of_udiv

    def of_sdiv(self, result: str, rest: str, line: str) -> str:
        """A divisor that is neither 0 nor -1, as the least integer divided by that overflows."""
        divisor = rest.rpartition(", ")[2]
        known = self.constant(divisor)
        if known is not None:
            return "" if known not in (0, -1) else "a divisor of 0 or -1"
        by_one = self.replaced(divisor, -1)
        if by_one is None:
            return "a divisor that may be -1"
        return "" if self.nonzero(by_one, 0) else "a divisor that may be 0"

    of_srem = of_sdiv

    def scalar(self, name: str) -> str:
        """The number that a vector has in every lane, if it is a broadcast of one."""
        opcode, body = self.f.made.get(name, ("", ""))
        if opcode == "shufflevector" and body.endswith("zeroinitializer"):
            opcode, body = self.f.made.get(re.findall(r"%[\w.]+", body)[0], ("", ""))
            if opcode == "insertelement" and body.endswith(" 0"):
                return re.findall(r"%[\w.]+", body)[-1]
        return name

    def replaced(self, name: str, number: int) -> str | None:
        """x where the value is select(x == number, 1, x)."""
        name = self.scalar(name)
        opcode, body = self.f.made.get(name, ("", ""))
        found = re.fullmatch(rf".* (%[\w.]+), .*? {OPERAND}, .*? (%[\w.]+)", body)
        if opcode != "select" or found is None or self.constant(found[2]) != 1:
            return None
        test, compared = self.f.made.get(found[1], ("", ""))
        parts = re.fullmatch(rf" eq .*? {OPERAND}, {OPERAND}", compared)
        if test != "icmp" or parts is None or parts[1] != found[3]:
            return None
        return found[3] if self.constant(parts[2]) == number else None

    def nonzero(self, name: str, depth: int) -> bool:
        known = self.constant(name)
        if known is not None:
            return known != 0
        name = self.scalar(name)
        if self.replaced(name, 0) is not None:
            return True
        opcode, body = self.f.made.get(name, ("", ""))
        if opcode == "select" and depth < 3:
            arms = re.findall(rf"(?:i\d+|<\d+ x i\d+>) {OPERAND}", body)[-2:]
            return len(arms) == 2 and all(self.nonzero(a, depth + 1) for a in arms)
        if opcode == "call" and ("llvm.smax" in body or "llvm.umax" in body):
            return any((self.constant(c) or 0) > 0 for c in re.findall(rf" {OPERAND}[,)]", body))
        return False

    def constant(self, text: str) -> int | None:
        found = re.fullmatch(r"(?:splat \(i\d+ )?(-?\d+)\)?", text)
        return 0 if text == "zeroinitializer" else int(found[1]) if found else None

    def of_getelementptr(self, result: str, rest: str, line: str) -> str:
        return "poison as an address" if "poison" in rest else ""

    def of_load(self, result: str, rest: str, line: str) -> str:
        if "ptr %status" in rest and "atomic" not in rest and "%status" in self.f.head:
            return "a race: other threads write the status"
        return self.alignment(rest)

    def of_store(self, result: str | None, rest: str, line: str) -> str:
        return self.alignment(rest)

    def alignment(self, rest: str) -> str:
        align = re.search(r"align (\d+)", rest)
        if align is None or "!nontemporal" in rest or "atomic" in rest:
            return ""
        scalar = re.search(r"\b(i\d+|half|float|double|ptr)\b", rest)[1]  # type: ignore[index]
        size = {"half": 2, "float": 4, "double": 8, "ptr": 8}.get(scalar) or int(scalar[1:]) // 8
        table = "@" in self.root_text(rest)
        return "" if int(align[1]) <= size or table else "aligned to more than an element"

    def root_text(self, rest: str) -> str:
        name = (re.findall(r"ptr ([%@][\w.]+)", rest) or [""])[-1]
        while name in self.f.made and self.f.made[name][0] == "getelementptr":
            name = re.findall(r"ptr ([%@][\w.]+)", self.f.made[name][1])[-1]
        return name

    def of_atomicrmw(self, result: str, rest: str, line: str) -> str:
        return "" if "umax ptr %status" in rest else "an atomic of something else than the status"

    def of_extractelement(self, result: str, rest: str, line: str) -> str:
        return self.lane(rest)

    def lane(self, rest: str) -> str:
        lanes, index = int(VECTOR.search(rest)[1]), self.constant(rest.split()[-1])  # type: ignore[index]
        return "" if index is not None and 0 <= index < lanes else "a lane that is not there"

    def of_insertelement(self, result: str, rest: str, line: str) -> str:
        lanes = int(VECTOR.search(rest)[1])  # type: ignore[index]
        known = self.known(rest.split(",")[0].split()[-1], lanes) | {int(rest.split()[-1])}
        self.note(result, known, lanes)
        return self.lane(rest)

    def of_shufflevector(self, result: str, rest: str, line: str) -> str:
        """Lanes of poison may be moved about, but no other instruction has them."""
        found = re.fullmatch(
            r" (<.*?>) (\S+|<.*>|splat \(.*?\)), \1 (.*?), <(\d+) x i32> (.*)", rest
        )
        if found is None:
            return "a shuffle that the table does not know"
        lanes = int(VECTOR.match(found[1])[1])  # type: ignore[index]
        count = int(found[4])
        picks = (
            ["0"] * count if found[5] == "zeroinitializer" else re.findall(r"i32 (\w+)", found[5])
        )
        if any(p != "poison" and not 0 <= int(p) < 2 * lanes for p in picks):
            return "a lane that is not there"
        first, second = self.known(found[2], lanes), self.known(found[3], lanes)
        there = first | {lanes + n for n in second}
        known = {n for n, p in enumerate(picks) if p != "poison" and int(p) in there}
        self.note(result, known, count)
        return ""

    def known(self, name: str, lanes: int) -> set[int]:
        return set() if name == "poison" else self.partial.get(name, {*range(lanes)})

    def note(self, result: str, known: set[int], lanes: int) -> None:
        if len(known) < lanes:
            self.partial[result] = known

    # flags

    def overflow(self, opcode: str, rest: str) -> str:
        """Sums of data have no flags: what they are computed of may be any number."""
        if "i64" not in rest or opcode not in ("add", "sub", "mul"):
            return "a flag on something else than index arithmetic"
        names = re.findall(r"%[\w.]+", rest)
        return "a flag on a sum of data" if any(self.is_data(n, 0) for n in names) else ""

    def is_data(self, name: str, depth: int) -> bool:
        """Test whether a value is of an array's elements, and not held inside of a range."""
        opcode, body = self.f.made.get(name, ("", ""))
        if opcode == "load":
            return "%sizes" not in self.root_text(body) and not self.root_text(body).startswith(
                "%v"
            )
        if opcode in ("", "phi", "ptrtoint", "urem", "and", "icmp", "fcmp", "getelementptr"):
            return False
        if opcode == "call" and "llvm.smin" in body:
            parts = re.findall(r"%[\w.]+", body)
            if any("llvm.smax" in self.f.made.get(p, ("", ""))[1] for p in parts):
                return False
        if opcode == "call" and "llvm.smax" in body:
            parts = re.findall(r"%[\w.]+", body)
            if any("llvm.smin" in self.f.made.get(p, ("", ""))[1] for p in parts):
                return False
        return depth < 12 and any(self.is_data(n, depth + 1) for n in re.findall(r"%[\w.]+", body))


def after_passes(text: str) -> list[str]:
    """Poison and undefined values that LLVM finds in a module, such as reads of what nothing has
    written; in blocks that nothing jumps to it may leave any.
    """
    wrong = re.compile(
        r"\bundef\b|store [^,]*\bpoison\b|ptr poison|\bbr i1 poison|\bret \S+ "
        r"poison|\bunreachable\b"
    )
    return [line.strip() for line in _reached(text) if wrong.search(line)]


def _reached(text: str) -> Iterator[str]:
    """The lines of a module without blocks that are jumped to under a constant condition only."""
    for part in re.split(r"^(?=define )", text, flags=re.MULTILINE):
        blocks: dict[str, list[str]] = {"": []}
        for line in part.splitlines():
            if label := re.match(r"([-\w.$]+):", line):
                blocks[label[1]] = []
            blocks[[*blocks][-1]].append(line)
        labels = [*blocks]
        reached, left = {""}, ["", *labels[1:2]]  # the second is the entry of a function
        while left:
            name = left.pop()
            reached.add(name)
            jumps = (line for line in blocks[name] if "label %" in line)
            for target in re.findall(r"label %([-\w.$]+)", " ".join(map(_taken, jumps))):
                if target not in reached:
                    left.append(target)
        yield from (line for name in labels if name in reached for line in blocks[name])


def _taken(jump: str) -> str:
    """A jump without the label that its constant condition rules out."""
    return re.sub(
        r"br i1 (true|false), (label %[-\w.$]+), (label %[-\w.$]+)",
        lambda m: m[2] if m[1] == "true" else m[3],
        jump,
    )
