"""Numbers that a tick computes alike, in rows as wide as a vector: the bits of computing them one
by one.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.lowering.analysis.verify_kernel import check_kernel
from hypothesis import given, strategies as st
from tiers import examples

import cvm


def program(n: int, reads: list[tuple[int, str, float | None]], extra: tuple[str, ...] = ()) -> str:
    """n numbers; each becomes a sum over what stands so many numbers further, times a constant, its
    own one where None.
    """
    lines = [
        f'%s{k} = cog.field "s{k}" init dense<{k * k % 17 / 16}> : !cog.field<[], f32>'
        for k in range(n)
    ]
    lines.append('%p = cog.field "p" init dense<0.375> : !cog.field<[], f32>')
    for k in range(n):
        total = "%p"
        for j, (away, operation, factor) in enumerate(reads):
            number = factor if factor is not None else (k % 5 + 1) / 16
            lines.append(f"%a{k}.{j} = cog.{operation} %s{(k + away) % n}, {number}")
            lines.append(f"%b{k}.{j} = cog.add {total}, %a{k}.{j}")
            total = f"%b{k}.{j}"
        lines += [f"%c{k} = cog.mod {total}, 1.0", f"cog.feedback %s{k}, %c{k}"]
    return "\n".join(["graph @main {", *lines, *extra, "}"])


def agree(text: str) -> cvm.Graph:
    native, reference = (cvm.compile(text, target=t) for t in ("cpu", "reference"))
    for kernel in native.step_plan.plan.kernels:
        check_kernel(kernel)
    for kernel in native.step_plan.several.kernels if native.step_plan.several else ():
        check_kernel(kernel)
    for n in (0, 1, 2, 3, 6, 7):
        assert native.step(n) == reference.step(n)
        for name in native.names:
            np.testing.assert_array_equal(
                native.read(name), reference.read(name), err_msg=f"{name} after {n}"
            )
    return native


NEIGHBOURS = [(0, "mul", 0.7), (-1, "mul", 0.25)]


@pytest.mark.parametrize("n", [16, 17, 20, 24, 63, 100])
def test_neighbours_in_a_ring(n: int) -> None:
    native = agree(program(n, NEIGHBOURS))
    assert "vector 8" in native.lower("schedule")
    assert native.step_plan.ticks == 2


def test_few_numbers_stay_as_they_are() -> None:
    assert "vector" not in agree(program(15, NEIGHBOURS)).lower("schedule")


def test_constants_that_differ_are_an_array() -> None:
    native = agree(program(20, [(0, "mul", None), (1, "add", 0.5)]))
    assert "constants0" in native.lower("schedule")


def test_numbers_far_apart_are_computed_one_by_one() -> None:
    lines = [f'%s{k} = cog.field "s{k}" init dense<{k}> : !cog.field<[], f32>' for k in range(32)]
    for k in range(32):
        lines += [f"%t{k} = cog.add %s{k * 5 % 32}, %s{k * k % 32}", f"cog.feedback %s{k}, %t{k}"]
    native = agree("\n".join(["graph @main {", *lines, "}"]))
    assert "vector" not in native.lower("schedule")


def test_other_numbers_beside_them() -> None:
    text = program(
        20,
        NEIGHBOURS,
        (
            '%x = cog.field "x" init dense<1.5> : !cog.field<[], f32>',
            "%x.next = cog.sub %x, %s3",
            "cog.feedback %x, %x.next",
        ),
    )
    native = agree(text)
    assert "vector 8" in native.lower("schedule")
    assert native.step_plan.ticks == 1


def test_writing_and_saving_find_every_number(tmp_path) -> None:
    graph = cvm.compile(program(21, NEIGHBOURS))
    for k in range(21):
        graph.write(f"s{k}", k / 32)
    assert [float(graph.read(f"s{k}")) for k in range(21)] == [k / 32 for k in range(21)]
    graph.step(3)
    want = [float(graph.read(f"s{k}")) for k in range(21)]
    graph.save(tmp_path / "state")
    graph.reset()
    graph.load(tmp_path / "state")
    assert [float(graph.read(f"s{k}")) for k in range(21)] == want


@examples(30, 4)
@given(
    n=st.integers(14, 70),
    reads=st.lists(
        st.tuples(
            st.integers(-20, 20),
            st.sampled_from(["mul", "add", "sub", "gt", "max"]),
            st.sampled_from([None, 0.5, 0.3, -1.25]),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_any_ring(n: int, reads: list[tuple[int, str, float | None]]) -> None:
    agree(program(n, reads))
