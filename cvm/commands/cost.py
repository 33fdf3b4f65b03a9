"""`cvm cost`: the operations and bytes of a call by operation and by kernel, and the roofline of this machine."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from cvm.commands.display import columns
from cvm.commands.io import page, suffix_of, write
from cvm.commands.levels import Level, compiled, parsed_sizes, read_level
from cvm.dialect.program.module import Module
from cvm.jit.options import CompileOptions
from cvm.lowering.analysis.count_operations import Cost
from cvm.roofline import Point, Roofline, rate_text, roofline, svg

LONGEST = 60  # letters of a name in the table


def cost(options: Namespace) -> int:
    suffix = suffix_of(options.output, (".svg", ".html"), "a picture, .svg, or a page, .html") if options.output else ""
    program = read_level(options.program)
    costs = counted(program, options.entry, CompileOptions(options.optimize), parsed_sizes(options.size))
    here = roofline()
    text = "\n".join(table(costs, here))
    if options.json:
        print(json.dumps({**{by: as_json(c) for by, c in costs.items()}, "roofline": vars(here)}, indent=1))
    elif not options.output:
        print(text)
    if options.output:
        drawn = svg(here, [Point(k.name, k.intensity) for k in costs["kernel"].parts])
        if suffix == ".html":
            drawn = page("cost.html", TITLE=escape(options.program), DRAWING=drawn, TABLE=escape(text))
        write(options.output, drawn.encode())
    return 0


def counted(program: Level, entry: str, options: CompileOptions, sizes: Mapping[str, int]) -> dict[str, Cost]:
    """The cost of a call by operation, where there are operations, and by kernel; of a graph that of a tick."""
    f: Any = compiled(program, entry, "cpu", options)
    return {by: f.cost(by, **sizes) for by in (("operation", "kernel") if isinstance(program, Module) else ("kernel",))}


def as_json(c: Cost) -> dict[str, Any]:
    """A cost as JSON has it."""
    own = {"name": c.name, "operations": c.operations, "bytes_read": c.bytes_read, "bytes_written": c.bytes_written}
    whole = {"workspace": c.workspace, "memory": c.memory} if c.memory else {}
    more = {"intensity": round(c.intensity, 4), "exact": c.is_exact, "functions": dict(c.functions)}
    return {**own, **whole, **more, **({"parts": [as_json(p) for p in c.parts]} if c.parts else {})}


def table(costs: Mapping[str, Cost], roof: Roofline) -> Iterator[str]:
    """The costs in columns, and what of the machine limits each kernel."""
    rows: list[tuple[str, ...]] = []
    for by, whole in costs.items():
        rows.append(("operations", "bytes read", "written", "op/B", "limit" if by == "kernel" else "", by))
        for c in (*whole.parts, whole):
            limit = ("memory" if c.intensity < roof.ridge else "arithmetic") if c.operations and by == "kernel" else ""
            name = "all" if c is whole else c.name if len(c.name) <= LONGEST else f"{c.name[: LONGEST - 1]}…"
            counts = f"{'' if c.is_exact else '<= '}{c.operations:,}", f"{c.bytes_read:,}", f"{c.bytes_written:,}"
            rows.append((*counts, f"{c.intensity:.3g}", limit, name))
        rows.append(("",) * 6)
    yield from columns(rows, ">>>>><")
    kernels = costs["kernel"]
    done = ", ".join(f"{n:,} {function}" for function, n in sorted(kernels.functions.items(), key=lambda i: -i[1]))
    yield f"kernels: {done or 'no operations'}"
    yield f"memory at once: {kernels.memory:,} bytes, of which {kernels.workspace:,} hold intermediate arrays"
    yield (
        f"{roof.machine}, {roof.threads} threads: {rate_text(roof.operations)}op/s and {rate_text(roof.bytes)}B/s at most; "
        f"memory is the limit below {roof.ridge:.3g} op/B"
    )
