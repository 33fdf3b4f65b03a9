"""`cvm cost`: the operations and bytes of a call by operation and by kernel, and the roofline of
this machine: its memory bandwidth and its rate of float operations, measured once by two kernels;
and a drawing of it.
"""

import json
import math
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

import cvm
from cvm.commands.cost_on_gpu import cost_on_gpu
from cvm.dialect.ir.module import Module
from cvm.jit.cache import disk_cache
from cvm.jit.host_processor import host_name, host_processor
from cvm.jit.options import CompileOptions
from cvm.lowering.analysis.count_operations import Cost
from cvm.terminal.display import columns, timed
from cvm.terminal.files import page, suffix_of, write
from cvm.terminal.read_program import compiled, parsed_sizes, read_kernels, read_level
from cvm.terminal.usage import Usage

LONGEST = 60  # letters of a name in the table
ROUNDS = 10  # of which the fastest counts
BYTES = 64 << 20  # of an array that no cache holds; four times the last cache where that is more
CHAIN, STEPS = (
    12,
    1 << 18,
)  # independent sums, which hide the latency of a fused product and sum, and their terms
DEPTH, TIMES = (
    256,
    1 << 9,
)  # words of a sum of 32 x 32 tiles, 32 KB of each factor, and how often it is computed
Place = tuple[float, float]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760.0, 380.0, 64.0, 44.0, 16.0


def cost(options: Namespace) -> int:
    suffix = (
        suffix_of(options.output, (".svg", ".html"), "a picture, .svg, or a page, .html")
        if options.output
        else ""
    )
    program = read_level(options.program)
    if options.target == "cuda":
        if suffix:
            raise Usage("-o draws the roofline of this machine: without --target cuda")
        return cost_on_gpu(program, options)
    f, sizes = (
        compiled(program, options.entry, "cpu", CompileOptions(options.optimize)),
        parsed_sizes(options.size),
    )
    groupings = ("operation", "kernel") if isinstance(program, Module) else ("kernel",)
    costs: dict[str, Cost] = {by: f.cost(by, **sizes) for by in groupings}
    here = roofline()
    text = "\n".join(table(costs, here))
    if options.json:
        print(
            json.dumps(
                {**{by: as_json(c) for by, c in costs.items()}, "roofline": vars(here)}, indent=1
            )
        )
    elif not options.output:
        print(text)
    if options.output:
        drawn = svg(here, [Point(k.name, k.intensity) for k in costs["kernel"].parts])
        if suffix == ".html":
            drawn = page(
                "cost.html", TITLE=escape(options.program), DRAWING=drawn, TABLE=escape(text)
            )
        write(options.output, drawn.encode())
    return 0


def as_json(c: Cost) -> dict[str, Any]:
    own = {
        "name": c.name,
        "operations": c.operations,
        "bytes_read": c.bytes_read,
        "bytes_written": c.bytes_written,
    }
    whole = {"workspace": c.workspace, "memory": c.memory} if c.memory else {}
    more = {"intensity": round(c.intensity, 4), "exact": c.is_exact, "functions": dict(c.functions)}
    return {**own, **whole, **more, **({"parts": [as_json(p) for p in c.parts]} if c.parts else {})}


def table(costs: Mapping[str, Cost], roof: "Roofline") -> Iterator[str]:
    """The costs in columns, and what of the machine limits each kernel."""
    rows: list[tuple[str, ...]] = []
    for by, whole in costs.items():
        rows.append(
            ("operations", "bytes read", "written", "op/B", "limit" if by == "kernel" else "", by)
        )
        for c in (*whole.parts, whole):
            limit = (
                ("memory" if c.intensity < roof.ridge else "arithmetic")
                if c.operations and by == "kernel"
                else ""
            )
            name = (
                "all"
                if c is whole
                else c.name
                if len(c.name) <= LONGEST
                else f"{c.name[: LONGEST - 1]}…"
            )
            counts = (
                f"{'' if c.is_exact else '<= '}{c.operations:,}",
                f"{c.bytes_read:,}",
                f"{c.bytes_written:,}",
            )
            rows.append((*counts, f"{c.intensity:.3g}", limit, name))
        rows.append(("",) * 6)
    yield from columns(rows, ">>>>><")
    kernels = costs["kernel"]
    done = ", ".join(
        f"{n:,} {function}"
        for function, n in sorted(kernels.functions.items(), key=lambda i: -i[1])
    )
    yield f"kernels: {done or 'no operations'}"
    yield (
        f"memory at once: {kernels.memory:,} bytes, of which {kernels.workspace:,} hold "
        "intermediate arrays"
    )
    yield (
        f"{roof.machine}, {roof.threads} threads: {rate_text(roof.operations)}op/s and "
        f"{rate_text(roof.bytes)}B/s at most; "
        f"memory is the limit below {roof.ridge:.3g} op/B"
    )
    if roof.tiles:
        yield f"matrix tiles of bytes: {rate_text(roof.tiles)}op/s at most"


# The roofline


@dataclass(frozen=True)
class Roofline:
    """Operations and bytes a second, at most, of a machine on a number of threads."""

    machine: str
    threads: int
    operations: float
    bytes: float
    tiles: float = 0  # operations of matrix tiles of bytes; 0: the machine uses none

    @property
    def ridge(self) -> float:
        """The operations for each byte from which on memory is no limit."""
        return self.operations / self.bytes

    def attainable(self, intensity: float) -> float:
        """Operations a second, at most, of code that does this many for each byte it moves."""
        return min(self.operations, intensity * self.bytes)


@dataclass(frozen=True)
class Point:
    """A kernel in the drawing; `rate` are its operations a second, None where it was not timed."""

    name: str
    intensity: float
    rate: float | None = None


def roofline() -> Roofline:
    """Measure this machine, or recall what was measured before from the disk cache."""
    threads = cvm.get_num_threads()
    name = disk_cache.key("roofline 2", host_name(), host_processor().matrix_tiles, str(threads))
    if (stored := disk_cache.load(name)) is not None:
        return Roofline(**json.loads(stored))
    here = host_processor()
    lanes = here.vector_bytes // 4
    n = max(BYTES, 4 * here.l3_bytes) // 256 // lanes * lanes
    stream, _, tiles = _kernels(lanes, n)
    moving, summing = _fastest(stream, np.ones((64, n), np.float32)), seconds_of_sums(lanes)
    products = 0.0
    if here.matrix_tiles == "instructions":
        taken = _fastest(tiles, np.ones((32, DEPTH), np.int32))
        products = 2 * 64 * TIMES * 32 * 32 * 4 * DEPTH / taken
    summed = 2 * 64 * CHAIN * lanes * STEPS / summing
    measured = Roofline(host_name(), threads, summed, 2 * 256 * n / moving, products)
    disk_cache.store(name, json.dumps(asdict(measured)).encode())
    return measured


def seconds_of_sums(lanes: int) -> float:
    """The seconds of a fixed number of fused products and sums of vectors of f32."""
    return _fastest(_kernels(lanes, lanes)[1], np.full(lanes, 0.5, np.float32))


def _kernels(lanes: int, length: int) -> list[str]:
    """The text of each kernel that measures, with vectors and rows of these lengths."""
    sizes = {"LANES": lanes, "CHAIN": CHAIN, "STEPS": STEPS, "LENGTH": length}
    text = page("roofline.loops", **sizes, DEPTH=DEPTH, TIMES=TIMES)
    return re.split(r"^(?=kernel @(?:sums|tiles))", text, flags=re.MULTILINE)


def _fastest(kernel: str, x: np.ndarray) -> float:
    run = compiled(read_kernels(kernel, "roofline.loops"), "kernels", "cpu")
    out = run(x)
    return min(timed(run, x, out=out)[1] for _ in range(ROUNDS))


def rate_text(rate: float) -> str:
    """A rate with its prefix, such as 12.3 G."""
    return f"{rate / 1e9:.3g} G" if rate >= 1e9 else f"{rate / 1e6:.3g} M"


def svg(roof: Roofline, points: Sequence[Point]) -> str:
    """The roofline, both axes logarithmic: of each kernel a dot at its rate, or a ring at the most
    that it can reach.
    """
    shown = [p for p in points if p.intensity > 0]
    low = math.floor(math.log10(min([roof.ridge / 30, *(p.intensity / 2 for p in shown)])))
    high = math.ceil(math.log10(max([roof.ridge * 10, *(p.intensity * 1.5 for p in shown)])))
    rates = [roof.attainable(10.0**low), *(p.rate / 1.5 for p in shown if p.rate)]
    least, most = (
        math.floor(math.log10(min(rates))),
        math.log10(max(roof.operations * 2, *rates) * 1.5),
    )
    parts: list[str] = []

    def x(intensity: float) -> float:
        return LEFT + (math.log10(intensity) - low) / (high - low) * (WIDTH - LEFT - 24)

    def y(rate: float) -> float:
        return (
            HEIGHT - BOTTOM - (math.log10(rate) - least) / (most - least) * (HEIGHT - BOTTOM - TOP)
        )

    def line(kind: str, a: Place, b: Place) -> None:
        parts.append(
            f'<line class="{kind}" x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" '
            f'y2="{b[1]:.1f}"/>'
        )

    def text(at: Place, said: str, anchor: str = "middle", kind: str = "tick") -> None:
        place = f'x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}"'
        parts.append(f'<text class="{kind}" {place}>{escape(said)}</text>')

    bottom, right, top = HEIGHT - BOTTOM, WIDTH - 24, y(roof.operations)
    for n in range(low, high + 1):
        line("grid", (x(10.0**n), TOP), (x(10.0**n), bottom))
        text((x(10.0**n), bottom + 18), f"{10.0**n:g}")
    for n in range(least, math.floor(most) + 1):
        line("grid", (LEFT, y(10.0**n)), (right, y(10.0**n)))
        text((LEFT - 8, y(10.0**n) + 4), rate_text(10.0**n), "end")
    line("roof", (x(10.0**low), y(roof.attainable(10.0**low))), (x(roof.ridge), top))
    line("roof", (x(roof.ridge), top), (right, top))
    text(
        (right, top - 8), f"{rate_text(roof.operations)}op/s of f32, {roof.threads} threads", "end"
    )
    text(((LEFT + right) / 2, HEIGHT - 6), "operations per byte")
    middle = math.sqrt(10.0**low * roof.ridge)
    text((x(middle) - 12, y(roof.attainable(middle)) - 6), f"{rate_text(roof.bytes)}B/s", "end")
    labels: list[Place] = []
    for p in sorted(shown, key=lambda p: p.intensity):
        most_here = roof.attainable(p.intensity)
        rate, kind, more = (p.rate, "timed", "") if p.rate else (most_here, "limit", " at most")
        at = x(p.intensity), y(rate)
        line("drop", at, (at[0], y(most_here)))
        label = at[1] + (4 if p.rate else 18)
        while any(abs(at[0] - a) < 150 and abs(label - b) < 13 for a, b in labels):
            label += 14
        labels.append((at[0], label))
        said = escape(f"{p.name}: {p.intensity:.3g} op/B, {rate_text(rate)}op/s{more}")
        parts.append(
            f'<circle class="{kind}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" '
            f'r="4.5"><title>{said}</title></circle>'
        )
        text((at[0] + 9, label), p.name, "start", "label")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="roofline" viewBox="0 0 {WIDTH:g} '
        f'{HEIGHT:g}" width="{WIDTH:g}">'
    )
    return "\n".join([head, f"<style>\n{page('roofline.css')}</style>", *parts, "</svg>"]) + "\n"
