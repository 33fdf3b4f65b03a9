"""The fixed set of `cvm selftest`: named parts, each of which gives arrays that are the same
wherever the promises hold.

An operator's example over edge values; each scalar function of Theano, NumPy and DALI; programs at
random sizes, which are open or known; networks, a training step and graphs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

import numpy as np

import cvm
from cvm.dialect.dali.pointwise import Pointwise
from cvm.dialect.ir.function import Graph
from cvm.dialect.ir.module import Module
from cvm.dialect.numpy.ufunc_table import UFUNCS
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.theano.scalar_op import SCALAR_OPS
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, element_of
from cvm.terminal.operator_pages import by_dialect

from .selftest_values import EDGES, TAME, WIDE, below, elements

RUNS = (TAME, EDGES, TAME, WIDE)  # kinds of values, of the calls of a program
LARGEST_SIZE = 9  # of an example's open sizes
SCALARS = (
    515  # elements of a scalar function's arguments: vectors of every width, and some left over
)
ELEMENTS = {  # that the arguments of each dialect's scalar functions have, if they may
    "theano": ("f32", "i32", "complex<f32>"),
    "numpy": ("f32", "f64", "i32"),
    "dali": ("f32", "ui8"),
}
# functions of a type, or by the formulas of gammainc, which take seconds to compile
ALIKE = ("cast", "gammaincc", "gammal", "gammau", "chi2sf")
TICKS = 3
LONG = (
    *(
        "erfinv",
        "erfcinv",
        "gamma",
        "gammaln",
        "psi",
        "tri_gamma",
        "j0",
        "j1",
        "i0",
        "i1",
        "jv",
        "iv",
    ),
    "gammainc",
)  # functions of many operations, which are compiled for f32 alone
Outcome = list[np.ndarray]


@dataclass(frozen=True)
class Part:
    """A part of the set: a program's calls, by the kinds of values and the sizes that are open, or
    a function of its own.
    """

    name: str
    text: str = ""
    calls: tuple[tuple[int, dict[str, int]], ...] = ()
    traced: Callable[[Callable[..., object], str], Outcome] | None = field(
        default=None, compare=False
    )

    def outcome(self, compile: Callable[..., object]) -> Outcome:
        """The arrays that the part gives where `compile` compiles its programs."""
        if self.traced is not None:
            return self.traced(compile, self.name)
        module = cvm.parse(self.text, self.name)
        entry = [*module.functions][-1]
        function = compile(module, entry)
        if isinstance(module.functions[entry], Graph):
            return _ticks(function, self.name)
        found: Outcome = []
        for n, (kind, sizes) in enumerate(self.calls):
            arrays = arguments(module, entry, f"{self.name} {n}", kind, sizes)
            found += called(function, arrays)
        return found


def called(function: Any, arrays: Sequence[Any]) -> Outcome:
    """The results of a call, or the code of its error."""
    try:
        found = function(*arrays)
    except cvm.Error as e:
        return [np.frombuffer(e.diagnostics[0].code.encode(), np.uint8)]
    return [*found] if isinstance(found, tuple) else [found]


def arguments(
    module: Module, entry: str, name: str, kind: int, sizes: dict[str, int]
) -> list[np.ndarray]:
    """Arguments of a function by a name; sizes that it leaves open, and that are not given, are
    drawn.
    """
    known = {Size.named(n).key: size for n, size in sizes.items()}
    arrays: list[np.ndarray] = []
    for a in module.functions[entry].arguments:
        shape: list[int] = []
        for d in a.known_type.array_shape:
            if isinstance(d, Size):
                known.setdefault(d.key, 1 + below(f"{name} {d}", [LARGEST_SIZE])[0])
            shape.append(known[d.key] if isinstance(d, Size) else d)
        bounds = a.range
        element = a.known_type.element
        arrays.append(elements(f"{name} {a.name}", element, tuple(shape), kind, bounds))
    return arrays


def _ticks(graph: Any, name: str) -> Outcome:
    """Read all that a graph shows after some ticks from values of its state."""
    found: Outcome = []
    for kind in RUNS[:2]:
        graph.reset()
        for state in graph.writable:
            element = element_of(state.initial)
            graph.write(
                state.name, elements(f"{name} {state.name}", element, state.initial.shape, kind)
            )
        graph.step(TICKS)
        found += [graph.read(n) for n in graph.names]
    return found


def parts() -> Iterator[Part]:
    """All parts, in their order."""
    for operators in by_dialect().values():
        for op in operators:
            if op.has_effect or not op.__module__.startswith("cvm.dialect."):  # of a package
                continue
            text = dedent(op.example)
            if op.name == "builtin.while":  # an example that doubles x up to a limit
                text = text.replace(
                    "@main(%x: tensor<f32>", "@main(%x: tensor<f32> {range = [0.5, 2.0]}"
                )
            yield Part(op.name, text, tuple((kind, {}) for kind in RUNS))
    yield from scalar_functions()
    yield from sized_programs()
    for function in (integers, long_sums, attention, training, diffusion):
        yield Part(f"network.{function.__name__}", traced=function)


# scalar functions


def scalar_functions() -> Iterator[Part]:
    """A part for each function of an element, with a function of the program for each element type
    that it takes.
    """
    for name, row in SCALAR_OPS.items():
        if name not in ALIKE:
            yield _scalar(
                f"theano.{name}",
                f'theano.elemwise OPERANDS {{scalar_op = "{name}"}}',
                row.arity or 2,
            )
    for name, ufunc in UFUNCS.items():
        yield _scalar(
            f"numpy.{name}", f'numpy.elementwise OPERANDS {{ufunc = "{name}"}}', ufunc.arity
        )
    for name, op in OPERATORS.items():
        if op.dialect == "dali" and issubclass(op, Pointwise):
            yield _scalar(f"{name}.elements", f"{name} OPERANDS", *(1, 2, 3))


def _scalar(name: str, operation: str, *arities: int) -> Part:
    """The part of a function, which has the first of these numbers of operands that it takes."""

    def run(compile: Callable[..., Any], name: str) -> Outcome:
        found: Outcome = []
        dialect, function_name, *_ = name.split(".")
        for element in ELEMENTS[dialect][: 1 if function_name in LONG else None]:
            modules = (_of_elements(operation, arity, element) for arity in arities)
            if (module := next(filter(None, modules), None)) is not None:
                function = compile(module, "main")
                for kind in (TAME, EDGES):
                    found += called(
                        function, arguments(module, "main", f"{name} {element} {kind}", kind, {})
                    )
        return found

    return Part(name, traced=run)


def _of_elements(operation: str, arity: int, element: str) -> Module | None:
    """The program of a scalar function; None where it does not take the element type."""
    names = "abc"[:arity]
    given = ", ".join(f"%{a}: tensor<{SCALARS}x{element}>" for a in names)
    operands = ", ".join(f"%{a}" for a in names)
    body = operation.replace("OPERANDS", operands)
    try:
        return cvm.parse(f"func @main({given}) {{\n  %y = {body}\n  return %y\n}}\n")
    except cvm.Error:
        return None


# programs at random sizes

SUM = "theano.sum %x {axis = AXES, acc_dtype = T}"
BODIES: dict[str, tuple[str, str, str]] = {  # a body, the arguments' types, and element types
    "chain": (
        "%t = dali.mul %x, %w\n  %u = dali.sub %t, %x\n  %y = dali.clamp %u, -40, 90",
        "?M x ?N, ?M x ?N",
        "f32 f64 i32 ui8",
    ),
    "rows_and_columns": ("%y = dali.add %x, %w", "?M x 1, 1 x ?N", "f32 i32 i8"),
    "sum_0": ("%y = theano.sum %x {axis = [0], acc_dtype = T}", "?M x ?N", "f32 f64 i32"),
    "sum_1": ("%y = theano.sum %x {axis = [1], acc_dtype = T}", "?M x ?N", "f32 f64 i32"),
    "sum_all": (
        "%y = theano.sum %x {axis = [0, 1, 2], acc_dtype = T}",
        "?M x ?N x 3",
        "f32 f64 i32",
    ),
    "sum_outer": (
        "%y = theano.sum %x {axis = [0, 2], acc_dtype = T}",
        "?M x ?N x ?K",
        "f32 f64 i32",
    ),
    "product": ("%y = theano.prod %x {axis = [1], acc_dtype = T}", "?M x ?N", "f32 f64"),
    "largest": ("%y = theano.max %x {axis = [1]}", "?M x ?N", "i32 i8"),
    "matmul": (
        '%p = theano.dimshuffle %x {new_order = [0, 1, "x"]}\n'
        '  %q = theano.dimshuffle %w {new_order = ["x", 0, 1]}\n'
        "  %r = dali.mul %p, %q\n  %y = theano.sum %r {axis = [1], acc_dtype = T}",
        "?M x ?K, ?K x ?N",
        "f32 f64 i32",
    ),
    "dense": ("%t = cvm.dense %x, %w\n  %y = cvm.relu %t", "?M x ?K, ?N x ?K", "i32"),
    "conv2d": (
        "%y = cvm.conv2d %x, %w {padding = [1, 1]}",
        "?M x 3 x ?H x ?W, ?N x 3 x 3 x 3",
        "i32",
    ),
    "depthwise": (
        "%y = cvm.conv2d %x, %w {padding = [1, 1], groups = 5}",
        "?M x 5 x ?H x ?W, 5 x 1 x 3 x 3",
        "i32",
    ),
    "pool": (
        "%y = cvm.max_pool2d %x {pool_size = [3, 3], strides = [2, 2], padding = [1, 1]}",
        "?M x 3 x ?H x ?W",
        "i32",
    ),
    "transpose": ("%y = cvm.transpose %x {axes = [2, 0, 1]}", "?M x ?N x ?K", "i32"),
    "softmax": (
        "%m = theano.max %x {axis = [1]}\n"
        '  %n = theano.dimshuffle %m {new_order = [0, "x"]}\n  %d = dali.sub %x, %n\n'
        "  %e = dali.exp %d\n  %s = theano.sum %e {axis = [1], acc_dtype = T}\n"
        '  %t = theano.dimshuffle %s {new_order = [0, "x"]}\n  %y = dali.div %e, %t',
        "?M x ?N",
        "f32 f64",
    ),
}
SIZES = {"M": 40, "N": 70, "K": 130, "H": 20, "W": 30}  # one more than the largest
CALLS = 10  # with sizes of their own, of a program
LARGE: dict[str, dict[str, int]] = {  # sizes that threads share
    "chain": {"M": 300, "N": 1001},
    "sum_1": {"M": 3, "N": 300_001},
    "matmul": {"M": 130, "N": 257, "K": 300},
    "conv2d": {"M": 2, "N": 33, "H": 60, "W": 61},
    "softmax": {"M": 400, "N": 501},
}


def sized_programs() -> Iterator[Part]:
    for name, (body, types, every) in BODIES.items():
        for element in every.split():
            calls = [(TAME, _sizes(f"{name} {n}")) for n in range(CALLS)]
            calls[1] = (EDGES, calls[1][1])
            if name in LARGE:
                calls.append((TAME, LARGE[name]))
            yield Part(f"sizes.{name}.{element}", program_text(body, types, element), tuple(calls))
            known = LARGE.get(name, _sizes(f"{name} known"))
            text = program_text(body, types, element)
            for size, n in known.items():
                text = text.replace(f"?{size} ", f"{n} ")
            yield Part(f"known.{name}.{element}", text, ((TAME, {}), (EDGES, {})))


def _sizes(name: str) -> dict[str, int]:
    return {s: 1 + n for s, n in zip(SIZES, below(name, [*SIZES.values()]), strict=True)}


def program_text(body: str, types: str, element: str) -> str:
    """The program of a body, whose sizes are open."""
    given = ", ".join(
        f"%{a}: tensor<{t} x {element}>" for a, t in zip("xw", types.split(", "), strict=False)
    )
    body = body.replace("= T}", f"= {element}}}")
    return f"func @main({given}) {{\n  {body}\n  return %y\n}}\n"


# networks


def _floats(name: str, *shape: int, scale: int = 0) -> np.ndarray:
    """Weights of f32, made smaller by a power of two."""
    return np.ldexp(elements(name, ELEMENT_TYPES["f32"], shape, TAME), -scale).astype(np.float32)


def integers(compile: Callable[..., object], name: str) -> Outcome:
    """A convolutional network of integers, for batches of several sizes, its weights being
    constants.
    """
    shapes = {"w1": (16, 1, 3, 3), "w2": (32, 16, 3, 3), "w3": (10, 512)}
    constants = "".join(
        f"  %{w} = const "
        f"dense<{elements(f'{name} {w}', ELEMENT_TYPES['i32'], shape, TAME, (-127, 127)).tolist()}>"
        f" : tensor<{'x'.join(map(str, shape))}xi32>\n"
        for w, shape in shapes.items()
    )
    module = cvm.parse(f"""func @main(%images: tensor<?N x 1x8x8xi32> {{range = [0, 16]}}) {{
{constants}  %sum1 = cvm.conv2d %images, %w1 {{padding = [1, 1]}}
  %short1 = cvm.cvm_right_shift %sum1 {{precision = 8, shift_bit = 5}}
  %layer1 = cvm.relu %short1
  %sum2 = cvm.conv2d %layer1, %w2 {{padding = [1, 1]}}
  %short2 = cvm.cvm_right_shift %sum2 {{precision = 8, shift_bit = 7}}
  %layer2 = cvm.relu %short2
  %blocks = cvm.max_pool2d %layer2 {{pool_size = [2, 2], strides = [2, 2]}}
  %rows = cvm.reshape %blocks {{target_shape = [-1, 512]}}
  %scores = cvm.dense %rows, %w3
  return %scores
}}
""")
    function = compile(module, "main")
    return [
        array
        for n in (1, 6, 17)
        for array in called(function, arguments(module, "main", f"{name} {n}", TAME, {"N": n}))
    ]


def long_sums(compile: Callable[..., object], name: str) -> Outcome:
    """Sums of more than 262,144 terms, which go by blocks, for one row and for several."""
    terms = (1 << 18) + 4101
    x, w = _floats(f"{name} x", 7, terms), _floats(f"{name} w", terms, 9)

    def sums(x: Any, w: Any) -> Any:
        return x @ w, x.sum(1), w.sum(0), (x * x).sum()

    function = compile(sums)
    return [array for m in (1, 5, 7) for array in called(function, (x[:m], w))]


def attention(compile: Callable[..., object], name: str) -> Outcome:
    """A layer of attention in floats, with layer normalization and a feed-forward network."""
    n, d, h = 33, 64, 96
    q, k, v, o = (_floats(f"{name} {w}", d, d, scale=4) for w in "qkvo")
    up, down = _floats(f"{name} up", d, h, scale=4), _floats(f"{name} down", h, d, scale=4)

    def normalized(x: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt((centered * centered).mean(-1, keepdims=True) + np.float32(1e-5))

    def layer(x: object) -> Any:
        y = normalized(x)
        scores = (y @ q) @ (y @ k).T * np.float32(0.125)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
        x = x + (weights @ (y @ v)) @ o
        return x + np.tanh(normalized(x) @ up) @ down

    return called(compile(layer), (_floats(f"{name} x", n, d),))


def training(compile: Callable[..., Any], name: str) -> Outcome:
    """Three steps of gradient descent on a classifier of two layers."""
    x, labels = _floats(f"{name} x", 48, 20), np.eye(6, dtype=np.float32)[np.arange(48) % 6]
    weights = [_floats(f"{name} w1", 20, 32, scale=3), _floats(f"{name} w2", 32, 6, scale=3)]

    def loss(w1: Any, w2: Any, x: Any, labels: object) -> Any:
        scores = np.tanh(x @ w1) @ w2
        scores = scores - scores.max(-1, keepdims=True)
        return (np.log(np.exp(scores).sum(-1)) - (scores * labels).sum(-1)).mean()

    function = compile(loss)
    gradient = cvm.grad(function, (0, 1))
    found: Outcome = []
    for _ in range(3):
        found += [np.asarray(function(*weights, x, labels)), *gradient(*weights, x, labels)]
        rate = np.float32(0.5)
        weights = [w - rate * g for w, g in zip(weights, found[-2:], strict=True)]
    return [*found, *weights]


def diffusion(compile: Callable[..., Any], name: str) -> Outcome:
    """A graph whose field diffuses and reacts, tick by tick."""
    shape = (23, 37)
    module = cvm.parse(f"""graph @main {{
  %u = cog.field "u" init dense<0.5> : !cog.field<[{shape[0]}, {shape[1]}], f32>
  %up = cog.shift_cyclic %u {{amount = [1, 0]}}
  %down = cog.shift_cyclic %u {{amount = [-1, 0]}}
  %left = cog.shift_cyclic %u {{amount = [0, 1]}}
  %right = cog.shift_cyclic %u {{amount = [0, -1]}}
  %a = cog.add %up, %down
  %b = cog.add %left, %right
  %c = cog.add %a, %b
  %d = cog.mul %c, 0.24
  %e = cog.mul %d, %d
  %f = cog.sub %d, %e
  %next = cog.mul %f, 1.7
  cog.feedback %u, %next
}}
""")
    graph = compile(module, "main")
    graph.reset()
    graph.write("u", np.abs(_floats(f"{name} u", *shape, scale=3)))
    graph.step(20)
    return [graph.read("u")]
