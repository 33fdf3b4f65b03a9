"""The paths to native code, each forced: what is set in the compiler, what becomes of a case's
program, and how it is called.

Costs decide which path a program takes, and cases are small: without this, most of them would go
only one way. What needs many rows, columns or terms, whatever it costs, is computed as part of a
larger case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
from conformance_cases import Case
from contraction_programs import preferred
from cvm.dialect.builtin import Data
from cvm.dialect.ir.program_printer import print_module
from cvm.jit.cache.keys import environment
from cvm.lowering import pipeline
from cvm.lowering.processor import AVX2_PRODUCTS, DOT_PRODUCTS, named
from enlarge_contractions import larger
from llvmlite import binding as llvm
from tuning import tuned

import cvm

Arrays = dict[str, np.ndarray]
Given = list[np.ndarray]
ARGUMENT = r"(%\w+): (tensor<((?:\d+x)*)(\w+|complex<\w+>)>)"
TYPED = re.compile(ARGUMENT + r"(?! *\{)")  # and nothing else is said of it


def _as_it_is(case: Case, known: Arrays) -> Case:
    return case


def _plainly(function: Any, given: Given, case: Case) -> Any:
    return function(*given)


@dataclass(frozen=True)
class Path:
    """One of them. `settings` are by the name of what they set, those without dots being fields of
    the processor or of its tuning; a program that cannot be `rewritten` stays away.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    rewritten: Callable[[Case, Arrays], Case | None] = _as_it_is
    called: Callable[[Any, Given, Case], Any] = _plainly
    optimize: int = 2
    threads: int = 1
    kept: bool = False  # on disk, and compiled once more
    only: tuple[str, ...] = ()  # the operators whose cases go this way, if not all do
    seen: str = ""  # in the kernels of some case that goes this way,
    of: str = "cvm.conv2d"  # of this operator

    @contextmanager
    def taken(self, folder: File) -> Iterator[None]:
        """While the path is taken by what is compiled and called."""
        before = cvm.get_num_threads()
        environment()  # is remembered: that of this machine
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CVM_CACHE_DIR", str(folder) if self.kept else "")
            for name, value in self.settings.items():
                if "." in name:
                    patch.setattr(name, value)
            cvm.set_num_threads(self.threads)
            fields = {name: value for name, value in self.settings.items() if "." not in name}
            try:
                with tuned(**fields) if fields else nullcontext():
                    yield
            finally:
                cvm.set_num_threads(before)


def _main(program: str) -> tuple[str, str, str]:
    """A program before the arguments of @main, these, and what follows."""
    before, main, rest = program.partition("func @main(")
    depth, end = 1, 0
    while depth:
        depth += {"(": 1, ")": -1}.get(rest[end], 0)
        end += 1
    return before + main, rest[: end - 1], rest[end - 1 :]


def _without_results(rest: str) -> str:
    """The same where nothing is said of result types, which follow from others."""
    return re.sub(r"^\) *->.*\{$", ") {", rest, count=1, flags=re.M)


def _of_unknown_sizes(case: Case, known: Arrays) -> Case | None:
    """With all sizes but 1 left open: a size of 1 is one that is broadcast."""
    if "func @main(" not in case["program"]:
        return None
    before, arguments, rest = _main(case["program"])
    opened = TYPED.sub(
        lambda m: (
            f"{m[1]}: tensor<{re.sub('[0-9]+', lambda n: '1' if n[0] == '1' else '?', m[3])}{m[4]}>"
        ),
        arguments,
    )
    return _accepted(case, before + opened + _without_results(rest))


def _of_declared_ranges(case: Case, known: Arrays) -> Case | None:
    """With the least and the largest number of each argument said."""
    if "func @main(" not in case["program"]:
        return None
    before, arguments, rest = _main(case["program"])
    given = iter(case["inputs"])

    def declared(m: re.Match[str]) -> str:
        array = known[next(given)]
        if m[5] or array.dtype.kind not in "iu" or not array.size:
            return m[0]
        return f"{m[0]} {{range = [{array.min()}, {array.max()}]}}"

    return {**case, "program": before + re.sub(ARGUMENT + r"( *\{)?", declared, arguments) + rest}


def _clipped(case: Case, known: Arrays) -> Case | None:
    """With arguments that become arrays of known ranges first."""
    if not case["op"].startswith("cvm.") or "func @main(" not in case["program"]:
        return None
    before, arguments, rest = _main(case["program"])
    head, brace, body = rest.partition("{\n")
    clips = ""
    for m, name in zip(TYPED.finditer(arguments), case["inputs"], strict=False):
        array = known[name]
        if m[4] == "i32" and array.size:
            clips += (
                f"  {m[1]}.clipped = cvm.clip {m[1]} {{a_min = {array.min()}, a_max = "
                f"{max(int(array.max()), int(array.min()) + 1)}}}\n"
            )
            body = re.sub(rf"{m[1]}\b", f"{m[1]}.clipped", body)
    return _accepted(case, before + arguments + head + brace + clips + body)


def _of_constants(case: Case, known: Arrays) -> Case | None:
    """With all arguments but the first as constants."""
    if "func @main(" not in case["program"] or len(case["inputs"]) < 2 or case.get("after"):
        return None
    before, arguments, rest = _main(case["program"])
    found = list(TYPED.finditer(arguments))
    if len(found) != len(case["inputs"]):
        return None
    constants = "".join(
        f"  {m[1]} = const {Data(known[name]).text} : {m[2]}\n"
        for m, name in zip(found[1:], case["inputs"][1:], strict=True)
    )
    head, brace, body = rest.partition("{\n")
    program = f"{before}{arguments[: found[0].end()]}{head}{brace}{constants}{body}"
    return _accepted({**case, "inputs": case["inputs"][:1]}, program)


def _in_generic_form(case: Case, known: Arrays) -> Case | None:
    try:
        return {**case, "program": print_module(cvm.parse(case["program"]), generic=True)}
    except cvm.Error:
        return None


def _many_ticks_at_once(case: Case, known: Arrays) -> Case | None:
    """A script that begins anew before each reading, and goes there in one step."""
    script: list[list[Any]] = []
    ticks = 0
    for command, *arguments in case.get("script", ()):
        if command == "read":
            script += [["reset"], ["step", ticks], ["read"]]
        elif command == "step":
            ticks += arguments[0]
        elif command == "reset":
            ticks = 0
        else:
            return None
    return {**case, "script": script} if script else None


def _accepted(case: Case, program: str) -> Case | None:
    """The case with another program, if that is a valid one."""
    try:
        cvm.parse(program)
    except cvm.Error:
        if case["valid"]:
            return None
    return {**case, "program": program}


def _into_arrays(function: Any, given: Given, case: Case) -> Any:
    """Results in arrays that are there, full of something else."""
    if not hasattr(function, "lower"):
        return function(*given)
    made = function(*(a.copy() for a in given))
    if not isinstance(made, tuple):
        return function(*given, out=_full(made))
    return function(*given, out=tuple(map(_full, made))) if made else function(*given)


def _full(like: np.ndarray) -> np.ndarray:
    held = np.empty(like.shape, like.dtype)
    held.reshape(-1).view(np.uint8)[...] = 1
    return held


def _apart(function: Any, given: Given, case: Case) -> Any:
    """Arguments whose elements do not lie beside each other, backwards."""
    spread = []
    for array in given:
        held = np.zeros([2 * n for n in array.shape], array.dtype)
        view = held[(..., *(slice(None, None, -2) for _ in array.shape))]
        view[...] = array
        spread.append(view)
    returned = function(*spread)
    for array, view in zip(given, spread, strict=True):
        array[...] = view
    return returned


def _known_weights(case: Case, known: Arrays, **how: bool) -> Case | None:
    """Part of a larger case whose weights are constant."""
    made = larger(case, known, **how)
    return None if made is None else _of_constants(made, known)


def _known_weights_of_ranges(case: Case, known: Arrays) -> Case | None:
    """With the weights as constants, and the range of the rest said."""
    made = _of_constants(case, known)
    return None if made is None else _of_declared_ranges(made, known)


def _part(function: Any, given: Given, case: Case) -> Any:
    """Those results of a larger case that were recorded."""
    return function(*given)[case["part"]]


WINOGRAD = ("winograd",)
F = "cvm.lowering.reductions"
SMALL = {"packing_products": 0, "packed_rows": 1, "packed_terms": 1}
SHARED = {"wake_operations": 0, "task_reductions": 8, "task_iterations": 32, "share_tiles": 1}
PLAIN = {"dot_products": AVX2_PRODUCTS, "vector_registers": 16}
QUADS = {"dot_products": DOT_PRODUCTS, "vector_registers": 16}
UPRIGHT = SMALL | {"strategy_costs": preferred("int8_dot_product_row_lanes", WINOGRAD)} | QUADS
TILES = SMALL | {"strategy_costs": preferred("matrix_tiles", WINOGRAD), "matrix_tiles": "loops"}
LOOKED = {"checked_bytes": 16, "parallel_checked_bytes": 16}
SUMS = "cvm.elemwise_add", "cvm.sum", "dali.add", "theano.elemwise", "theano.sum"
STREAMS = {"l3_bytes": 2, "align_vectors": 0}
STREAMS |= dict.fromkeys(
    ("tile_write_bytes", "tile_read_bytes", "tile_copy_bytes", "short_row_bytes"), 0
)
IN_BLOCKS = {
    f"{F}.blocked_sums.MIN_TERMS": 1,
    "cvm.lowering.analysis.reduction_order.BLOCK_TERMS": 16,
    "l2_bytes": 0,
    "column_pitch_bytes": 1,
}
IN_BLOCKS |= {f"{F}.split_reduction.MIN_TERMS": 1, f"{F}.reduction_versions.MIN_TERMS": 1}
IN_BLOCKS |= {"column_extent": 2, "cached_operations": 0, "fused_rows": 1}


TURNED = {f"winograd_{name}": 0 for name in ("rows", "tiles", "steps", "results")}
BY_TWO = {"strategy_costs": preferred("winograd_2x2", ("winograd_4x4",))}
BY_FOUR = {"strategy_costs": preferred("winograd_4x4", ("winograd_2x2",))}
NOT_TURNED = {"strategy_costs": preferred(without=WINOGRAD)}
CONTRACTIONS, TRANSPOSITIONS = ("cvm.conv2d", "cvm.dense"), ("cvm.transpose",)
SHORT = {"short_axis_trips": 0, "wake_operations": 0, "widening_steps": 0}
SHORT |= {"depthwise_columns": 0, "depthwise_terms": (0, 1 << 16)}


AT_ONCE: dict[str, Any] = {"ticks_at_once": 2}
AT_ONCE |= {"skewed_ticks": 2, "l3_bytes": 0, "skewed_rows": 1}


APART = dict.fromkeys(("fused_nodes", "fused_kernel_nodes", "fused_lookback"), 0)
NARROW = {"l2_bytes": 0, "narrow_reads": 1 << 20}


OLD = {**vars(named("x86-64"))} if "x86_64" in llvm.get_default_triple() else {}


PATHS = {
    "as costs say": Path(),
    "no optimization": Path(optimize=0),
    "no optimization, kept on disk": Path(optimize=0, kept=True),
    "no passes over loops": Path(
        {"skipped_passes": (*(p.name for p in pipeline.NESTS), "nontemporal_stores", "prefetch")}
    ),
    "no vectors": Path(
        {"skipped_passes": ("vectorize", "tiled_transpose", "vectorize_short_axis")}
    ),
    "no passes over graphs": Path({"skipped_passes": ("simplify", "fold_constants", "cse", "dce")}),
    "nothing fused": Path(APART),
    "panels": Path(SMALL, seen="pairdot("),
    "panels, weights known": Path(SMALL, _of_constants, seen="pairdot("),
    "panels, sums wait": Path(SMALL | {"long_epilogue": 0}, only=CONTRACTIONS, seen="%waiting"),
    "turned windows": Path(SMALL | TURNED | BY_TWO, only=CONTRACTIONS, seen=".turned("),
    "turned windows, weights known": Path(
        SMALL | TURNED | BY_FOUR, _of_constants, only=CONTRACTIONS, seen="x36x1x"
    ),
    "larger, turned windows": Path(
        SMALL | TURNED | BY_TWO,
        partial(larger, windows=True),
        _part,
        only=CONTRACTIONS[:1],
        seen=".turned(",
    ),
    "larger, turned windows, weights known": Path(
        SMALL | TURNED | BY_FOUR,
        partial(_known_weights, windows=True),
        _part,
        only=CONTRACTIONS[:1],
        seen="x36x8x",
    ),
    "larger, four products added": Path(
        SMALL | NOT_TURNED | QUADS, _known_weights, _part, only=CONTRACTIONS
    ),
    "larger, vectors of rows": Path(
        UPRIGHT, partial(_known_weights, signless=True), _part, only=CONTRACTIONS[:1]
    ),
    "larger, vectors of rows, signs": Path(
        UPRIGHT | {"place_steps": 0}, _known_weights, _part, only=CONTRACTIONS[:1]
    ),
    "larger, matrix tiles": Path(TILES, _known_weights, _part, only=CONTRACTIONS, seen=" matrix {"),
    "matrix tiles": Path(TILES, _of_declared_ranges, only=CONTRACTIONS),
    "larger, bytes": Path(
        SMALL | NOT_TURNED | PLAIN,
        partial(larger, signless=True),
        _part,
        only=CONTRACTIONS,
        seen="bytepairs(",
    ),
    "larger, bytes, weights known": Path(
        SMALL | NOT_TURNED | PLAIN,
        partial(_known_weights, signless=True),
        _part,
        only=CONTRACTIONS,
        seen="bytepairs(",
    ),
    "larger, tiles": Path(
        {}, larger, _part, only=TRANSPOSITIONS, seen=".tile in", of="cvm.transpose"
    ),
    "larger, strips": Path(
        STREAMS, larger, _part, only=TRANSPOSITIONS, seen=" overlap ", of="cvm.transpose"
    ),
    "larger, planes": Path(
        SHORT | STREAMS,
        partial(larger, short=True),
        _part,
        only=TRANSPOSITIONS,
        seen="%planes",
        of="cvm.transpose",
    ),
    "streams": Path(STREAMS, seen="streaming", of="cvm.elemwise_add"),
    "short rows": Path(SHORT, seen="for %l in", of="cvm.broadcast_div"),
    "windows as words": Path(SHORT, _known_weights_of_ranges, only=CONTRACTIONS, seen=".windows("),
    "reductions in blocks": Path(IN_BLOCKS, seen="%part", of="theano.sum"),
    "narrow in memory": Path(APART | NARROW, _clipped, seen="xi8>"),
    "many ticks in one call": Path(AT_ONCE, _many_ticks_at_once),
    "numbers in rows": Path(
        {"group_scalars": 2},
        _many_ticks_at_once,
        seen="%scalars.f32.next: tensor",
        of="cog.feedback",
    ),
    "two threads": Path(SHARED, threads=2, seen=" parallel ", of="dali.add"),
    "two threads, declared ranges": Path(
        SHARED | LOOKED, _of_declared_ranges, threads=2, only=SUMS
    ),
    "three threads, panels": Path(SMALL | SHARED, threads=3, seen="pairdot("),
    "unknown sizes": Path(rewritten=_of_unknown_sizes, seen="<?"),
    "unknown sizes, panels": Path(SMALL, _of_unknown_sizes, seen="pairdot("),
    "declared ranges": Path(rewritten=_of_declared_ranges),
    "constants": Path(rewritten=_of_constants, seen="xi8>"),
    "four products added": Path(SMALL | QUADS, _of_declared_ranges),
    "generic form": Path(rewritten=_in_generic_form),
    "an old processor": Path(OLD),
    "an old processor, panels": Path(OLD | SMALL, only=CONTRACTIONS, seen="pairdot("),
    "calls by ctypes": Path({"cvm.jit.calls.fastcall.usable": lambda: False}),
    "results into arrays": Path(called=_into_arrays),
    "arguments apart": Path(called=_apart),
    "kept on disk": Path(kept=True),
}
