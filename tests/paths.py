"""The paths to native code, each forced: what is set in the compiler, what becomes of a case's program, and how it is called.

Costs decide which path a program takes, and cases are small: without this, most of them would go only one way. Too small to be
turned, cut into blocks or multiplied as bytes they are even so; tests of their own have larger ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
from cases import Case
from cvm.dialect.builtin import Data
from cvm.dialect.loops import Kernel
from cvm.dialect.printer import print_module
from cvm.jit.identity import environment
from cvm.lowering import schedule
from cvm.lowering.processor import Processor
from llvmlite import binding as llvm

import cvm

Arrays = Mapping[str, np.ndarray]
Given = list[np.ndarray]
TYPED = re.compile(r"(%\w+): (tensor<((?:\d+x)*)(\w+|complex<\w+>)>)(?! *\{)")


def _as_it_is(case: Case, known: Arrays) -> Case:
    return case


def _plainly(function: Any, given: Given) -> Any:
    return function(*given)


@dataclass(frozen=True)
class Path:
    """One of them. `settings` are by the name of what they set; a program that cannot be `rewritten` stays away."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    rewritten: Callable[[Case, Arrays], Case | None] = _as_it_is
    called: Callable[[Any, Given], Any] = _plainly
    threads: int = 1
    kept: bool = False  # on disk, and compiled once more
    seen: str = ""  # in the kernels of some convolution that goes this way

    @contextmanager
    def taken(self, folder: File) -> Iterator[None]:
        """While the path is taken by what is compiled and called."""
        before = cvm.get_num_threads()
        environment()  # is remembered: that of this machine
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CVM_CACHE_DIR", str(folder) if self.kept else "")
            for name, value in self.settings.items():
                patch.setattr(name, value)
            cvm.set_num_threads(self.threads)
            try:
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
        lambda m: f"{m[1]}: tensor<{re.sub('[0-9]+', lambda n: '1' if n[0] == '1' else '?', m[3])}{m[4]}>", arguments
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
        if array.dtype.kind not in "iu" or not array.size:
            return m[0]
        return f"{m[0]} {{range = [{array.min()}, {array.max()}]}}"

    return {**case, "program": before + TYPED.sub(declared, arguments) + rest}


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


def _accepted(case: Case, program: str) -> Case | None:
    """The case with another program, if that is a valid one."""
    try:
        cvm.parse(program)
    except cvm.Error:
        if case["valid"]:
            return None
    return {**case, "program": program}


def _into_arrays(function: Any, given: Given) -> Any:
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


def _apart(function: Any, given: Given) -> Any:
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


def _baseline(jit: bool = True) -> Any:
    """Code for the oldest processor of the family."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=_oldest(), features="", opt=3, reloc="pic", codemodel="default", jit=jit)


def _oldest() -> str:
    return "x86-64" if "x86_64" in llvm.get_default_triple() else "generic"


def _features() -> llvm.FeatureMap:
    return llvm.FeatureMap({"sse2": True} if _oldest() == "x86-64" else {})


C, F, M = "cvm.lowering.contraction", "cvm.lowering.folds", "cvm.lowering.movement"
SMALL = {f"{C}.contract.LEAST": 0, f"{C}.contract.LEAST_ROWS": 1, f"{C}.contract.LEAST_TERMS": 1}
SHARED = {
    "cvm.lowering.parallelise.WORTH": 0,
    "cvm.lowering.parallelise.FOLDED": 8,
    "cvm.lowering.parallelise.BLOCK": 32,
    f"{C}.panels.WORTH_SHARING": 1,
    f"{C}.packing.WORTH_SHARING": 1,
    f"{C}.packing.LEAST_TILES": 1,
    f"{M}.interleave.WORTH_SHARING": 1,
}
QUADS = {"cvm.jit.native_function.processor": lambda: Processor(quads=True)}
STREAMS = {f"{M}.stream.{name}": 1 for name in ("LARGE", "ALL", "SOME")} | {f"{M}.tile.RUN": 64, f"{M}.tile.SHORT": 64}
IN_BLOCKS = {f"{F}.blocks.LONG": 1, f"{F}.blocks.BLOCK": 16, f"{F}.shares.LARGE": 1, f"{F}.sweep.NEAR": 1}
IN_BLOCKS |= {f"{F}.sweep.LEAST": 2, f"{F}.keep.LEAST": 0, f"{F}.rowwise.LEAST": 1}


class _Passes(dict[str, Callable[[Kernel], Kernel]]):
    """Some passes, and none where another one is named."""

    def __missing__(self, name: str) -> Callable[[Kernel], Kernel]:
        return lambda kernel: kernel


def _without(*names: str) -> dict[str, Any]:
    passes = _Passes({n: p for n, p in schedule.PASSES.items() if n not in names})
    return {"cvm.lowering.schedule.PASSES": passes}


PATHS = {
    "as costs say": Path(),
    "no passes over loops": Path(_without(*schedule.PASSES)),
    "no vectors": Path(_without("vectorise", "tile", "interleave")),
    "no passes over graphs": Path({"cvm.lowering.graph.pipeline.ORDER": ("decompose",)}),
    "nothing fused": Path(
        {"cvm.lowering.fuse.LARGEST": 0, "cvm.lowering.combine.LARGEST": 0, "cvm.lowering.combine.LOOKS": 0}
    ),
    "panels": Path(SMALL, seen="pairdot("),
    "panels, weights known": Path(SMALL, _of_constants, seen="pairdot("),
    "streams": Path(STREAMS),
    "folds in blocks": Path(IN_BLOCKS),
    "narrow in memory": Path({"cvm.lowering.compact.SMALL": 0, "cvm.lowering.compact.OFTEN": 1 << 20}),
    "two threads": Path(SHARED, threads=2),
    "three threads, panels": Path(SMALL | SHARED, threads=3),
    "unknown sizes": Path(rewritten=_of_unknown_sizes),
    "unknown sizes, panels": Path(SMALL, _of_unknown_sizes, seen="pairdot("),
    "declared ranges": Path(rewritten=_of_declared_ranges),
    "constants": Path(rewritten=_of_constants),
    "four products added": Path(SMALL | QUADS, _of_declared_ranges),
    "generic form": Path(rewritten=_in_generic_form),
    "an old processor": Path(
        {
            "cvm.jit.native.target_machine": _baseline,
            "llvmlite.binding.get_host_cpu_name": _oldest,
            "llvmlite.binding.get_host_cpu_features": _features,
            "cvm.jit.native_function.processor": Processor,
        }
    ),
    "calls by ctypes": Path({"cvm.jit.calls.fastcall.usable": lambda: False}),
    "results into arrays": Path(called=_into_arrays),
    "arguments apart": Path(called=_apart),
    "kept on disk": Path(kept=True),
}
