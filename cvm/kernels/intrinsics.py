"""Declare intrinsics: their nests as text, their code as LLVM IR or as a function of a library of
C, and a process that compares the two on random data.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from cvm.dialect.kernel_ir import loops as ir
from cvm.dialect.kernel_ir.expressions import Index, Tensor
from cvm.dialect.support.diagnostics import Error
from cvm.dialect.support.entry_points import PLACED
from cvm.dialect.types.sizes import Dim, Size, atoms_of, in_order
from cvm.dialect.types.tensor_types import I8
from cvm.jit.functions.kernel_function import KernelFunction
from cvm.jit.llvm.intrinsic_code import of_ir, of_library
from cvm.lowering.analysis.intrinsics import INTRINSICS, Intrinsic, match_intrinsic
from cvm.lowering.analysis.verify_kernel import LoweringError, check_kernel
from cvm.parser.kernels import read_kernels
from cvm.parser.link_kernels import link_kernels

NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
FEATURE = re.compile(r"[a-z0-9.]{1,32}")
OF_PROCESSORS = re.compile(r"@llvm\.(x86|aarch64|arm|riscv|wasm|ppc|s390|nvvm|amdgcn)\.")
MARGIN = 2  # elements around the windows of a test, which the code must not touch
SIZES = (1, 2, 7, 16)  # that unknown sizes have in a test: below, at and beyond short vectors
SECONDS = 60  # of a test, at most: it compiles four small kernels
CHILD = "from cvm.kernels.intrinsics import answer; answer()"


def declare(
    meaning: str, code: str | None, library: str | None, requires: Sequence[str], tested: bool
) -> Intrinsic:
    """Declare an intrinsic (`cvm.extending.intrinsic`); `tested` if the code is compared before its
    first use.
    """
    kernel = _meaning(meaning)
    name = kernel.name
    if name in INTRINSICS:
        raise Error(f"intrinsic {name}: there is an intrinsic of this name already")
    if (code is None) is (library is None):
        raise Error(f"intrinsic {name}: expected its code, as llvm= or as library=")
    if unknown := [f for f in requires if not FEATURE.fullmatch(f)]:
        raise Error(f"intrinsic {name}: expected LLVM's name of a feature, got {unknown[0]!r}")
    atoms = sorted(atoms_of(d for p in kernel.parameters for d in p.shape), key=in_order)
    sizes = tuple(Size.of_atom(a) for a in atoms)
    distances = sum(max(p.rank - 1, 0) for p in kernel.parameters)
    types = ["ptr"] * len(kernel.parameters) + ["i64"] * (distances + len(sizes))
    made, calls = of_ir(name, code, types) if code else of_library(name, library or "", types)
    if not requires and (found := OF_PROCESSORS.search("\n".join(calls))):
        raise Error(f"intrinsic {name}: its code is for {found[1]}: requires= names its features")

    @cache
    def verify() -> None:
        if tested:
            _compare(name, [meaning, code, library, [*requires]])

    INTRINSICS[name] = Intrinsic(
        kernel, sizes, made, calls, frozenset(requires), library is None, verify
    )
    PLACED.append(name)
    return INTRINSICS[name]


def _meaning(text: str) -> ir.Kernel:
    """The verified kernel of a text, of one nest of serial loops."""
    plan, _ = read_kernels(text, "<intrinsic>")
    if len(plan.kernels) != 1 or plan.views:
        raise Error(f"an intrinsic is one kernel without views, got {len(plan.kernels)} kernels")
    (kernel,) = plan.kernels
    try:
        check_kernel(kernel, strict=True)
    except LoweringError as e:
        raise Error(f"intrinsic {kernel.name}: {e.message}") from None
    loops = [s for s in ir.statements(kernel.body) if isinstance(s, ir.For)]
    plain = (ir.For, ir.Let, ir.Alloc, ir.Store, ir.If)
    others = [s for s in ir.statements(kernel.body) if not isinstance(s, plain)]
    sides = [d for p in kernel.parameters for d in p.shape]
    if (
        not NAME.fullmatch(kernel.name)
        or len(kernel.body) != 1
        or others
        or kernel.condition is not None
        or not isinstance(kernel.body[0], ir.For)
        or any(s.kind != "serial" for s in loops)
        or not all(isinstance(d, int) or d.is_atom for d in sides)
    ):
        raise Error(
            f"intrinsic {kernel.name}: expected one nest of serial loops, without jumps, checks or "
            "a condition, over sizes that are numbers or names"
        )
    return kernel


def _compare(name: str, declared: list[object]) -> None:
    """Compare the code of an intrinsic with its nest in a process of its own, which may crash."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            input=json.dumps(declared).encode(),
            capture_output=True,
            env=environment,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Error(f"intrinsic {name}: its code does not end within {SECONDS} s") from None
    said = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode < 0:
        said = f"its code ends the process by signal {-done.returncode}"
    elif done.returncode:
        said = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it fails"])[-1]
    if said:
        raise Error(f"intrinsic {name}: {said}")


def answer() -> None:
    """Print where the code of the intrinsic that is declared on the standard input differs from its
    nest; nothing where it does not.
    """
    made = declare(*json.load(sys.stdin), tested=False)
    try:
        _test(made)
    except Error as e:
        print(str(e).removeprefix("error: "))


def _test(made: Intrinsic) -> None:
    kernel = made.kernel
    outputs = set(kernel.outputs)

    def around(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(d + 2 * MARGIN for d in shape)

    arrays = {p: replace(p, shape=around(p.shape)) for p in kernel.parameters}
    given = {
        p: replace(arrays[p], name=f"{p.name}.given") for p in kernel.parameters if p in outputs
    }
    copies: list[ir.Statement] = []
    for p, before in given.items():
        at = tuple(Index(f"{p.name}{n}", d) for n, d in enumerate(before.shape))
        copies += ir.nested(at, (ir.Store(arrays[p], at, before[at]),))
    (loop,) = ir.redirect(
        kernel.body,
        lambda t, i: (arrays[t], tuple(e + MARGIN for e in i)) if t in arrays else None,
    )
    assert isinstance(loop, ir.For)
    marked = ir.replace(loop, kind="intrinsic", by=kernel.name)
    assert match_intrinsic(marked) is not None
    known = [Tensor(f"size{n}", (size,), I8) for n, size in enumerate(made.sizes)]
    parameters = (*known, *(arrays[p] for p in kernel.inputs), *given.values())
    sides = parameters, tuple(arrays[p] for p in kernel.outputs)
    plain, by_code = (
        KernelFunction(
            link_kernels(
                [ir.Kernel("test", (*parameters, *sides[1]), (*copies, s), len(outputs))], {}, sides
            )
        )
        for s in (loop, marked)
    )
    rng = np.random.default_rng(0)
    for size in SIZES if made.sizes else SIZES[:1]:
        data = [*(np.zeros(size, np.int8) for _ in known)]
        data += [_random(rng, t, size) for t in parameters[len(known) :]]
        for t, a, b in zip(sides[1], *(_results(f(*data)) for f in (plain, by_code)), strict=True):
            same = (a == b) | ((a != a) & (b != b))
            if t.element.kind == "float":
                same &= np.signbit(a) == np.signbit(b)
            if not same.all():
                place = tuple(int(n) - MARGIN for n in np.argwhere(~same)[0])
                raise Error(
                    f"its code gives {b[~same][0]} for %{t.name}{[*place]}, and its nest "
                    f"{a[~same][0]}" + f", for sizes of {size}" * bool(made.sizes)
                )


def _results(found: object) -> tuple[np.ndarray, ...]:
    return found if isinstance(found, tuple) else (np.asarray(found),)


def _random(rng: np.random.Generator, t: Tensor, size: int) -> np.ndarray:
    shape = [d if isinstance(d, int) else size + 2 * MARGIN for d in t.shape]
    type = t.element.dtype
    if t.element.kind == "float":
        values = rng.standard_normal(shape)
        values[rng.random(shape) < 1 / 16] = 0.0  # also zeros, some of them negative
        return np.copysign(values, rng.standard_normal(shape)).astype(type)
    if t.element.kind == "bool":
        return rng.integers(0, 2, shape).astype(type)
    low, high = t.element.limits
    return rng.integers(low, high, shape, type, endpoint=True)
