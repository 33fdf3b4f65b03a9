"""Draw a program as SVG, and show it in a notebook.

A box shows its operation's full text on hover. Constants are named in the boxes that use them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

from ..builtin import Const, Elements
from ..types.attributes import attribute_text
from .diagram_layout import Box, Route, place
from .function import Function, Functions, Graph, Literal, Operation, Value
from .program_printer import Names, operation_text, written_attributes
from .repeated_blocks import Repeat, repeats

LETTER, LINE, PAD = (
    7.3,
    16.0,
    9.0,
)  # width of a letter, height of a line, padding of a box, in pixels
TYPE_LETTER = 6.4  # of the types at edges
LONGEST = 44  # letters of a line
MARGIN = 20.0
MOST_DRAWN = 300  # operations in a notebook
MOST_LISTED = 12  # operators of a repeated block


@dataclass(eq=False)
class Shown(Box):
    """A box with its lines; the first is its name."""

    lines: Sequence[str] = ()
    kind: str = "operation"
    whole: str = ""

    def sized(self) -> "Shown":
        self.width = max((len(line) for line in self.lines), default=0) * LETTER + 2 * PAD
        self.height = len(self.lines) * LINE + 2 * PAD - 4
        return self


@dataclass
class Sketch:
    """The boxes of one function and the edges between them; `fed` has driver and state of each
    feedback.
    """

    title: str
    boxes: list[Shown] = field(default_factory=list)
    edges: list[tuple[Box, Box]] = field(default_factory=list)
    labels: list[str] = field(
        default_factory=list
    )  # of the edges, a value's type at the first of its edges
    fed: list[tuple[Box, Box]] = field(default_factory=list)


Label = tuple[float, float, str]  # left, baseline, text


@dataclass
class Drawing:
    """A function's boxes and edges in their places, in pixels; an edge is cubic Bézier curves."""

    title: str
    boxes: list[Shown]
    edges: list[Route]
    fed: list[Route]
    labels: list[Label]
    width: float
    height: float


def drawings(
    module: Functions, functions: Iterable[Function], collapsed: bool = False
) -> list[Drawing]:
    """The functions, drawn; collapsed, one box stands for blocks of operations that repeat."""
    return [_placed(sketched(module, f, collapsed)) for f in functions]


def _placed(sketch: Sketch) -> Drawing:
    width, height, routes = place(sketch.boxes, sketch.edges)
    fed = [
        _back(a, b, max(a.x + a.width / 2, b.x + b.width / 2) + 24 + 10 * n)
        for n, (a, b) in enumerate(sketch.fed)
    ]
    labels = [
        (route[0][0] + 8, route[0][1] + 17, text)
        for route, text in zip(routes, sketch.labels, strict=True)
        if text
    ]
    wide = max(width + (24 + 10 * len(fed) if fed else 0), len(sketch.title) * LETTER * 1.2)
    edges = [_curves(route) for route in routes]
    return Drawing(sketch.title, sketch.boxes, edges, fed, labels, wide, height)


def svg(module: Functions, functions: Iterable[Function], collapsed: bool = False) -> str:
    """The functions as SVG, one below the other."""
    parts: list[str] = []
    width, y = 0.0, MARGIN
    for drawing in drawings(module, functions, collapsed):
        drawn = [f'<path d="{_path(edge)}"/>' for edge in drawing.edges]
        drawn += [f'<path class="fed" d="{_path(edge)}"/>' for edge in drawing.fed]
        drawn += [_box(box) for box in drawing.boxes]
        drawn += [
            f'<text class="type" x="{a:.1f}" y="{b:.1f}">{escape(text)}</text>'
            for a, b, text in drawing.labels
        ]
        title = f'<text class="title" x="0" y="12">{escape(drawing.title)}</text>'
        group = f'<g transform="translate(0 {LINE * 2:g})">\n' + "\n".join(drawn) + "\n</g>"
        parts.append(f'<g transform="translate({MARGIN:g} {y:g})">\n{title}\n{group}\n</g>')
        width = max(width, drawing.width)
        y += drawing.height + LINE * 2 + 2 * MARGIN
    size = f"{width + 2 * MARGIN:.0f}", f"{y:.0f}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" width="{size[0]}" '
        f'height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}">\n'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto">'
        '<polygon points="0,0 8,4 0,8" fill="#8c959f"/></marker></defs>\n'
    )
    style = Path(__file__).with_name("drawing.css").read_text("utf-8")
    return "\n".join([f"{head}<style>\n{style}</style>", *parts, "</svg>\n"])


def html(module: Functions, functions: Sequence[Function], caption: str) -> str:
    """A caption and the drawing, for a notebook; of many operations the caption alone."""
    drawing = (
        svg(module, functions) if sum(len(f.operations) for f in functions) <= MOST_DRAWN else ""
    )
    drawing = drawing.replace("<style>", "<style>.cvm-drawing {").replace(
        "</style>", "}</style>"
    )  # of this one alone
    return f'<div class="cvm-drawing"><pre>{escape(caption)}</pre>{drawing}</div>'


def caption(function: Function) -> str:
    """The signature of a function, its operations, and the bytes of its constants."""
    held = sum(
        o.operator.data.array.nbytes for o in function.operations if isinstance(o.operator, Const)
    )
    sides = (
        ", ".join(f"{v.name}: {v.known_type}" for v in vs)
        for vs in (function.arguments, function.results)
    )
    arguments, results = sides
    return (
        f"@{function.name}({arguments}) -> ({results})\n"
        f"{len(function.operations)} operations, {held:,} bytes of constants"
    )


# From operations to boxes


def sketched(module: Functions, function: Function, collapsed: bool = False) -> Sketch:
    kind = "graph" if isinstance(function, Graph) else "func"
    sketch = Sketch(f"{kind} @{function.name}")
    names = Names(function.arguments)
    made: dict[Value, Shown] = {}
    labelled: set[Value] = set(function.arguments)

    def connect(value: Value, box: Shown) -> None:
        sketch.edges.append((made[value], box))
        text = f"{names.of(value)}: {str(value.known_type).partition('<')[2][:-1]}"
        sketch.labels.append("" if value in labelled else text)
        if value not in labelled:
            made[value].label = max(made[value].label, len(text) * TYPE_LETTER + 8)
        labelled.add(value)

    for a in function.arguments:
        box = Shown(
            lines=[names.of(a), str(a.known_type)],
            kind="argument",
            whole=f"{names.of(a)}: {a.known_type}",
        )
        made[a] = box
        sketch.boxes.append(box.sized())
    for r in (r for o in function.operations for r in o.results):
        names.of(r)  # in the order of the text, by which those without a name are numbered
    drawn = [o for o in function.operations if o.operator.name != "cog.feedback"]
    drawn = [o for o in drawn if not isinstance(o.operator, Const)]
    blocks = {r.first: r for r in (repeats(drawn) if collapsed else [])}
    constants = {
        o.results[0]: f"{names.of(o.results[0])}: const {o.operator.type}"
        for o in function.operations
        if isinstance(o.operator, Const)
    }
    at = 0
    while at < len(drawn):
        block = blocks.get(at, Repeat(at, 1, 1))
        together = drawn[at : at + block.period * block.times]
        if block.times == 1:
            box = _operation(drawn[at], names, constants, operation_text(drawn[at], names))
        else:
            box = _repeated(together, block, names)
        sketch.boxes.append(box.sized())
        made.update((r, box) for o in together for r in o.results)
        for v in dict.fromkeys(v for o in together for v in _distinct(o)):
            if v in made and made[v] is not box:
                connect(v, box)
        at += len(together)
    for operation in function.operations:
        if operation.operator.name == "cog.feedback":
            driver, target = _distinct(operation)
            sketch.fed.append((made[driver], made[target]))
    for n, r in enumerate(function.results):
        text = f"return {names.of(r) if not isinstance(r, Literal) else r.value}"
        box = Shown(
            lines=[text, str(r.known_type)], kind="result", whole=f"result {n}: {r.known_type}"
        ).sized()
        sketch.boxes.append(box)
        if r in made:
            connect(r, box)
    return sketch


def _distinct(operation: Operation) -> list[Value]:
    return list(dict.fromkeys(v for _, v in operation.operator.operands()))


def _operation(operation: Operation, names: Names, constants: dict[Value, str], text: str) -> Shown:
    operator = operation.operator
    written = [(name, v) for name, v in written_attributes(operator).items() if name != "type"]
    attributes = [
        f"{n} = {v.data.text if isinstance(v, Elements) else attribute_text(v)}" for n, v in written
    ]
    lines = [operator.name, *attributes]
    known = [v for v in _distinct(operation) if isinstance(v, Literal) or v in constants]
    lines += [str(v.value) if isinstance(v, Literal) else constants[v] for v in known]
    where = f"line {operation.span.line}: " if operation.span.source.text else ""
    kind = "state" if operator.labelled else "operation"
    lines = [line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in lines]
    return Shown(lines=lines, kind=kind, whole=where + text)


def _repeated(operations: Sequence[Operation], block: Repeat, names: Names) -> Shown:
    """One box for blocks that are alike, with the operators of one."""
    operators = [o.operator.name for o in operations[: block.period]]
    more = [f"… {len(operators) - MOST_LISTED} more"] if len(operators) > MOST_LISTED else []
    lines = [f"{block.times} times", *operators[:MOST_LISTED], *more]
    texts = [operation_text(o, names) for o in operations[: block.period]]
    return Shown(lines=lines, kind="repeated", whole="\n".join(texts))


# From boxes to SVG


def _box(box: Shown) -> str:
    left, top = box.x - box.width / 2, box.y - box.height / 2
    lines = [
        f'<text class="{"more" if n else "name"}" x="{box.x:.1f}" '
        f'y="{top + PAD + 9 + n * LINE:.1f}">{escape(line)}</text>'
        for n, line in enumerate(box.lines)
    ]
    rect = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        'rx="5"/>'
    )
    return f'<g class="box {box.kind}"><title>{escape(box.whole)}</title>{rect}{"".join(lines)}</g>'


def _path(curves: Route) -> str:
    (x, y), *rest = [(f"{x:.1f}", f"{y:.1f}") for x, y in curves]
    thirds = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    bends = (f"C{' '.join(c for point in three for c in point)}" for three in thirds)
    return " ".join([f"M{x} {y}", *bends])


def _curves(route: Route) -> Route:
    """The control points of curves through the points, each of which leaves and arrives
    vertically.
    """
    points = route[:1]
    for (x, y), (nx, ny) in pairwise(route):
        middle = (y + ny) / 2
        points += [(x, middle), (nx, middle), (nx, ny)]
    return points


def _back(driver: Box, state: Box, x: float) -> Route:
    """The edge of a feedback, routed around the right of the boxes between."""
    a = (driver.x + driver.width / 2, driver.y)
    b = (state.x + state.width / 2, state.y)
    return [a, (x, a[1]), (x, b[1]), b]
