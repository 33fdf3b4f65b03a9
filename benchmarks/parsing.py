"""Measure parsing and simplifying: programs of growing length, by stage, and constants of growing size. Time should
be linear in the text.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

from cvm.dialect.ir import verify
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_module
from cvm.lowering.graph.simplify import simplify
from cvm.lowering.passes import run_passes
from cvm.lowering.pipeline import context_of
from cvm.parser.build_module import build
from cvm.parser.decode import decode
from cvm.parser.format import format_text
from cvm.parser.recovery import Reader

from cvm import parse

KINDS = (
    "cvm.relu %{0}",
    "cvm.dense %{0}, %w",
    "cvm.clip %{0} {{a_min = -127, a_max = 127}} : (tensor<?N x 8 x i32>) -> tensor<?N x 8 x i32>",
    "cvm.broadcast_add %{0}, 3",
)


def program(count: int) -> str:
    """A chain of operations: with attributes, signatures and literals."""
    body = [f"  %{n + 1} = " + KINDS[n % len(KINDS)].format(n) for n in range(count)]
    head = "func @main(%0: tensor<?N x 8 x i32>, %w: tensor<8x8xi32>) -> tensor<?N x 8 x i32> {"
    return "\n".join([head, *body, f"  return %{count}", "}\n"])


def constant(count: int) -> str:
    """A program that is one long constant."""
    numbers = ", ".join(str(n % 255 - 127) for n in range(count))
    return (
        f"func @main() {{\n  %c = const dense<[{numbers}]> : tensor<{count}xi32>\n  return %c\n}}\n"
    )


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    """Processor time of the fastest run, the collector being off as `parse` has it."""
    times = []
    for _ in range(runs):
        gc.collect()
        gc.disable()
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
        gc.enable()
    return min(times)


def stages(text: str) -> dict[str, float]:
    """The time of each stage of reading a program, of all of them, and of writing it."""
    source, _ = decode(text, "<text>")
    tree = Reader(source).read()
    module, _ = build(tree, source, None)
    verified: Module = verify.verify(module)
    function = verified.functions["main"]
    context = context_of(verified, function)
    return {
        "syntax": seconds(lambda: Reader(source).read()),
        "build": seconds(lambda: build(tree, source, None)),
        "verify": seconds(lambda: verify.check(module)),
        "parse": seconds(lambda: parse(text)),
        "simplify": seconds(lambda: run_passes((simplify,), function, context)),
        "print": seconds(lambda: print_module(verified)),
        "format": seconds(lambda: format_text(text)),
    }


def main(sizes: list[int]) -> None:
    parse("")  # the grammar's tables
    first: dict[str, float] = {}
    print(
        f"{'operations':>10}  "
        + "".join(
            f"{name:>16}"
            for name in ("syntax", "build", "verify", "parse", "simplify", "print", "format")
        )
    )
    for size in sizes:
        found = stages(program(size))
        first = first or {name: found[name] / size for name in found}
        cells = (f"{found[name]:8.3f} s {found[name] / size / first[name]:4.2f}x" for name in found)
        print(f"{size:>10}  " + "".join(f"{cell:>16}" for cell in cells), flush=True)
    print(f"\n{'constant':>10}  {'parse':>16}")
    base = 0.0
    for count in (25_000, 250_000, 2_500_000):
        text = constant(count)
        spent = seconds(lambda text=text: parse(text))
        base = base or spent / len(text)
        print(f"{len(text) / 1e6:>7.2f} MB  {spent:8.3f} s {spent / len(text) / base:4.2f}x")


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [1_000, 10_000, 100_000])
