"""Explore all interleavings of threads that execute functions of a module of LLVM IR, on shared
words.

Threads execute the text of the module itself: each access of a word is a step, and the code between
two of them is part of the first. Words are globals, futexes are words too: a thread that waits
sleeps if the word has the value that it gives, until it is woken, or without a cause. A store that
is neither seq_cst nor release may become visible later, and after later ones to other words: each
thread has a buffer of such stores, which a release (a store, or an exchange) leaves empty (a model
may do without: then all stores are visible at once). Reads are not reordered.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

Locals = dict[str, int | str]
Memory = tuple[int | str, ...]
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "udiv": lambda a, b: a // b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b,
    "xchg": lambda a, b: b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
}
_LINES = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "phi": r"%(\S+) = phi \S+ (.+)",
        "load": r"%(\S+) = load (?:atomic )?(\w+), ptr (\S+?)(?:,.*| "
        r"(?:monotonic|acquire|seq_cst).*)?",
        "store": r"store (?:atomic )?(\w+) (\S+), ptr (\S+?)(?:,.*)?(?: "
        r"(monotonic|release|seq_cst), .*)?",
        "exchange": r"%(\S+) = cmpxchg ptr (\S+), (\w+) (\S+), \w+ (\S+) (\w+) \w+",
        "update": r"%(\S+) = atomicrmw (\w+) ptr (\S+), (\w+) (\S+) (\w+)",
        "copy": r"%(\S+) = (?:extractvalue \{.*\}|zext \w+) (\S+?)(?:, 0| to (\w+))",
        "trunc": r"%(\S+) = trunc \w+ (\S+) to (\w+)",
        "select": r"%(\S+) = select i1 (\S+), \w+ (\S+), \w+ (\S+)",
        "operation": r"%(\S+) = (?:icmp )?(\w+) (\w+) (\S+), (\S+)",
        "jump": r"br label %(\S+)",
        "branch": r"br i1 (\S+), label %(\S+), label %(\S+)",
        "return": r"ret (?:void|\w+ (\S+))",
        "call": r"(?:%(\S+) = )?call \w+ ([@%]\w+)\((.*)\)",
    }.items()
}


class Violation(AssertionError):
    """A property that does not hold, and the steps that lead there."""


class Frame(NamedTuple):
    """A call: the next line, and the values that later lines read."""

    function: str
    block: str
    line: int
    values: tuple[tuple[str, int | str], ...]


class Pending(NamedTuple):
    """A store that other threads do not see yet."""

    word: int
    value: int | str
    is_release: bool


class Thread(NamedTuple):
    """A thread: its calls, the innermost last, its stores that are not visible, and the futex on
    which it sleeps.
    """

    name: str
    frames: tuple[Frame, ...]
    pending: tuple[Pending, ...] = ()
    asleep: str = ""
    expected: int = 0  # the value of the futex


class Step(NamedTuple):
    """A step of a thread: what it does, the thread and the words after it, and the sleepers that it
    wakes.
    """

    text: str
    thread: Thread
    memory: Memory
    wakes: tuple[str, int] = ("", 0)
    is_spurious: bool = False


class Function:
    """A parsed function: its parameters, and its blocks of lines."""

    def __init__(self, parameters: list[str], body: str) -> None:
        self.parameters = parameters
        self.blocks: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        lines = self.blocks["entry"] = []
        for text in body.splitlines():
            line = text.partition(";")[0].strip()
            if line.endswith(":"):
                lines = self.blocks[line[:-1]] = []
            elif line:
                lines.append(_parsed(line))

    @cached_property
    def needed(self) -> dict[tuple[str, int], frozenset[str]]:
        """The values that are read from a line on: the others are forgotten, or equal states would
        differ.
        """
        found: dict[tuple[str, int], frozenset[str]] = {}
        before: dict[tuple[str, int], frozenset[str]] | None = None
        while found != before:
            before = dict(found)
            for name, lines in self.blocks.items():
                read: frozenset[str] = frozenset()
                for n in range(len(lines) - 1, -1, -1):
                    kind, parts = lines[n]
                    if kind in ("jump", "branch"):
                        for target in parts[-1:] if kind == "jump" else parts[1:]:
                            read |= self._through(name, target, found)
                    if kind in _RESULTS and parts[0]:
                        read -= {parts[0]}
                    if kind != "phi":
                        used = parts[1:] if kind in _RESULTS else parts
                        read |= {v for part in used for v in re.findall(r"%([\w.]+)", part or "")}
                    found[name, n] = read
        return found

    def _through(
        self, origin: str, target: str, found: Mapping[tuple[str, int], frozenset[str]]
    ) -> frozenset[str]:
        """The values that are read after a branch, those of phis among them."""
        phis = [parts for kind, parts in self.blocks[target] if kind == "phi"]
        read = found.get((target, len(phis)), frozenset()) - {name for name, _ in phis}
        return read | {v[1:] for _, pairs in phis if (v := _incoming(pairs, origin))[0] == "%"}


_RESULTS = ("phi", "load", "exchange", "update", "copy", "trunc", "select", "operation", "call")


def _parsed(line: str) -> tuple[str, tuple[str, ...]]:
    for kind, pattern in _LINES.items():
        if match := pattern.fullmatch(line):
            return kind, match.groups()
    return "unknown", (line,)


def _incoming(pairs: str, origin: str) -> str:
    (value,) = re.findall(rf"\[ (\S+), %{re.escape(origin)} \]", pairs)
    return value


class Model:
    """Threads that execute functions of a module. `constants` are globals whose values the model
    gives, `calls` functions that it replaces by values, and `words` further words; stores are
    delayed if it is weak. Subclasses define other functions, in `outside`.
    """

    def __init__(
        self,
        text: str,
        constants: Mapping[str, int],
        calls: Mapping[str, Callable[[Thread], int]],
        words: Mapping[str, int],
        is_weak: bool = True,
    ) -> None:
        self.constants, self.calls, self.is_weak = constants, calls, is_weak
        text = re.sub(r"\(\n\s*([^()]*?)\n\s*\)", r"(\1)", text)  # a call a line
        initial = {
            name: 0 if value in ("null", "zeroinitializer") else int(value)
            for name, value in re.findall(
                r"^@(\w+) = (?:internal )?global (?:\[.*?\]|\w+) (\S+)", text, re.M
            )
        }
        initial.update(words)
        self.words = {name: n for n, name in enumerate(initial)}
        self.memory: Memory = tuple(initial.values())
        self.functions = {
            name: Function(re.findall(r"%(\w+)", parameters), body)
            for name, parameters, body in re.findall(
                r"^define [^\n]*?@(\w+)\((.*?)\)[^\n]*\{\n(.*?)^\}", text, re.M | re.S
            )
        }

    def start(self, name: str, function: str, *arguments: int) -> Thread:
        """A thread that will call a function."""
        return self.settle(Thread(name, (self.enter(function, list(arguments)),)))

    def enter(self, name: str, arguments: Sequence[int | str]) -> Frame:
        values = dict(zip(self.functions[name].parameters, arguments, strict=True))
        return self.frame(name, "entry", 0, values)

    def frame(self, function: str, block: str, line: int, values: Locals) -> Frame:
        needed = self.functions[function].needed[block, line]
        return Frame(
            function, block, line, tuple(sorted((k, v) for k, v in values.items() if k in needed))
        )

    # local lines

    def settle(self, thread: Thread) -> Thread:
        """Execute lines up to the next access of a word."""
        while thread.frames:
            *outer, frame = thread.frames
            kind, parts = self.functions[frame.function].blocks[frame.block][frame.line]
            values: Locals = dict(frame.values)
            if kind == "return":
                result = self.value(parts[0], values) if parts[0] else 0
                thread = thread._replace(frames=tuple(outer))
                if outer:
                    thread = self.finish(thread, result)
                continue
            if kind in ("jump", "branch"):
                target = parts[0]
                if kind == "branch":
                    target = parts[1 if self.value(parts[0], values) else 2]
                following = self.jump(frame, target, values)
                thread = thread._replace(frames=(*outer, following))
                continue
            if kind == "call" and parts[1].startswith("@"):
                name = parts[1][1:]
                if name in self.calls:
                    thread = self.finish(thread, self.calls[name](thread))
                    continue
                if name in self.functions:
                    called = self.enter(name, self.arguments(parts[2], values))
                    thread = thread._replace(frames=(*thread.frames, called))
                    continue
            result_of = self.local(kind, parts, values)
            if result_of is None:
                return thread
            thread = self.finish(thread, result_of)
        return thread

    def local(self, kind: str, parts: tuple[str, ...], values: Locals) -> int | str | None:
        """The result of a line that accesses no word."""
        if kind == "load" and parts[2].removeprefix("@") in self.constants:
            return self.constants[parts[2][1:]]
        if kind == "copy":
            return self.value(parts[1], values)
        if kind == "trunc":
            return self.number(parts[1], values) % 2 ** int(parts[2][1:])
        if kind == "select":
            return self.value(parts[2 if self.value(parts[1], values) else 3], values)
        if kind == "operation":
            _, opcode, type, a, b = parts
            return _computed(opcode, type, self.number(a, values), self.number(b, values))
        return None

    def finish(self, thread: Thread, result: int | str) -> Thread:
        """Go on after the current line, which has a result."""
        *outer, frame = thread.frames
        kind, parts = self.functions[frame.function].blocks[frame.block][frame.line]
        values: Locals = dict(frame.values)
        if kind in _RESULTS and parts[0]:
            values[parts[0]] = result
        following = self.frame(frame.function, frame.block, frame.line + 1, values)
        return thread._replace(frames=(*outer, following))

    def jump(self, frame: Frame, target: str, values: Locals) -> Frame:
        phis = [p for kind, p in self.functions[frame.function].blocks[target] if kind == "phi"]
        new = {name: self.value(_incoming(pairs, frame.block), values) for name, pairs in phis}
        return self.frame(frame.function, target, len(phis), {**values, **new})

    def value(self, text: str, values: Locals) -> int | str:
        if text.startswith("%"):
            return values[text[1:]]
        return text if text.startswith("@") else 0 if text == "null" else int(text)

    def number(self, text: str, values: Locals) -> int:
        found = self.value(text, values)
        assert isinstance(found, int), text
        return found

    def arguments(self, text: str, values: Locals) -> list[int | str]:
        return [self.value(part.split()[-1], values) for part in text.split(", ") if part]

    # steps

    def steps(self, thread: Thread, memory: Memory) -> Iterator[Step]:
        """The next steps of a thread, one of which it takes."""
        for n, store in enumerate(thread.pending):
            if not any(p.word == store.word or store.is_release for p in thread.pending[:n]):
                rest = thread.pending[:n] + thread.pending[n + 1 :]
                text = f"the store to @{list(self.words)[store.word]} becomes visible"
                yield Step(
                    text, thread._replace(pending=rest), put(memory, store.word, store.value)
                )
        if thread.asleep:
            yield Step("wakes up without a cause", self.woken(thread), memory, is_spurious=True)
        elif thread.frames:
            frame = thread.frames[-1]
            kind, parts = self.functions[frame.function].blocks[frame.block][frame.line]
            text = f"{frame.function}: {kind} {' '.join(p for p in parts if p)}"
            for step in self.access(kind, parts, thread, memory):
                yield step._replace(text=text)

    def access(
        self, kind: str, parts: tuple[str, ...], thread: Thread, memory: Memory
    ) -> Iterator[Step]:
        values: Locals = dict(thread.frames[-1].values)
        if kind == "load":
            word = self.words[parts[2][1:]]
            seen = [p.value for p in thread.pending if p.word == word]
            yield self.after(thread, memory, seen[-1] if seen else memory[word])
        elif kind == "store":
            _, value, place, ordering = parts
            word, number = self.words[place[1:]], self.value(value, values)
            if ordering == "seq_cst":
                thread, memory = self.release(thread, memory)
                yield self.after(thread, put(memory, word, number), 0)
            else:
                yield self.stored(thread, memory, [word], number, ordering == "release")
        elif kind in ("update", "exchange"):
            yield self.exchanged(kind, parts, thread, memory, values)
        else:
            assert kind == "call", (kind, parts)
            yield from self.outside(parts[1][1:], self.arguments(parts[2], values), thread, memory)

    def exchanged(
        self, kind: str, parts: tuple[str, ...], thread: Thread, memory: Memory, values: Locals
    ) -> Step:
        """An atomic exchange. One that is a release follows the thread's stores; all follow those
        to the same word.
        """
        place = parts[2] if kind == "update" else parts[1]
        word, ordering = self.words[place[1:]], parts[5]
        if ordering in ("release", "acq_rel", "seq_cst"):
            thread, memory = self.release(thread, memory)
        for p in thread.pending:
            memory = put(memory, word, p.value) if p.word == word else memory
        thread = thread._replace(pending=tuple([p for p in thread.pending if p.word != word]))
        old = memory[word]
        if kind == "update":
            assert isinstance(old, int)
            new = _computed(parts[1], parts[3], old, self.number(parts[4], values))
        else:
            new = self.number(parts[4], values) if old == self.value(parts[3], values) else old
        return self.after(thread, put(memory, word, new), old)

    def stored(
        self,
        thread: Thread,
        memory: Memory,
        words: Sequence[int],
        value: int | str,
        is_release: bool = False,
    ) -> Step:
        """Stores of the same value, which other threads may see later."""
        pending = tuple([Pending(word, value, is_release) for word in words])
        thread = thread._replace(pending=(*thread.pending, *pending))
        if not self.is_weak:
            thread, memory = self.release(thread, memory)
        return self.after(thread, memory, 0)

    def release(self, thread: Thread, memory: Memory) -> tuple[Thread, Memory]:
        for store in thread.pending:
            memory = put(memory, store.word, store.value)
        return thread._replace(pending=()), memory

    def after(
        self, thread: Thread, memory: Memory, result: int | str, **effects: tuple[str, int]
    ) -> Step:
        return Step("", self.settle(self.finish(thread, result)), memory, **effects)

    def woken(self, thread: Thread) -> Thread:
        return self.settle(self.finish(thread._replace(asleep="", expected=0), 0))

    def outside(
        self, name: str, arguments: list[int | str], thread: Thread, memory: Memory
    ) -> Iterator[Step]:
        """The steps of a call of a function that is not in the module."""
        thread, memory = self.release(thread, memory)
        if name == "futex_wait":
            word, expected = str(arguments[0])[1:], arguments[1]
            now = memory[self.words[word]]
            assert isinstance(now, int) and isinstance(expected, int)
            if now % 2**32 == expected:
                yield Step("", thread._replace(asleep=word, expected=expected), memory)
            else:
                yield self.after(thread, memory, 0)
        elif name == "futex_wake":
            count = arguments[1]
            assert isinstance(count, int)
            yield self.after(thread, memory, 0, wakes=(str(arguments[0])[1:], count))
        else:
            raise NotImplementedError(name)


def _computed(opcode: str, type: str, a: int, b: int) -> int:
    return int(_ARITHMETIC[opcode](a, b)) % 2 ** int(type[1:])


def put(memory: Memory, word: int, value: int | str) -> Memory:
    """The words after a store."""
    return (*memory[:word], value, *memory[word + 1 :])


class Search:
    """All states that threads reach, of which threads of one name are told apart by their states
    alone.

    Raises Violation where a step does, and for a state from which no final one can be reached,
    unless threads that sleep wake up without a cause: a deadlock, a lost wake-up, or threads that
    spin forever.
    """

    def __init__(
        self,
        model: Model,
        threads: Sequence[Thread],
        is_final: Callable[[Memory, Sequence[Thread]], bool],
    ) -> None:
        self.model, self.is_final = model, is_final
        self.threads: list[Thread] = []
        self.memories: list[Memory] = []
        self.numbers: dict[Thread | Memory, int] = {}
        self.known: dict[tuple[int, int], list[tuple[str, int, int, tuple[str, int], bool]]] = {}
        self.states: dict[tuple[int, ...], int] = {}
        self.parents: list[tuple[int, str]] = []
        first = (self.number(model.memory), *sorted(self.number(t) for t in threads))
        self.states[first] = 0
        self.parents.append((-1, ""))
        self.explore(first)

    def number(self, item: Thread | Memory) -> int:
        """The number of a thread's state or of the words', by which states are short."""
        if (number := self.numbers.get(item)) is None:
            items: list[Any] = self.threads if isinstance(item, Thread) else self.memories
            number = self.numbers[item] = len(items)
            items.append(item)
        return number

    def steps(self, thread: int, memory: int) -> list[tuple[str, int, int, tuple[str, int], bool]]:
        if (steps := self.known.get((thread, memory))) is None:
            steps = self.known[thread, memory] = [
                (s.text, self.number(s.thread), self.number(s.memory), s.wakes, s.is_spurious)
                for s in self.model.steps(self.threads[thread], self.memories[memory])
            ]
        return steps

    def explore(self, first: tuple[int, ...]) -> None:
        before: list[list[int]] = [
            []
        ]  # the states that lead to each, other than by wake-ups without a cause
        final: list[int] = []
        todo = [first]
        while todo:
            state = todo.pop()
            number = self.states[state]
            memory, *threads = state
            if self.is_final(self.memories[memory], [self.threads[t] for t in threads]):
                final.append(number)
            for n, thread in enumerate(threads):
                try:
                    steps = self.steps(thread, memory)
                except Violation as violation:
                    name = self.threads[thread].name
                    raise Violation(f"{violation}\n{self.trace(number)}\n{name}") from None
                others = threads[:n] + threads[n + 1 :]
                for text, after, words, wakes, is_spurious in steps:
                    for rest in self.woken(others, wakes):
                        following = (words, *sorted([after, *rest]))
                        if (found := self.states.get(following)) is None:
                            found = self.states[following] = len(before)
                            before.append([])
                            self.parents.append((number, f"{self.threads[thread].name}: {text}"))
                            todo.append(following)
                        if not is_spurious:
                            before[found].append(number)
        self.reached_final = len(final)
        good = set(final)
        while final:
            for number in before[final.pop()]:
                if number not in good:
                    good.add(number)
                    final.append(number)
        for number in range(len(before)):
            if number not in good:
                raise Violation(f"the threads never end\n{self.trace(number)}")

    def woken(self, threads: list[int], wakes: tuple[str, int]) -> Iterator[list[int]]:
        """The other threads after a wake of one of them, or of some that sleep on a word."""
        word, count = wakes
        asleep = [n for n, t in enumerate(threads) if count and self.threads[t].asleep == word]
        for chosen in combinations(asleep, min(count, len(asleep))):
            yield [
                self.number(self.model.woken(self.threads[t])) if n in chosen else t
                for n, t in enumerate(threads)
            ]

    def trace(self, number: int) -> str:
        lines = []
        while number >= 0:
            number, text = self.parents[number]
            lines.append(text)
        return "\n".join(reversed(lines))
