"""Kernels over the same points become one, loops are cut where remainders change, and state is
where it belongs.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.kernel_ir.kernel_printer import kernels_text
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.clocked_plan import StateSlot
from cvm.lowering.loops.build_loops import build_loops
from cvm.lowering.loops.fuse_kernels import fuse_kernels
from cvm.lowering.loops.index_set_split import index_set_split
from cvm.lowering.pipeline import lower_step, to_formulas
from cvm.lowering.stepping.split_step_and_observe import split_step_and_observe
from loop_interpreter import execute

import cvm


def kernels(text: str) -> tuple[list[Kernel], list[Kernel]]:
    """The kernels of @main, one for each formula, and combined."""
    module = cvm.parse(text)
    plain = build_loops(to_formulas(module, module.functions["main"]))
    combined = fuse_kernels(plain).kernels
    for kernel in combined:
        check_kernel(kernel)
    return [*plain.kernels], [*combined]


def test_fields_over_the_same_points_are_computed_in_one_nest() -> None:
    plain, (one,) = kernels("""
func @main(%x: !cog.field<[4, 5], f32>, %y: !cog.field<[4, 5], f32>) {
  %a = cog.mul %x, %y
  %b = cog.sub %a, %x
  %c = cog.add %b, %y
  %d = cog.mul %c, %c
  %e = cog.sub %c, 1
  return %d, %e
}""")
    assert len(plain) == 3
    assert one.results == 2
    assert "%c[" not in kernels_text([one]), "what only the kernel reads is no array"
    x, y = np.random.default_rng(0).random((2, 4, 5)).astype(np.float32)
    c = (x * y - x) + y
    for found, wanted in zip(execute(one, x, y), (c * c, c - np.float32(1)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_read_elsewhere_stays_apart() -> None:
    _, combined = kernels("""
func @main(%x: !cog.field<[8], f32>) {
  %a = cog.mul %x, %x
  %b = cog.add %a, %x
  %c = cog.sub %b, 1
  %d = cog.shift_cyclic %c {amount = [1]}
  %e = cog.mul %d, %c
  return %e
}""")
    assert len(combined) == 2


def test_other_sizes_and_strangers_stay_apart() -> None:
    _, combined = kernels("""
func @main(%x: !cog.field<[8], f32>, %y: !cog.field<[8], f32>, %z: !cog.field<[9], f32>) {
  %a = cog.mul %x, %x
  %b = cog.mul %y, %y
  %c = cog.mul %z, %z
  return %a, %b, %c
}""")
    assert len(combined) == 3


@pytest.mark.parametrize(
    ("operation", "parts"),
    [
        ("shift_cyclic %x {amount = [0, 1]}", 2),
        ("shift_cyclic %x {amount = [1, -3]}", 2),
        ('expand %x {shape = [6, 9], border = "clamp"}', 2),
        ('expand %x {shape = [6, 17], border = "cyclic"}', 3),
        ("stack %x, %x, %x", 3),
        ("vector %x, %x", 2),
        ("reshape %x {shape = [40]}", 1),
    ],
)
def test_loops_are_cut_where_remainders_change(operation: str, parts: int) -> None:
    module = cvm.parse(f"""
func @main(%x: !cog.field<[5, 8], f32>) {{
  %y = cog.{operation}
  %z = cog.mul %y, 2
  return %z
}}""")
    (kernel,) = build_loops(to_formulas(module, module.functions["main"])).kernels
    cut = index_set_split(kernel)
    check_kernel(cut)
    text = kernels_text([cut])
    assert text.count("%z[") == parts, text
    x = np.random.default_rng(0).random((5, 8)).astype(np.float32)
    for found, wanted in zip(execute(cut, x), execute(kernel, x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def places(text: str) -> tuple[list[StateSlot], tuple[int, ...], int]:
    """The slots of the states of @main, the arrays that alternate, and the number of kernels."""
    module = cvm.parse(text)
    graph = module.functions["main"]
    tick = lower_step(module, split_step_and_observe(module, graph))  # type: ignore[arg-type]
    for kernel in tick.plan.kernels:
        check_kernel(kernel)
    return [*tick.places], tick.turns, len(tick.plan.kernels)


def test_numbers_lie_side_by_side_and_in_place() -> None:
    lines = [f'%s{n} = cog.field "s{n}" : !cog.field<[], f32>' for n in range(50)]
    lines += [
        f"%t{n} = cog.add %s{n}, %s{n - 1 if n else 49}\ncog.feedback %s{n}, %t{n}"
        for n in range(50)
    ]
    found, turns, count = places("\n".join(["graph @main {", *lines, "}"]))
    assert found == [StateSlot(0, n % 7 * 8 + n // 7) for n in range(50)]  # seven rows of eight
    assert turns == ()
    assert count == 1


def test_state_read_at_its_own_point_is_in_place_and_other_state_takes_turns() -> None:
    found, turns, count = places("""
graph @main {
  %a = cog.field "a" : !cog.field<[8], f32>
  %b = cog.field "b" : !cog.field<[8], f32>
  %next = cog.add %a, %b
  %moved = cog.shift_cyclic %b {amount = [1]}
  cog.feedback %a, %next
  cog.feedback %b, %moved
}""")
    assert found == [StateSlot(0), StateSlot(1)]
    assert turns == (1,)
    assert count == 1


def test_a_deep_chain_of_numbers_is_one_kernel() -> None:
    lines = ['%v0 = cog.field "v" : !cog.field<[], f32>']
    lines += [f"%v{n + 1} = cog.add %v{n}, {n}" for n in range(500)]
    _, _, count = places("\n".join(["graph @main {", *lines, "cog.feedback %v0, %v500", "}"]))
    assert count == 1


def test_what_stands_between_goes_first_where_it_may() -> None:
    _, combined = kernels("""
func @main(%x: !cog.field<[8], f32>, %r: !cog.field<[], f32>) {
  %a = cog.mul %x, %x
  %s = cog.sub %r, 1
  %s2 = cog.mul %s, %s
  %s3 = cog.add %s2, %s
  %b = cog.add %x, %s3
  return %a, %b
}""")
    assert [k.results for k in combined] == [1, 2]


def test_what_depends_on_a_kernel_does_not_go_before_it() -> None:
    _, combined = kernels("""
func @main(%x: !cog.field<[8], f32>) {
  %a = cog.mul %x, %x
  %s = cog.field_reduce_sum %a
  %b = cog.add %x, %s
  return %a, %b
}""")
    assert len(combined) == 3


def test_places_that_loops_have_no_part_in_survive_joining_them() -> None:
    text = """
func @main(%x: !cog.field<[3, 2, 5], f32>) {
  %p = cog.subfield %x {begin = [0, 1, 3], end = [1, 2, 5]}
  %e = cog.expand %p {shape = [3, 2, 5], border = "cyclic"}
  %y = cog.sub %e, %x
  return %y
}"""
    x = np.arange(30, dtype=np.float32).reshape(3, 2, 5)
    wanted = cvm.compile(text, target="reference")(x)
    np.testing.assert_array_equal(cvm.compile(text)(x), wanted)
