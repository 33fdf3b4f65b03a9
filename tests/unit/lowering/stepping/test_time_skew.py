"""Several ticks in one pass over large fields: the bits of one tick after the other, for every
program that it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.processor import Processor, Tuning, compiling_for
from hypothesis import given, strategies as st
from tiers import examples
from tuning import tuned

import cvm


@pytest.fixture(autouse=True, scope="module")
def small_fields_too() -> Iterator[None]:
    with compiling_for(Processor(l3_bytes=0, wake_operations=1, tuning=Tuning(skewed_rows=1))):
        yield


def stencil(
    shape: tuple[int, ...], amounts: list[tuple[str, tuple[int, ...]]], tensor: str = ""
) -> str:
    """Two fields, each moved towards what is around both, and a third one that no tick changes."""
    field = f"!cog.field<{list(shape)}, {tensor}f32{'>' if tensor else ''}>"
    lines = [f'%{x} = cog.field "{x}" : {field}' for x in "uvw"]
    total = {"u": "%w", "v": "%u"}
    for n, (operation, amount) in enumerate(amounts):
        for x in "uv":
            lines.append(f"%{x}{n} = cog.{operation} %{x} {{amount = {list(amount)}}}")
            lines.append(f"%{x}.sum{n} = cog.sub %{x}{n}, {total[x]}")
            total[x] = f"%{x}.sum{n}"
    for x in "uv":
        lines += [f"%{x}.part = cog.mul {total[x]}, 0.3", f"%{x}.next = cog.add %{x}, %{x}.part"]
        lines.append(f"cog.feedback %{x}, %{x}.next")
    return "\n".join(["graph @main {", *lines, "}"])


def graphs(text: str) -> tuple[cvm.Graph, cvm.Graph]:
    native, reference = (cvm.compile(text, target=t) for t in ("cpu", "reference"))
    random = np.random.default_rng(1)
    for state in native.writable:
        value = random.random(state.initial.shape).astype(state.initial.dtype)
        native.write(state.name, value)
        reference.write(state.name, value)
    return native, reference


def agree(native: cvm.Graph, reference: cvm.Graph, steps: list[int]) -> None:
    for n in steps:
        assert native.step(n) == reference.step(n)
        for name in native.names:
            np.testing.assert_array_equal(
                native.read(name), reference.read(name), err_msg=f"{name} after {n}"
            )


NEAR = [
    ("shift_cyclic", (1, 0)),
    ("shift_cyclic", (-1, 0)),
    ("shift_cyclic", (0, 1)),
    ("shift_cyclic", (0, -1)),
]
OPEN = [("shift", (1, 0)), ("shift", (-1, -1))]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("amounts", [NEAR, OPEN, [("shift_cyclic", (2, 1)), ("shift", (-1, 0))]])
def test_any_number_of_ticks(amounts: list[tuple[str, tuple[int, ...]]], threads: int) -> None:
    native, reference = graphs(stencil((33, 17), amounts))
    assert native.step_plan.ticks == 4
    before = cvm.get_num_threads()
    cvm.set_num_threads(threads)
    try:
        agree(native, reference, [0, 1, 2, 3, 4, 5, 8, 11])
    finally:
        cvm.set_num_threads(before)


@examples(25)
@given(
    shape=st.tuples(st.integers(8, 70), st.integers(1, 20)),
    amounts=st.lists(
        st.tuples(
            st.sampled_from(["shift", "shift_cyclic"]),
            st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
        ),
        min_size=1,
        max_size=3,
    ),
    ticks=st.integers(2, 6),
)
def test_any_stencil(
    shape: tuple[int, int], amounts: list[tuple[str, tuple[int, int]]], ticks: int
) -> None:
    with tuned(skewed_ticks=ticks):
        native, reference = graphs(stencil(shape, amounts))
        several = native.step_plan.several
        for kernel in several.kernels if several else ():
            check_kernel(kernel)
        agree(native, reference, [ticks, 1, 2 * ticks + 1])


def test_rows_that_stream_and_vectors_leave_over(compile_for: Callable[..., None]) -> None:
    compile_for(l3_bytes=2, skewed_rows=1)
    native, reference = graphs(stencil((33, 301), NEAR))
    assert native.step_plan.ticks == 4
    agree(native, reference, [5, 4])


def test_fields_of_tensors_and_of_three_dimensions() -> None:
    native, reference = graphs(stencil((40, 6), NEAR, "tensor<3x"))
    assert native.step_plan.ticks == 4
    agree(native, reference, [5, 4])
    native, reference = graphs(
        stencil((40, 5, 6), [("shift_cyclic", (1, 0, -1)), ("shift", (0, 1, 0))])
    )
    assert native.step_plan.ticks == 4
    agree(native, reference, [5, 4])


def test_complex_fields() -> None:
    text = """
    graph @main {
      %z = cog.field "z" : !cog.field<[40, 9], complex<f32>>
      %n = cog.shift_cyclic %z {amount = [1, 0]}
      %m = cog.mul %n, (0.5, -0.25)
      %next = cog.add %m, %z
      %half = cog.mul %next, 0.5
      cog.feedback %z, %half
    }"""
    native, reference = graphs(text)
    assert native.step_plan.ticks == 4
    for _ in range(3):
        assert native.step(5) == reference.step(5)
        np.testing.assert_allclose(native.read("z"), reference.read("z"), 1e-5)


@pytest.mark.parametrize(
    "text",
    [
        stencil((40, 6), [("shift_cyclic", (0, 1))]),  # nothing of another row
        stencil((6, 6), NEAR),  # too few rows
        stencil((4000,), [("shift_cyclic", (1,))]),  # rows of one number, by blocks of many
        stencil((40, 6), NEAR).replace(
            "cog.feedback %v, %v.next", ""
        ),  # fits: the other one does not move
    ],
)
def test_what_does_not_fit_goes_tick_by_tick(text: str) -> None:
    native, reference = graphs(text)
    assert native.step_plan.ticks == (1 if "cog.feedback %v" in text else 4)
    agree(native, reference, [1, 4, 9])


def test_the_passes_are_shown() -> None:
    native, _ = graphs(stencil((40, 6), NEAR))
    assert "%u.1[" in native.lower("schedule")
    assert "@passes(" in native.lower("llvm")
