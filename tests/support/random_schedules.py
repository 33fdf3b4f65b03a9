"""Random schedules of some kernels, and the test that they keep every bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from cvm.lowering.scheduling.find_loops import loops_by_name

import cvm

# a name, its arrays, and the body of a kernel; sizes are ?M, ?N, ?K
KERNELS = {
    "product": (
        "%a: tensor<?M x ?K x f32>, %b: tensor<?K x ?N x f32>) -> (%c: tensor<?M x ?N x f32>",
        """for %i in 0..?M { for %j in 0..?N {
             %c[%i, %j] = 0.0
             for %k in 0..?K { %c[%i, %j] = %c[%i, %j] + %a[%i, %k] * %b[%k, %j] } } }""",
    ),
    "accumulator": (
        "%a: tensor<?M x ?K x f32>, %b: tensor<?N x ?K x f32>) -> (%c: tensor<?M x ?N x f32>",
        """for %i in 0..?M { for %j in 0..?N {
             alloc %s: f32
             %s = 0.0
             for %k in 0..?K { %s = fma(%a[%i, %k], %b[%j, %k], %s) }
             %c[%i, %j] = %s } }""",
    ),
    "stencil": (
        "%a: tensor<?M x ?N x f64>) -> (%c: tensor<?M x ?N x f64> zero",
        """for %i in 1..?M - 1 { for %j in 1..?N - 1 {
             %c[%i, %j] = %a[%i - 1, %j] + %a[%i + 1, %j] + %a[%i, %j - 1] + %a[%i, %j + 1] } }""",
    ),
    "in_place": (
        "%a: tensor<?M x ?N x f64>) -> (%c: tensor<?M x ?N x f64>",
        """for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i, %j] } }
           for %i in 1..?M { for %j in 0..?N {
             %c[%i, %j] = %c[%i, %j] * 0.5 + %c[%i - 1, %j] } }""",
    ),
    "prefix": (
        "%a: tensor<?M x ?N x i32>) -> (%c: tensor<?M x ?N x i32>",
        """for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i, %j] } }
           for %i in 0..?M { for %j in 1..?N {
             %c[%i, %j] = %c[%i, %j] + %c[%i, %j - 1] } }""",
    ),
    "wavefront": (
        "%a: tensor<?M x ?N x i32>) -> (%c: tensor<?M x ?N x i32>",
        """for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i, %j] } }
           for %i in 1..?M { for %j in 1..?N {
             %c[%i, %j] = max(%c[%i - 1, %j], %c[%i, %j - 1]) + %a[%i, %j] } }""",
    ),
    "transpose": (
        "%a: tensor<?M x ?N x f32>) -> (%c: tensor<?N x ?M x f32>",
        "for %i in 0..?M { for %j in 0..?N { %c[%j, %i] = %a[%i, %j] } }",
    ),
    "triangle": (
        "%a: tensor<?M x ?M x f64>) -> (%c: tensor<?M x f64>",
        """for %i in 0..?M { %c[%i] = 1.0 }
           for %i in 0..?M { for %k of ?M in 0..%i {
             %c[%i] = %c[%i] - %a[%i, %k] * %c[%k] } }""",
    ),
    "columns": (
        "%a: tensor<?M x ?N x i64>) -> (%c: tensor<?N x i64>",
        """for %j in 0..?N { %c[%j] = 0 }
           for %i in 0..?M { for %j in 0..?N { %c[%j] = %c[%j] + %a[%i, %j] } }""",
    ),
    "window": (
        "%a: tensor<?M x ?N x f32>, %b: tensor<5xf32>) -> (%c: tensor<?M x ?N x f32> zero",
        """for %i in 0..?M { for %j in 0..?N - 4 {
             %c[%i, %j] = 0.0
             for %k in 0..5 {
               %c[%i, %j] = fma(%a[%i, %j + %k], %b[%k], %c[%i, %j]) } } }""",
    ),
    "blur": (
        "%a: tensor<?M x ?N x f32>) -> (%c: tensor<?M x ?N x f32> zero",
        """alloc heap %s: tensor<?M x ?N x f32>
           for %i in 0..?M { for %j in 0..?N { %s[%i, %j] = %a[%i, %j] * 0.5 } }
           for %i of ?M in 0..?M - 2 { for %j in 0..?N {
             %c[%i, %j] = %s[%i, %j] + %s[%i + 1, %j] + %s[%i + 2, %j] } }""",
    ),
    "histogram": (
        "%a: tensor<?M x ?N x ui8>) -> (%c: tensor<256xi32> zero",
        """for %i in 0..?M { for %j in 0..?N {
             %c[i64(%a[%i, %j])] = %c[i64(%a[%i, %j])] + 1 } }""",
    ),
    "two_results": (
        "%a: tensor<?M x ?N x f32>) -> (%c: tensor<?M x ?N x f32>, %d: tensor<?M x ?N x f32>",
        """for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i, %j] * %a[%i, %j] } }
           for %i in 0..?M { for %j in 0..?N { %d[%i, %j] = %c[%i, %j] + 1.0 } }""",
    ),
    "backwards": (
        "%a: tensor<?M x ?N x i32>) -> (%c: tensor<?M x ?N x i32>",
        """for %i in 0..?M { for %j in 0..?N { %c[?M - 1 - %i, ?N - 1 - %j] = %a[%i, %j] } }
           for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %c[%i, %j] * 3 } }""",
    ),
    "outer": (
        "%a: tensor<?M x f32>, %b: tensor<?N x f32>) -> (%c: tensor<?M x ?N x f32>",
        "for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i] * %b[%j] } }",
    ),
    "rows": (
        "%a: tensor<?M x ?N x f64>) -> (%c: tensor<?M x f64>",
        """for %i in 0..?M { %c[%i] = 0.0
             for %j in 0..?N { %c[%i] = %c[%i] + %a[%i, %j] } }""",
    ),
    "paths": (
        "%a: tensor<?M x ?M x i32>) -> (%c: tensor<?M x ?M x i32>",
        """for %i in 0..?M { for %j in 0..?M { %c[%i, %j] = %a[%i, %j] } }
           for %k in 0..?M { for %i in 0..?M { for %j in 0..?M {
             %c[%i, %j] = min(%c[%i, %j], %c[%i, %k] + %c[%k, %j]) } } }""",
    ),
    "mask": (
        "%a: tensor<?M x ?N x i16>) -> (%c: tensor<?M x ?N x i16>",
        """for %i in 0..?M { for %j in 0..?N {
             if %i >= %j { %c[%i, %j] = %a[%i, %j] } else { %c[%i, %j] = 0 - %a[%i, %j] } } }""",
    ),
    "chain": (
        "%a: tensor<?M x ?N x f64>) -> (%c: tensor<?M x ?N x f64>",
        """alloc heap %s: tensor<?M x ?N x f64>
           for %i in 0..?M { for %j in 0..?N { %s[%i, %j] = %a[%i, %j] + 1.5 } }
           for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %s[%i, %j] * %a[%i, %j] } }
           for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %c[%i, %j] - 0.25 } }""",
    ),
    "recurrence": (
        "%a: tensor<?M x ?N x f32>) -> (%c: tensor<?M x ?N x f32>",
        """for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i, %j] } }
           for %i in 0..?M { for %j in 2..?N {
             %c[%i, %j] = %c[%i, %j - 1] * 0.5 + %c[%i, %j - 2] } }""",
    ),
}


def text_of(name: str) -> str:
    head, body = KERNELS[name]
    return f"kernel @{name}({head}) {{\n{body}\n}}\n"


def random_step(rng: random.Random, schedule: cvm.Schedule) -> str:
    """The text of a step over loops that are there; whether it is legal is the schedule's to say."""
    (kernel,) = schedule.plan.all_kernels
    loops = [*loops_by_name(kernel)]
    one, size = rng.choice(loops), rng.choice((2, 3, 4, 8))
    some = rng.sample(loops, min(len(loops), rng.choice((2, 2, 3))))
    near = loops.index(one)
    pair = loops[near : near + 2]
    arrays = [t.name for t in kernel.parameters] + ["s"]
    return rng.choice(
        (
            f"split{{loop={one} by={size} tail={rng.choice(('guard', 'peel', 'shift'))}}}",
            f"reorder{{loops={','.join(reversed(pair))}}}",
            f"reorder{{loops={','.join(some)}}}",
            f"tile{{loops={','.join(pair)} by={','.join(str(size) for _ in pair)}}}",
            f"collapse{{loops={','.join(pair)}}}",
            f"fuse{{loops={','.join(rng.sample(loops, min(2, len(loops))))}}}",
            f"distribute{{loop={one}}}",
            f"peel{{loop={one} {rng.choice(('first', 'last'))}={size}}}",
            f"peel{{loop={one}}}",
            f"unroll{{loop={one} by={size}}}",
            f"unroll{{loop={one}}}",
            f"unroll_and_jam{{loop={one} by={size}}}",
            f"vectorize{{loop={one} by={size}}}",
            f"vectorize{{loop={one} by={size} tail=shift}}",
            f"vectorize{{loop={one}}}",
            f"parallelize{{loop={one}}}",
            f"stage{{array={rng.choice(arrays)} at={one}}}",
            f"expand{{array=s loop={one}}}",
            f"inline{{array={rng.choice(arrays)}}}",
            f"privatize{{array=c loop={one}}}",
        )
    )


def scheduled(name: str, seed: int, steps: int) -> tuple[cvm.Schedule, list[str]]:
    """A schedule of random legal steps, and what the steps that were refused said."""
    rng = random.Random(seed)
    schedule, refused = cvm.schedule(text_of(name)), list[str]()
    for _ in range(200):
        if len(schedule.steps) == steps:
            break
        step = random_step(rng, schedule)
        before = schedule.lower()
        try:
            schedule.apply(step)
        except cvm.VerifyError as e:
            assert schedule.lower() == before
            refused.append(e.diagnostics[0].message)
    return schedule, refused


def arrays_of(function: Any, sizes: tuple[int, int, int], seed: int) -> list[np.ndarray]:
    rng, known = np.random.default_rng(seed), dict(zip("MNK", sizes, strict=True))
    found: list[np.ndarray] = []
    for t in function.function.arguments:
        shape = [d if isinstance(d, int) else known[str(d).lstrip("?")] for d in t.type.shape]
        values = rng.integers(-99 * (t.type.element.name[0] != "u"), 99, shape)
        found.append(
            (values / 7 if t.type.element.kind == "float" else values).astype(t.type.element.dtype)
        )
    return found


def keeps_every_bit(
    name: str,
    seed: int,
    steps: int,
    processors: Sequence[Any],
    sizes: Sequence[tuple[int, int, int]],
) -> list[str]:
    """Compare a kernel with and without a random schedule, on processors, and give what the steps
    that were refused said.
    """
    schedule, refused = scheduled(name, seed, steps)
    plain = cvm.compile(text_of(name))
    assert cvm.schedule(text_of(name)).apply(str(schedule)).lower() == schedule.lower()
    functions = [(cpu, schedule.compile(cpu=cpu)) for cpu in processors]
    read_back = cvm.compile(schedule.lower())
    for some in sizes:
        arrays = arrays_of(plain, some, seed)
        wanted = _bytes(plain(*arrays))
        for cpu, f in (*functions, ("read back", read_back)):
            assert _bytes(f(*arrays)) == wanted, f"{name}, {some}, {cpu}:\n{schedule}"
    return refused


def _bytes(results: Any) -> list[bytes]:
    return [a.tobytes() for a in (results if isinstance(results, tuple) else (results,))]
