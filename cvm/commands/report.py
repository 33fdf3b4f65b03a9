"""`cvm report`: one page with the drawing of a function, its stages side by side, and what its
kernels cost and how long they take.
"""

import json
import re
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import cvm
from cvm.commands.cost import Point, as_json, roofline, svg
from cvm.dialect.ir.diagram import svg as drawing
from cvm.dialect.ir.function import Function, Graph
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_function
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.kernel_printer import Names, kernel_texts, size_text, tensor_text
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.dialect.support.diagnostics import Span, printable
from cvm.jit.compile import compile_program, find
from cvm.jit.functions.profile import profile
from cvm.jit.options import CompileOptions
from cvm.lowering.explain_strategies import strategies_text
from cvm.lowering.formulas.formula_printer import formula_lines
from cvm.lowering.formulas.overflow_warnings import Analysis
from cvm.lowering.pipeline import lower_for_gpu, to_formulas, unscheduled
from cvm.lowering.processor import compiling_for
from cvm.scheduling import schedule, with_schedule
from cvm.terminal.arguments import random_arrays
from cvm.terminal.display import timed
from cvm.terminal.files import load, page, read, suffix_of, write
from cvm.terminal.read_program import bind_sizes, compiled, parsed_sizes

LONGEST = 20_000  # lines of a stage that are shown
TICKS = 20  # that are timed, twice: the first few are slow
HEADS = re.compile(
    r"^(?:define .*@|.* )?(?:kernel_(\d+)|entry)\b.*[({:]"
)  # of functions, in code of any kind
Line = tuple[
    str, Iterable[str]
]  # with what it belongs to: lines of the source, l7, and kernels, k0, or g0 on a GPU
Stage = tuple[str, list[Line]]


def report(options: Namespace) -> int:
    suffix_of(options.output, (".html",), "a page, .html")
    module: Any = load(options.program)
    sizes = parsed_sizes(options.size)
    if options.schedule or isinstance(module, Plan):
        data = of_schedule(module, options, sizes)
        title = escape(f"{Path(options.program).name} · {options.schedule or 'as it is'}")
        steps = read(options.schedule).decode("utf-8", "replace") if options.schedule else ""
        shown = f"<pre>{escape(printable(steps))}</pre>"
        html = page("report.html", TITLE=title, DRAWING=shown, ROOFLINE="", DATA=as_data(data))
        write(options.output, html.encode())
        return 0
    if sizes:
        module = bind_sizes(module, sizes)
    f: Any = compile_program(module, options.entry, "cpu", CompileOptions())
    function: Function = f.graph if isinstance(find(module, options.entry), Graph) else f.function
    with compiling_for(f.options.cpu if isinstance(function, Graph) else f.compiled_for):
        data = collected(module, function, f)
    data["title"] = f"{Path(options.program).name} · @{function.name}"
    roof = roofline()
    rates = {t["kernel"]: t["rate"] for t in data["times"]}
    points = [
        Point(k["name"], k["intensity"], rates.get(k["name"]))
        for k in data["costs"]["kernel"]["parts"]
    ]
    data["machine"] = {**vars(roof), "ridge": roof.ridge}
    drawn = drawing(module, [function])
    html = page(
        "report.html",
        TITLE=escape(data["title"]),
        DRAWING=drawn,
        ROOFLINE=svg(roof, points),
        DATA=as_data(data),
    )
    write(options.output, html.encode())
    return 0


def as_data(data: dict[str, object]) -> str:
    """JSON that ends no script."""
    return json.dumps(data).replace("<", "\\u003c")


def of_schedule(program: Any, options: Namespace, sizes: dict[str, int]) -> dict[str, Any]:
    """All that the page shows of kernels: the nests before and after a schedule, and their code."""
    before = schedule(compiled(program, options.entry, "cpu")).plan
    after = with_schedule(program, options.entry, options.schedule) if options.schedule else before
    f = compiled(after, options.entry, "cpu", CompileOptions())
    lines = {"before": [*of_kernels(before)], "after": [*of_kernels(after, "k")]}
    for name in ("llvm", "asm"):
        lines[name] = [*of_code(f.lower(name), f.plan.kernels, "k")]
    roof = roofline()
    return {
        "stages": {name: paned(shown) for name, shown in lines.items()},
        "strategies": "",
        "memory": [*buffers(f.plan)],
        "kernels": [k.name for k in f.plan.kernels],
        "ranges": [],
        "costs": {"kernel": as_json(f.cost("kernel", **sizes))},
        "sizes": sizes,
        "times": [],
        "tick": None,
        "machine": {**vars(roof), "ridge": roof.ridge},
    }


def collected(module: Module, function: Function, f: Any) -> dict[str, Any]:
    """All that the page shows of a function, or of the tick of a graph."""
    clocked = isinstance(function, Graph)
    lowered: Function = f.clockwork.advance if clocked else f.computed
    plan: Plan = f.step_plan.plan if clocked else f.plan
    analysis = Analysis(module)
    analysis.function(function)
    arrays = [] if clocked else random_arrays(function, 0)
    sizes = (
        {} if clocked else {atom[0]: n for atom, n in f.sizes_of(arrays).items() if len(atom) == 1}
    )
    times = (
        (s.kernel, s.seconds, s.cost.operations / s.seconds, s.cost.bytes / s.seconds)
        for s in profile(f, arrays)
    )
    spans = ((v.known_type, f"%{v.name}", r) for v, r in analysis.ranges.items())
    return {
        "stages": {
            name: paned(lines) for name, lines in stages(module, function, lowered, f, plan)
        },
        "strategies": strategies_text(module, lowered),
        "memory": [*buffers(plan)],
        "kernels": [k.name for k in plan.kernels],
        "ranges": [
            (name, str(type), r.low, r.high, type.element.limits) for type, name, r in spans
        ],
        "costs": {by: as_json(f.cost(by, **sizes)) for by in ("operation", "kernel")},
        "sizes": sizes,
        "times": [
            dict(zip(("kernel", "seconds", "rate", "bytes"), time, strict=True)) for time in times
        ],
        "tick": min(timed(f.step, TICKS)[1] for _ in range(2)) / TICKS if clocked else None,
    }


def stages(
    module: Module, function: Function, lowered: Function, f: Any, plan: Plan
) -> Iterator[Stage]:
    if source := function.span.source.text.splitlines():
        yield "source", [(line, [f"l{n}"]) for n, line in enumerate(source, 1)]
    text = print_function(function).splitlines()
    first = next(n for n, line in enumerate(text) if line.endswith("{")) + 1
    places = {first + n: o.span for n, o in enumerate(function.operations)}
    yield "graph", [(line, keys([places[n]]) if n in places else []) for n, line in enumerate(text)]
    yield (
        "formulas",
        [(line, keys(spans)) for line, spans in formula_lines(to_formulas(module, lowered))],
    )
    yield "loops", [*of_kernels(unscheduled(module, lowered))]
    yield "schedule", [*of_kernels(plan, "k")]
    for name in ("llvm", "asm"):
        yield name, [*of_code(f.lower(name), plan.kernels, "k")]
    try:
        yield "cuda", [*of_code(f.lower("cuda"), lower_for_gpu(module, lowered).kernels, "g")]
    except cvm.Error:  # a target that cannot compile it
        return


def keys(spans: Iterable[Span], more: str = "") -> list[str]:
    """The source's lines of these places, after a kernel."""
    return [*filter(None, [more]), *dict.fromkeys(f"l{s.line}" for s in spans if s.source.text)]


def of_kernels(plan: Plan, mark: str = "") -> Iterator[Line]:
    for n, (kernel, text) in enumerate(zip(plan.kernels, kernel_texts(plan), strict=True)):
        classes = keys(kernel.spans or (kernel.span,), f"{mark}{n}" if mark else "")
        yield from ((line, classes) for line in text.splitlines())


def of_code(text: str, kernels: Sequence[Kernel], mark: str) -> Iterator[Line]:
    """The code of functions called kernel_0, kernel_1, ..."""
    classes: list[str] = []
    for line in text.splitlines():
        if head := HEADS.match(line):
            n = int(head[1] or len(kernels))
            classes = (
                keys(kernels[n].spans or (kernels[n].span,), f"{mark}{n}")
                if n < len(kernels)
                else []
            )
        yield line.expandtabs(4), classes


def paned(lines: Sequence[Line]) -> dict[str, Any]:
    """The lines of a stage, and their keys, each set of keys once."""
    sets: dict[tuple[str, ...], int] = {}
    shown = lines[:LONGEST]
    of = [sets.setdefault(tuple(classes), len(sets)) for _, classes in shown]
    more = [f"… {len(lines) - LONGEST:,} more lines"] if len(lines) > LONGEST else []
    return {"lines": [*(line for line, _ in shown), *more], "of": of, "sets": [*sets]}


def buffers(plan: Plan) -> Iterator[dict[str, Any]]:
    """The arrays of a plan: kind, type, bytes, place, and the kernels between which it is alive."""
    tensors = [
        (t, kind) for kind in ("argument", "constant", "result") for t in getattr(plan, f"{kind}s")
    ]
    for t, kind in [*tensors, *((t, "workspace") for t in plan.offsets)]:
        yield {
            "kind": kind,
            "name": f"%{t.name}",
            "type": tensor_text(t, Names()).partition(": ")[2],
            "bytes": size_text(t.bytes, Names()),
            "offset": size_text(plan.offsets[t], Names()) if t in plan.offsets else None,
            "used": [
                n
                for n, k in enumerate(plan.kernels)
                if any(plan.home[p] is t for p in k.parameters)
            ],
        }
