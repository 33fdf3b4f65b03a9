"""Random Python functions of several statements that keep second names across changes in place, run
by NumPy and by cvm.

A function rebinds names and keeps them, changes arrays by operators in place, subscripts and `out`,
and makes views of views, of rank 0 to 3, in loops, tuples and dictionaries. It returns all its
names, so that each change shows everywhere.

python tests/support/aliasing_functions.py [--seed S] [--times N]    shows functions, and what becomes of them
"""

from __future__ import annotations

import argparse
import random
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

import cvm  # noqa: E402

SHAPES = ((), (), (), (3,), (4,), (1,), (2, 3), (3, 3), (4, 1), (2, 3, 2), (0, 3))
DTYPES = (np.int64, np.int64, np.int64, np.int64, np.float64, np.uint8)
MOST_ELEMENTS = 64  # of an array of a function
STATEMENTS = 18
OPERATORS = ("+", "-", "*", "&", "^", "+", "-")
ON_CPU = 8  # one of so many functions is compiled to machine code, too
TOO_LARGE = 2.0**40  # for floats, whose sums are exact below
CHANGED = 0.01  # of the changes of arguments, which cvm refuses, are kept
NAMES = "abcfghmnpqrsuvwyz"


class Loops:
    """The loops of cvm as NumPy's arrays are carried through them: each step has copies."""

    @staticmethod
    def fori_loop(lower: int, upper: int, body: Callable[[int, Any], Any], carry: Any) -> Any:
        _same_types(body(lower, _copies(carry)), carry)  # which is traced also for no steps
        for i in range(lower, upper):
            carry = _same_types(body(i, _copies(carry)), carry)
        return tuple(copied(x) for x in carry)

    @staticmethod
    def scan(body: Callable[[Any, Any], Any], carry: Any, xs: Any) -> Any:
        collected = []
        for x in xs:
            found, y = body(_copies(carry), x)
            carry = _same_types(found, carry)
            collected.append(copy(y))
        return tuple(copied(x) for x in carry), np.stack(collected)


def _copies(arrays: Any) -> Any:
    """Copies of carried values for a step: read-only arrays, and scalars."""
    found = tuple(copied(x) for x in arrays)
    for x in found:
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
    return found


def _same_types(found: Any, carried: Any) -> Any:
    for one, other in zip(found, carried, strict=True):
        if (one.shape, one.dtype, type(one)) != (other.shape, other.dtype, type(other)):
            raise TypeError("a loop leaves the types of what it carries as they are")
    return found


class Writer:
    """Writes statements, and keeps those that NumPy takes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        chance = self.random
        self.arguments = {
            f"x{n}": _array(chance, chance.choice(SHAPES)) for n in range(chance.choice((1, 2)))
        }
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self.count = 0
        for n, name in enumerate(self.arguments):
            how = chance.choice(("{0} + 0", "{0}.copy()", "np.zeros_like({0})", "{0} * 3", "{0}"))
            self._try(f"{NAMES[n]} = {how.format(name)}")
        for _ in range(chance.randrange(3, STATEMENTS)):
            any(self._try(self.statement()) for _ in range(4))
        kept = [n for n in self.scope if n in NAMES or n in self.containers()]
        self.lines.append(f"return {', '.join(kept)},")

    @property
    def text(self) -> str:
        return self.function(self.lines)

    def function(self, lines: list[str]) -> str:
        body = textwrap.indent("\n".join(lines), "    ")
        return f"def f({', '.join(self.arguments)}):\n{body}\n"

    def _try(self, lines: str) -> bool:
        """Keep statements unless NumPy refuses them, all before having run anew."""
        passed = {n: copied(x) for n, x in self.arguments.items()}
        for x in passed.values():
            if isinstance(x, np.ndarray):
                x.flags.writeable = self.random.random() < CHANGED
        scope: dict[str, Any] = {"np": np, "cvm": Loops, "copy": copy}
        exec(self.function([*self.lines, lines, "return locals()"]), scope)
        try:
            with np.errstate(all="ignore"):
                found = scope["f"](**passed)
        except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError):
            return False
        known = {n: x for n, x in found.items() if isinstance(x, (np.ndarray, np.generic))}
        if any(x.size > MOST_ELEMENTS or not _fits(x) for x in known.values()):
            return False
        self.lines.append(lines)
        self.scope = {n: x for n, x in found.items() if not callable(x)}
        return True

    def containers(self) -> list[str]:
        return [n for n, x in self.scope.items() if isinstance(x, (tuple, dict))]

    def arrays(self) -> list[str]:
        found = [n for n, x in self.scope.items() if isinstance(x, (np.ndarray, np.generic))]
        for name in self.containers():
            parts = self.scope[name]
            keys = parts if isinstance(parts, dict) else range(len(parts))
            found += [f"{name}[{k!r}]" for k in keys]
        return found

    def value(self, name: str) -> Any:
        return eval(name, {"np": np}, self.scope)

    def name(self) -> str:
        """A name to bind, most often a new one."""
        free = [n for n in NAMES if n not in self.scope]
        bound = [n for n in NAMES if n in self.scope]
        return self.random.choice(bound if bound and self.random.random() < 0.2 else free or bound)

    def changed(self) -> str:
        """An array or a scalar to change, most often one that has another name, or is a view of
        what has.
        """
        names = self.arrays()
        values = {n: self.value(n) for n in names}
        arguments = [values[n] for n in self.arguments]
        own = [n for n in names if not any(_shared(values[n], x) for x in arguments)]
        several = [
            n for n in own if any(_shared(values[n], x) for m, x in values.items() if m != n)
        ]
        return self.random.choice(
            several if several and self.random.random() < 0.8 else own or names
        )

    # statements

    def statement(self) -> str:
        kinds = (
            (self.binding, 5),
            (self.view, 8),
            (self.in_place, 12),
            (self.item, 6),
            (self.again, 4),
            (self.container, 4),
            (self.out, 2),
            (self.at, 1),
            (self.unrolled, 2),
            (self.loop, 2),
            (self.scan, 1),
        )
        return self.random.choices([k for k, _ in kinds], [w for _, w in kinds])[0]()

    def again(self) -> str:
        return f"{self.name()} = {self.random.choice(self.arrays())}"

    def binding(self) -> str:
        return f"{self.name()} = {self.expression()}"

    def view(self) -> str:
        return f"{self.name()} = {self.view_of(self.random.choice(self.arrays()))}"

    def in_place(self) -> str:
        name = self.changed()
        return f"{name} {self.random.choice(OPERATORS)}= {self.operand(self.value(name).shape)}"

    def item(self) -> str:
        name = self.changed()
        key = self.key(name, assigned=True)
        sign = "" if ">" in key else self.random.choice(("", "", *OPERATORS))
        try:
            shape = np.shape(self.value(f"{name}[{key}]"))
        except (IndexError, NameError, TypeError):
            shape = ()
        return f"{name}[{key}] {sign}= {self.operand(shape)}"

    def out(self) -> str:
        name = self.changed()
        shape = self.value(name).shape
        a, b = self.operand(shape), self.operand(shape)
        function = self.random.choice(("add", "multiply", "maximum"))
        target = self.random.choice((name, name, self.view_of(name)))
        bound = self.random.choice(("", f"{self.name()} = "))
        return f"{bound}np.{function}({a}, {b}, out={target})"

    def at(self) -> str:
        name = self.changed()
        return f"np.add.at({name}, [0, 0], {self.operand(())})"

    def container(self) -> str:
        chance, names = self.random, self.arrays()
        one, other = chance.choice(names), chance.choice(names)
        made = [x for x in ("d", "e", "t") if x in self.scope]
        texts = [
            f"d = {{'p': {one}, 'q': {other}}}",
            f"t = ({one}, {other})",
            f"t = ({self.view_of(one)}, {other})",
            f"{self.name()}, {self.name()} = {one}, {other}",
        ]
        if "d" in made:
            texts += [
                "e = dict(d)",
                "e = d",
                f"d['p'] = {self.expression()}",
                f"d = d | {{'q': {one}}}",
            ]
        if "t" in made:
            texts += [f"{self.name()}, {self.name()} = t", "t = t[::-1]"]
        return chance.choice(texts)

    def block(self, count: int) -> list[str]:
        """Statements of a body, which are simple ones."""
        kinds = (self.binding, self.view, self.in_place, self.in_place, self.item, self.again)
        return [self.random.choice(kinds)() for _ in range(count)]

    def unrolled(self) -> str:
        chance = self.random
        lines = self.block(chance.choice((1, 2, 3)))
        rows = [n for n in self.arrays() if np.ndim(self.value(n)) and len(self.value(n)) <= 4]
        if rows and chance.random() < 0.5:
            name = self.name()
            lines.append(f"{name} += {chance.choice((1, 2))}")
            head = f"for {name} in {chance.choice(rows)}:"
        else:
            head = f"for k in range({chance.choice((1, 2, 3))}):"
        return "\n".join([head, *(f"    {line}" for line in lines)])

    def body(self, carried: list[str], names: list[str], head: str, last: str) -> list[str]:
        """A function whose statements NumPy takes, of carried values; `last` is what it returns."""
        kept, outer = [head, f"    {', '.join(names)}, = carry"], dict(self.scope)
        self.scope |= {n: copied(self.value(c)) for n, c in zip(names, carried, strict=True)}
        types = {n: (x.shape, x.dtype, type(x)) for n, x in self.scope.items() if n in names}
        for _ in range(self.random.choice((1, 2, 3, 4))):
            line = self.random.choice((self.in_place, self.binding, self.view, self.again))()
            trial = {n: copied(x) for n, x in self.scope.items()}
            target = line.split()[0].split("[")[0]
            if target in outer and target not in names and "= " in line and line.split()[1] != "=":
                continue  # of the function around it
            try:
                with np.errstate(all="ignore"):
                    exec(line, {"np": np}, trial)
            except Exception:
                continue
            kept.append(f"    {line}")
            self.scope = trial
        results = [
            n if (x := self.scope[n], (x.shape, x.dtype, type(x)) == types[n])[1] else f"carry[{k}]"
            for k, n in enumerate(names)
        ]
        self.scope = outer
        return [*kept, f"    return {last.format(', '.join(results) + ',')}"]

    def loop(self) -> str:
        chance = self.random
        self.count += 1
        carried = [chance.choice(self.arrays()) for _ in range(chance.choice((1, 2)))]
        names = [f"c{n}" for n in range(len(carried))]
        head = f"def body{self.count}(i, carry):"
        lines = self.body(carried, names, head, "{}")
        call = (
            f"cvm.fori_loop(0, {chance.choice((0, 1, 2, 3))}, body{self.count}, "
            f"({', '.join(carried)},))"
        )
        return "\n".join([*lines, f"{', '.join(self.name() for _ in carried)}, = {call}"])

    def scan(self) -> str:
        chance = self.random
        rows = [n for n in self.arrays() if np.ndim(self.value(n)) and len(self.value(n))]
        if not rows:
            return self.binding()
        self.count += 1
        carried, xs = [chance.choice(self.arrays())], chance.choice(rows)
        head = f"def body{self.count}(carry, x):"
        lines = self.body(carried, ["c0"], head, "({}), x * 2")
        call = f"cvm.scan(body{self.count}, ({carried[0]},), {xs})"
        return "\n".join([*lines, f"({self.name()},), {self.name()} = {call}"])

    # expressions

    def operand(self, shape: tuple[int, ...]) -> str:
        """A number, or an array that broadcasts to a shape."""
        fitting = [n for n in self.arrays() if _broadcasts(self.value(n).shape, shape)]
        if not fitting or self.random.random() < 0.4:
            return str(self.random.choice((1, 2, 3, 5)))
        return self.random.choice(fitting)

    def expression(self) -> str:
        chance = self.random
        name = chance.choice(self.arrays())
        x = self.value(name)
        texts = [
            f"{name} {chance.choice(OPERATORS)} {self.operand(x.shape)}",
            f"-{name}",
            f"+{name}",
        ]
        texts += [
            f"{name}.sum()",
            f"{name}.max()",
            f"np.sum({name})",
            f"{name}.copy()",
            f"np.copy({name})",
        ]
        texts += [
            f"np.where({name} > 2, {name}, 1)",
            f"np.zeros_like({name})",
            f"np.abs({name})",
            f"copy({name})",
        ]
        texts += [f"{name}.astype('i8')", f"{name}.astype({name}.dtype)", f"np.maximum({name}, 2)"]
        texts += [
            f"np.clip({name}, 0, 9)",
            f"np.round({name})",
            f"{name}.flatten()",
            f"np.tensordot({name}, {name if x.size == 1 else 1}, 0)",  # which loops do not enlarge
        ]
        texts += [
            f"np.einsum('...->', {name})" if x.ndim == 0 else f"{name}.sum(axis=0)",
            f"np.roll({name}, 1)",
        ]
        if x.ndim:
            texts += [
                f"{name} @ {name}",
                f"np.dot({name}, {name})",
                f"np.take({name}, 0)",
                f"{name}.argmax()",
                f"{name}.mean()",
            ]
            texts += [
                f"np.cumsum({name})",
                f"np.sort({name})",
                f"np.repeat({name}, 2)",
                f"np.concatenate([{name}, {name}])",
            ]
            texts += [
                f"np.tensordot({name}, {name}, 1)",
                f"np.meshgrid({name}.ravel(), sparse=True)[0]",
                f"np.pad({name}, 1)",
            ]
        return chance.choice(texts)

    def view_of(self, name: str) -> str:
        """An expression that is a view in NumPy, or nearly one."""
        chance, x = self.random, self.value(name)
        texts = [f"{name}[{self.key(name)}]"] * 6
        texts += [
            f"{name}.T",
            f"{name}[...]",
            f"{name}[()]",
            f"{name}[None]",
            f"{name}.squeeze()",
            f"np.squeeze({name})",
        ]
        texts += [
            f"{name}.reshape(-1)",
            f"{name}.ravel()",
            f"np.ravel({name})",
            f"np.transpose({name})",
            f"{name}.real",
        ]
        texts += [
            f"np.expand_dims({name}, 0)",
            f"np.flip({name})",
            f"np.atleast_1d({name})",
            f"np.atleast_2d({name})",
        ]
        texts += [f"np.reshape({name}, {self.shape(x.size)})"] * 3
        texts += [
            f"np.broadcast_to({name}, (2, *{name}.shape))",
            f"{name}.astype({name}.dtype, copy=False)",
            f"{name}.conj()",
        ]
        if x.ndim:
            texts += [
                f"{name}[..., 0]",
                f"{name}[0, ...]",
                f"{name}[::-1]",
                f"{name}[1:]",
                f"np.split({name}, [1])[1]",
            ]
            texts += [f"np.diff({name}, 0)", f"{name}[{name}.argmax() % {len(x) or 1}]"]
            texts += [f"np.lib.stride_tricks.sliding_window_view({name}, 1, axis=0)"]
        if x.ndim > 1:
            texts += [
                f"{name}.swapaxes(0, 1)",
                f"np.moveaxis({name}, 0, -1)",
                f"np.diagonal({name})",
                f"np.rot90({name}, 2)",
            ]
            texts += [f"np.einsum('ij...->ji...', {name})", f"{name}.mT"]
        return chance.choice(texts)

    def shape(self, size: int) -> tuple[int, ...]:
        sizes: list[int] = []
        for n in (2, 3):
            if size and size % n == 0 and self.random.random() < 0.6:
                sizes.append(n)
                size //= n
        if size != 1 or self.random.random() < 0.3:
            sizes.append(size)
        self.random.shuffle(sizes)
        return tuple(sizes)

    def key(self, name: str, assigned: bool = False) -> str:
        chance, parts = self.random, []
        x = self.value(name)
        if assigned and chance.random() < 0.15:
            return f"{name} > {chance.choice((0, 3))}"
        for n in x.shape[: chance.randrange(x.ndim + 1)]:
            a, b = chance.randrange(-n, n) if n else 0, chance.randrange(n + 1)
            slices = [f"{a}", f"{min(max(a, 0), b)}:{b}", "::-1", ":", f"{b}:", "::2"]
            parts.append(chance.choice([*slices, f"[{a}, {a}]" if chance.random() < 0.2 else ":"]))
        if chance.random() < 0.3:
            parts.insert(chance.randrange(len(parts) + 1), "...")
        if chance.random() < 0.1:
            parts.insert(chance.randrange(len(parts) + 1), "None")
        return (
            ", ".join(parts) + ","
            if parts
            else chance.choice(("...", "()", ":" if x.ndim else "..."))
        )


def _array(chance: random.Random, shape: tuple[int, ...]) -> np.ndarray | np.generic:
    found = np.array([chance.randrange(9) for _ in range(int(np.prod(shape)))])
    found = found.reshape(shape).astype(chance.choice(DTYPES))
    if not shape and chance.random() < 0.5:
        return found[()]
    return np.asfortranarray(found) if chance.random() < 0.1 else found


def copied(x: Any) -> Any:
    """A copy that has the layout, and is a scalar where it was one."""
    return x.copy(order="K") if isinstance(x, np.ndarray) else x


def _shared(x: Any, y: Any) -> bool:
    """Test whether a change of one is one of the other, or would be if scalars changed."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return np.shares_memory(x, y)
    return x is y


def _fits(x: Any) -> bool:
    return x.dtype.kind != "f" or bool(np.all(np.abs(x) < TOO_LARGE))


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def judge(seed: int, targets: tuple[str, ...] | None = None) -> str:
    """Run a function by NumPy and compiled: "same", or what it is refused for; raises
    AssertionError where they differ.
    """
    writer = Writer(seed)
    text = writer.text
    targets = targets or (("reference", "cpu") if seed % ON_CPU == 0 else ("reference",))

    def made(loops: Any) -> Any:
        scope: dict[str, Any] = {"np": np, "cvm": loops, "copy": copy}
        exec(compile(text, f"<function {seed}>", "exec"), scope)
        return scope["f"]

    given = [copied(x) for x in writer.arguments.values()]
    with np.errstate(all="ignore"):
        wanted = made(Loops)(*given)
    for target in targets:
        passed = [copied(x) for x in writer.arguments.values()]
        try:
            found = cvm.compile(made(cvm), target=target, rules="numpy")(*passed)
        except cvm.Error as e:
            return e.diagnostics[0].message
        try:
            _compare(found, wanted)
            for one, other in zip(passed, given, strict=True):
                _compare(one, other)
        except AssertionError as e:
            shown = "\n".join(f"{n} = {x!r}" for n, x in writer.arguments.items())
            raise AssertionError(f"seed {seed} on {target}:\n{shown}\n{text}\n{e}") from None
    return "same"


def _compare(found: Any, wanted: Any) -> None:
    if isinstance(wanted, (tuple, dict)):
        keys = wanted if isinstance(wanted, dict) else range(len(wanted))
        assert len(found) == len(wanted)
        for k in keys:
            _compare(found[k], wanted[k])
        return
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, f"{found!r} for {wanted!r}"
    np.testing.assert_array_equal(found, wanted)


def tally(seeds: range) -> Counter[str]:
    return Counter(judge(seed) for seed in seeds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    found: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.times):
        if options.show:
            print(Writer(seed).text)
        try:
            found[judge(seed)] += 1
        except Exception as e:
            found["different"] += 1
            print(seed, type(e).__name__, e)
    for what, count in found.most_common():
        print(f"{count:6} {what}")
    return int(found["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
