"""The promises of docs/promises.md: each holds for every part of `cvm selftest`, all operators
among them, and to the bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import operator_checks  # noqa: F401  (enters the samples of all dialects)
import pytest
import tiers
from available_targets import HERE
from cvm.dialect.types.tensor_types import ELEMENT_TYPES
from cvm.jit.host_processor import resolve
from cvm.lowering.processor import compiling_for
from outcomes import known_to_numpy
from samples import SAMPLES

import cvm
from cvm.commands.selftest import EXACT, line_of, recorded
from cvm.testing.selftest_set import BODIES, SIZES, parts, program_text
from cvm.testing.selftest_values import TAME, elements
from cvm.tracing.diagnose import caller
from cvm.tracing.trace import tracer_of

PARTS = {p.name: p for p in parts()}
KNOWN = recorded()
IS_X86 = "x86_64" in llvm.get_default_triple()
# an axis of a promise: how parts are computed otherwise; whether it is for exact parts alone
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "processor": ({"cpu": "x86-64-v2", "threads": 2}, False),
    "vector width": ({"cpu": "x86-64-v3"}, False),
    "threads": ({"threads": 3}, False),
    "optimization": ({"optimize": 0}, True),
    "reference": ({"target": "reference"}, True),
    "cuda-sim": ({"target": "cuda-sim"}, False),
    "cached": ({"cached": True}, False),
}
EVERY = [
    (way, name)
    for way, (_, exact) in WAYS.items()
    for name in PARTS
    if not exact or KNOWN[name].kind == EXACT
    if way != "cuda-sim" or (name.count(".") == 1 and not name.startswith(("theano.", "network.")))
]  # the emulator takes a second for some ten thousand elements
WHOLE = ("processor", "vector width", "reference")  # all parts in the longer tier
CHOSEN = {way: [n for w, n in EVERY if w == way] for way in WAYS}


@pytest.mark.parametrize("way", WAYS)
def test_parts_are_the_recorded_ones(way: str, tmp_path: Path, monkeypatch: Any) -> None:
    options = dict(WAYS[way][0])
    if "cpu" in options and not IS_X86:
        pytest.skip("the processor is of another family")
    if (target := options.get("target", "cpu")) not in HERE:
        pytest.skip(f"{target} cannot run here")
    few = 80 if tiers.everything else 12
    names = CHOSEN[way] if tiers.everything and way in WHOLE else tiers.spread(CHOSEN[way], few)
    before = cvm.get_num_threads()
    monkeypatch.setenv("CVM_CACHE_DIR", str(tmp_path) if options.get("cached") else "")
    try:
        cvm.set_num_threads(options.get("threads", 1))
        with compiling_for(resolve(options.get("cpu"), "")):
            for _ in range(1 + ("cached" in options)):
                for name in names:
                    line = line_of(PARTS[name], target, options.get("optimize", 2), KNOWN)
                    assert line == KNOWN[name]
    finally:
        cvm.set_num_threads(before)


def test_parts_have_names_of_their_own() -> None:
    assert len(PARTS) == len([*parts()]) and list(PARTS) == list(KNOWN)


# batch sizes

BATCHES = range(1, 66)
LARGEST = BATCHES[-1]
NOT_BATCHED = ("sum_0", "sum_all", "sum_outer", "transpose")  # whose results have no first axis M


@pytest.mark.parametrize("name", [n for n in BODIES if n not in NOT_BATCHED])
def test_rows_do_not_depend_on_the_rows_beside_them(name: str) -> None:
    """M is the batch: open, and known; a row is equal alone and among up to 64 others."""
    body, types, every = BODIES[name]
    sizes = {s: 1 + n // 2 for s, n in SIZES.items()} | {"M": LARGEST}
    for element in every.split():
        text = program_text(body, types, element)
        arrays = []
        for t in types.split(", "):
            shape = tuple(sizes[d[1:]] if d[0] == "?" else int(d) for d in t.split(" x "))
            arrays.append(elements(f"{name} {t}", ELEMENT_TYPES[element], shape, TAME))
        stacked = [t.startswith("?M") for t in types.split(", ")]
        function = cvm.compile(text)
        whole = function(*arrays)
        for m in BATCHES if tiers.everything else (1, 2, 5, 6, 17, 64):
            rows = [a[:m] if s else a for a, s in zip(arrays, stacked, strict=True)]
            np.testing.assert_array_equal(function(*rows), whole[:m], str(m), strict=True)
        for m in (1, 5, 6, 16, 65) if tiers.everything else (1, 6):
            rows = [a[:m] if s else a for a, s in zip(arrays, stacked, strict=True)]
            known = text
            for size, n in (sizes | {"M": m}).items():
                known = known.replace(f"?{size} ", f"{n} ")
            np.testing.assert_array_equal(cvm.compile(known)(*rows), whole[:m], str(m), strict=True)


@pytest.mark.sample(40)
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_vmap_of_an_operator_gives_each_element_alone(name: str) -> None:
    """An operator over stacks, by its rule or in a loop, gives what it gives for each element."""
    op = SAMPLES[name](np.random.default_rng(7))

    def one(*arrays: Any) -> Any:
        tracer = tracer_of(arrays)
        assert tracer is not None
        left = iter(arrays)
        found = tracer.add(op.map(lambda _: tracer.operand(next(left), tracer.rules)), caller())
        return found if len(found) > 1 else found[0]

    given = [a for _, a in op.operands()]
    rows = [
        [
            np.roll(a, m) if name.split(".")[0] in ("cvm", "dali") and a.dtype.kind != "b" else a
            for a in given
        ]
        for m in range(LARGEST)
    ]
    single, stack = cvm.compile(one), cvm.compile(cvm.vmap(one))
    for m in (1, 2, 6, 65) if tiers.everything else (1, 7):
        found = stack(*(np.stack(a) for a in zip(*rows[:m], strict=True)))
        for n in {0, m // 2, m - 1}:
            alone = single(*rows[n])
            for whole, wanted in zip(_all(found), _all(alone), strict=True):
                np.testing.assert_array_equal(
                    *map(known_to_numpy, (whole[n], wanted)), f"{m}: {n}", strict=True
                )


def _all(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", ["softmax", "matmul"])
def test_batches_of_samples_give_each_sample_alone(name: str) -> None:
    body, types, _ = BODIES[name]
    function = cvm.compile(program_text(body, types, "f32"))
    samples = [
        [
            elements(f"{name} {m} {n}", ELEMENT_TYPES["f32"], (m, 33) if n == 0 else (33, 7), TAME)
            for n in range(types.count(",") + 1)
        ]
        for m in (1, 3, 6, 40)
    ]
    for found, sample in zip(
        function.batch(*map(list, zip(*samples, strict=True))), samples, strict=True
    ):
        np.testing.assert_array_equal(found, function(*sample), strict=True)
