"""Prove cvm's own rewrites of integers, and write the table of docs/proofs.md.

Each row runs a pass on programs, and proves each program equal to the result of the pass: both
sides are those that a compilation has. A program that the pass leaves as it was is a mistake.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
from cvm.dialect.ir.function import Graph
from cvm.dialect.kernel_ir.expressions import Expr, Index, Tensor, apply
from cvm.dialect.kernel_ir.formulas import Formula, Formulas
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.theano.algebraic_identities import INVOLUTIONS, NEUTRAL, holds
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, I32
from cvm.jit.functions.formula_function import FormulaReference
from cvm.jit.host_processor import resolve
from cvm.lowering.analysis.interval_arithmetic import ELEMENTWISE, SCALAR
from cvm.lowering.loops.expand_functions import WORDS
from cvm.lowering.loops.saturating_narrow import NARROWED
from cvm.lowering.passes import run_passes
from cvm.lowering.pipeline import context_of
from cvm.lowering.processor import compiling_for

import cvm
from cvm.proving.equivalence import (
    Program,
    Verdict,
    program_after,
    program_of,
    prove,
    tested,
    tuple_of,
)
from cvm.terminal.operator_pages import by_dialect
from cvm.terminal.run_pipeline import chosen_passes, complete
from cvm.terminal.watch_passes import text_of

PAGE = Path(__file__).parent / "proofs.md"
BEGIN, END = "<!-- proofs -->", "<!-- end of proofs -->"
SECONDS = 60.0  # for the terms and for z3, of each program (by hand)
INTEGERS = [e for e in ELEMENT_TYPES.values() if e.is_integer]
DISCRETE = [e for e in ELEMENT_TYPES.values() if e.is_discrete]
Verdicts = Iterator[tuple[str, Verdict]]  # with the program of each, or what it is of


@dataclass(frozen=True)
class Row:
    """A row of the table: the rewrite, the file that does it, and the verdicts on its programs."""

    rewrite: str
    file: str
    verdicts: Callable[[], Verdicts]


def by_passes(
    passes: str,
    programs: Callable[[], Iterator[str]],
    cpu: str = "",
    expected: str = "",
    **settings: int,
) -> Callable[[], Verdicts]:
    """The verdicts on programs before and after passes, the last of which changes each of them;
    what that gives has the `expected` text. `settings` are those of the processor.
    """

    def verdicts() -> Verdicts:
        steps, form = complete(chosen_passes(passes, None), "graph")
        for text in programs():
            module = cvm.parse(text)
            found = resolve(cpu) if cpu else None
            found = replace(found, **settings) if found is not None else None
            with compiling_for(found):
                context = context_of(module, module.functions["main"])
                item = module.functions["main"]
                texts = [text_of(run_passes(p, item, context)) for p in (steps[:-1], steps)]
                assert texts[0] != texts[1] and expected in texts[1], f"unchanged:\n{texts[1]}"
                after = program_after(module, "main", steps)
            before = program_of(module, "main", compiled=form == "loops")
            yield text, prove(before, after, SECONDS)

    return verdicts


# Programs


def elementwise(types: str, *lines: str) -> str:
    """A program of elementwise operations; %x, %y ... have these types."""
    arguments = ", ".join(
        f"%{n}: tensor<{t}>" if not t.startswith("tensor") else f"%{n}: {t}"
        for n, t in zip("xyz", types.split(" ; "), strict=False)
    )
    body = "\n  ".join(lines)
    return f"func @main({arguments}) {{\n  {body}\n  return %r\n}}\n"


def scalar(op: str, *operands: str, to: str = "r", dtype: str = "") -> str:
    more = f", dtype = {dtype}" if dtype else ""
    return f'%{to} = theano.elemwise {", ".join(operands)} {{scalar_op = "{op}"{more}}}'


def ufunc(name: str, *operands: str, to: str = "r", dtype: str = "") -> str:
    more = f", dtype = {dtype}" if dtype else ""
    return f'%{to} = numpy.elementwise {", ".join(operands)} {{ufunc = "{name}"{more}}}'


def neutral() -> Iterator[str]:
    for (name, (value, places)), e in product(NEUTRAL.items(), INTEGERS):
        for place in range(places if name != "true_div" else 0):  # which gives floats
            operands = ["%x", f"{value} : {e}"]
            yield elementwise(f"?N x {e}", scalar(name, *operands[:: -1 if place else 1]))


def twice() -> Iterator[str]:
    for name, e in product(INVOLUTIONS, INTEGERS):
        if name != "conj":
            yield elementwise(f"?N x {e}", scalar(name, "%x", to="y"), scalar(name, "%y"))
    for e in INTEGERS:
        yield elementwise(f"?N x {e}", scalar("abs_", "%x", to="y"), scalar("abs_", "%y"))
    for name, e in product(("maximum", "minimum", "and_", "or_"), INTEGERS):
        yield elementwise(f"?N x {e}", scalar(name, "%x", "%x"))
    for e in INTEGERS:
        yield elementwise(f"?N x i1 ; ?N x {e}", scalar("switch", "%x", "%y", "%y"))


def casts() -> Iterator[str]:
    for narrow, wide in product(DISCRETE, DISCRETE):
        if narrow is not wide and holds(wide, narrow):
            there = scalar("cast", "%x", to="y", dtype=wide.name)
            yield elementwise(f"?N x {narrow}", there, scalar("cast", "%y", dtype=narrow.name))


def moves() -> Iterator[str]:
    for e in ("f32", "i8", "complex<f64>"):
        for first, second in (([1, 0], [1, 0]), ([1, "x", 0], [2, 0, "x"])):
            texts = [str(order).replace("'", '"') for order in (first, second)]
            yield elementwise(
                f"?N x ?M x {e}",
                f"%y = theano.dimshuffle %x {{new_order = {texts[0]}}}",
                f"%r = theano.dimshuffle %y {{new_order = {texts[1]}}}",
            )


def rounding_shifts() -> Iterator[str]:
    for bits in range(1, 32):
        yield elementwise(
            "tensor<?N x i32> {range = [-1000000, 1000000]}",
            f"%r = cvm.cvm_right_shift %x {{precision = 32, shift_bit = {bits}}}",
        )


NARROW = "tensor<?N x i32> {range = [-20000, 20000]}"
WIDE = [ufunc("astype", f"%{n}", to=f"{n}w", dtype="i64") for n in "xy"]


def narrowed() -> Iterator[str]:
    for name in (
        *("add", "subtract", "multiply"),
        *("bitwise_and", "bitwise_or", "bitwise_xor"),
    ):
        yield elementwise(f"{NARROW} ; {NARROW}", *WIDE, ufunc(name, "%xw", "%yw"))
    for name, by in (("left_shift", 3), ("right_shift", 5), ("right_shift", 40)):
        yield elementwise(NARROW, WIDE[0], ufunc(name, "%xw", f"{by} : i64"))
    yield elementwise(
        "tensor<?N x i32> {range = [0, 100]} ; tensor<?N x i32> {range = [100, 200]}",
        *WIDE,
        ufunc("maximum", "%xw", "%yw"),
    )
    positive = "tensor<?N x i32> {range = [0, 100]}"
    yield elementwise(positive, WIDE[0], ufunc("bitwise_and", "%xw", "127 : i64"))


def requantized() -> Iterator[str]:
    for shift in (32, 36, 38, 44):
        yield elementwise(
            "tensor<?N x i32> {range = [-100000, 100000]}",
            f"%r = quant.requantize %x, 1518500250, {shift} "
            '{rounding = "tflite_double", zero_point = 3}',
        )


def rounded_at_once() -> Iterator[str]:
    yield elementwise(
        "tensor<?N x i32> {range = [-1000000, 1000000]}",
        '%r = quant.requantize %x, 0.5 : f32 {rounding = "half_even_f32"}',
    )


def clamped() -> Iterator[str]:
    for wide, narrow in NARROWED:
        low, high = narrow.limits
        for least, most in ((low, 100), (low + 5, high), (low + 5, 100)):
            yield elementwise(
                f"8x{wide}",
                scalar("minimum", "%x", f"{most} : {wide}", to="y"),
                scalar("maximum", "%y", f"{least} : {wide}", to="z"),
                scalar("cast", "%z", dtype=narrow.name),
            )


def zero_points() -> Iterator[str]:
    weights = "[[[[1], [2]], [[3], [4]]], [[[1], [2]], [[3], [4]]]]"
    yield elementwise(
        "1x2x2x1xi8",
        f"%w = const dense<{weights}> : tensor<2x2x2x1xi8>",
        "%b = const dense<[10, -10]> : tensor<2xi32>",
        "%z = const dense<[0, 1]> : tensor<2xi32>",
        "%r = quant.conv2d %x, %w, 1, %z, %b {padding = [0, 0, 1, 1]}",
    )
    yield elementwise(
        "?Nx2xui8 ; 2xi32",
        "%w = const dense<[[128, 130], [0, 255]]> : tensor<2x2xui8>",
        "%r = quant.dense %x, %w, 100, 128, %y",
    )
    yield elementwise(
        "?Nx3xi8",
        "%w = const dense<[[1, -2, 3], [-128, 127, 0]]> : tensor<2x3xi8>",
        "%r = quant.dense %x, %w, -128, 0",
    )


def dense_bytes() -> Iterator[str]:
    random = np.random.default_rng(0)
    weights = random.integers(-127, 128, (16, 8)).tolist()
    yield elementwise(
        "4x8xi8",
        f"%w = const dense<{weights}> : tensor<16x8xi8>",
        "%r = quant.dense %x, %w, 0, 0",
    )


def scaled() -> Iterator[str]:
    for scale, ranges in product((0.0004, 0.003, 0.05), ("", " {range = [-300000, 300000]}")):
        yield elementwise(
            f"tensor<64xi32>{ranges}",
            scalar("cast", "%x", to="a", dtype="f64"),
            scalar("mul", "%a", f"{scale} : f64", to="b"),
            scalar("round_half_away_from_zero", "%b", to="c"),
            scalar("maximum", "%c", "-142.0 : f64", to="d"),
            scalar("minimum", "%d", "113.0 : f64", to="e"),
            scalar("cast", "%e", dtype="i32"),
        )


# Other verdicts


def reciprocals() -> Verdicts:
    """The formula of `quant.reciprocal` against its steps in Python's integers."""
    text = elementwise("64xi32", "%r = quant.reciprocal %x")
    module = cvm.parse(text)
    steps, _ = complete(chosen_passes("fuse", None), "graph")
    yield text, tested(program_of(module, "main"), program_after(module, "main", steps), "")


def packed_words() -> Verdicts:
    """Functions of bytes and halves of words, against shifts and products of the words."""
    module = cvm.parse(elementwise("?N x i32 ; ?N x i32", scalar("add", "%x", "%y")))
    function, size = module.functions["main"], Size.named("N")
    x, y, r = (Tensor(name, (size,), I32) for name in "xyr")
    i = Index("i", size)
    for name, expansion in WORDS.items():

        def program(value: Expr) -> Program:
            formulas = Formulas("main", (x, y), (r,), {}, (Formula(r, (i,), value),), ())
            return Program("", function, formulas, tuple_of(FormulaReference(formulas)))

        yield name, prove(program(apply(name, x[i], y[i])), program(expansion(x[i], y[i])), SECONDS)


SMALL = range(-7, 8)  # the numbers whose intervals are all tried (by hand)


def intervals() -> Verdicts:
    """The bounds of each function, for all intervals of small numbers."""
    ends = [*combinations_with_replacement(SMALL, 2)]
    grid = np.array(SMALL, np.int64)
    rows: Mapping[str, Callable[..., Any]] = {**ELEMENTWISE, **SCALAR}
    for name, row in rows.items():
        if (arity := SCALARS[name].arity) == 1 and name != "any":
            values = SCALARS[name].numpy(grid)
            found = [((p,), values[p[0] + 7 : p[1] + 8]) for p in ends]
        elif arity == 2:
            with np.errstate(all="ignore"):
                values = np.asarray(SCALARS[name].numpy(grid[:, None], grid[None, :]))
            found = [
                ((p, q), values[p[0] + 7 : p[1] + 8, q[0] + 7 : q[1] + 8])
                for p, q in product(ends, ends)
            ]
        else:
            continue
        for given, inside in found:
            bounds = row(*given)
            assert bounds is None or bounds[0] <= inside.min() <= inside.max() <= bounds[1], (
                f"{name} of {given}: {bounds}"
            )
        yield name, Verdict(tests=len(found))


CANONICAL = (
    "canonicalize,fold_zero_points,cse,fuse,integer_ranges,rounding_shift,simplify_with_ranges"
)


def examples() -> Verdicts:
    """The example of every operator before and after the passes over graphs and formulas."""
    steps, _ = complete(chosen_passes(CANONICAL, None), "graph")
    for op in (op for ops in by_dialect().values() for op in ops if not op.has_effect):
        module = cvm.parse(dedent(op.example)) if op.example.strip() else None
        function = [*module.functions.values()][-1] if module else None
        if module and function and not isinstance(function, Graph) and op.name != "builtin.while":
            before, after = (
                program_of(module, function.name),
                program_after(module, function.name, steps),
            )
            yield op.name, prove(before, after, 2)


ROWS = (
    Row(
        "x * 1, 1 * x, x + 0, x // 1, x ** 1, x or 0, ... => x",
        "dialect/theano/algebraic_identities.py",
        by_passes("simplify", neutral),
    ),
    Row(
        "-(-x), ~(~x) => x; abs(abs(x)), max(x, x), x & x, c ? x : x => ...",
        "dialect/theano/algebraic_identities.py",
        by_passes("simplify", twice),
    ),
    Row(
        "narrow(wide(x)) => x",
        "dialect/theano/algebraic_identities.py",
        by_passes("simplify", casts),
    ),
    Row(
        "a transpose of a transpose => one transpose, or x",
        "dialect/theano/dimshuffle.py",
        by_passes("simplify", moves),
    ),
    Row(
        "(x >> n) + ((x >> n - 1) & 1) => (x + (1 << n - 1)) >> n",
        "lowering/formulas/rounding_shift.py",
        by_passes("fuse,integer_ranges,rounding_shift", rounding_shifts),
    ),
    Row(
        "arithmetic of i64 => of i32, where ranges show that it fits",
        "lowering/formulas/simplify_with_ranges.py",
        by_passes("fuse,integer_ranges,simplify_with_ranges", narrowed),
    ),
    Row(
        "requantisation => less of it, by ranges",
        "lowering/formulas/simplify_with_ranges.py",
        by_passes("fuse,integer_ranges,simplify_with_ranges", requantized),
    ),
    Row(
        "i32(rint(f32(x) * c)) => lrint, one instruction",
        "lowering/formulas/simplify_with_ranges.py",
        by_passes("fuse,integer_ranges,simplify_with_ranges", rounded_at_once, cpu="x86-64-v3"),
    ),
    Row(
        "narrow(clamp(x)) => clamp(saturate(x))",
        "lowering/loops/saturating_narrow.py",
        by_passes("fuse,saturating_narrow", clamped),
    ),
    Row(
        "sum of (x - zx) * (w - zw) + b => sum of x * v + b'",
        "lowering/graph/fold_zero_points.py",
        by_passes("canonicalize,fold_zero_points", zero_points),
    ),
    Row(
        "sum of x * w => sum of (x + 128) * w - 128 * sum of w, by VNNI",
        "lowering/contraction/sign_offset.py",
        by_passes(
            "fuse,lower_contraction",
            dense_bytes,
            cpu="znver4",
            expected="quaddot_us",
            packing_products=1,
        ),
    ),
    Row(
        "sum of x * w => sum of products of pairs, by vpmaddwd",
        "lowering/contraction/vnni_packing.py",
        by_passes(
            "fuse,lower_contraction",
            dense_bytes,
            cpu="x86-64-v3",
            expected="pairdot",
            packing_products=1,
        ),
    ),
    Row(
        "quaddot, pairdot, addhalves, ... => shifts and products",
        "lowering/loops/expand_functions.py",
        packed_words,
    ),
    Row(
        "round(f64(x) * c) => x * m + a >> s, without f64",
        "lowering/formulas/scale_by_integers.py",
        by_passes("fuse,scale_by_integers", scaled, cpu="cortex-m3"),
    ),
    Row(
        "2^62 / x by leading zeros and Newton's steps, in i64",
        "dialect/quant/fixed_point_reciprocal.py",
        reciprocals,
    ),
    Row(
        "the interval of f(x, y), for all intervals within [-7, 7]",
        "lowering/analysis/interval_arithmetic.py",
        intervals,
    ),
    Row(
        "all passes over graphs and formulas, on the example of each operator",
        "lowering/pipeline.py",
        examples,
    ),
)


def line(row: Row) -> str:
    """A row of the table, with how many programs have each verdict."""
    found = [v for _, v in row.verdicts()]
    assert not any(v.wrong for v in found), f"{row.rewrite} is wrong"
    kinds = Counter(v.kind for v in found)
    tests = [v.tests for v in found if v.kind != "proved"]
    texts = [
        kind
        + (f" ({n})" if len(kinds) > 1 else "")
        + (f" on {min(tests)} inputs or more" if kind == "tested" else "")
        for kind, n in kinds.items()
    ]
    rewrite = row.rewrite.replace("|", "\\|")
    return f"| `{rewrite}` | `{row.file}` | {len(found)} | {', '.join(texts)} |"


def main() -> int:
    head = ["| rewrite | file | programs | verdict |", "|---|---|---|---|"]
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    lines = []
    for row in ROWS:
        lines.append(line(row))
        print(lines[-1], file=sys.stderr, flush=True)
    PAGE.write_text("\n".join([before + BEGIN, *head, *lines, END + after]), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
