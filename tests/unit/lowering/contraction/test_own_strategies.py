"""Strategies of packages: the cheapest is taken, verified, and its mistakes name it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir import expressions as ex
from cvm.dialect.support.entry_points import PLACED
from cvm.lowering.contraction.strategies import STRATEGIES
from cvm.lowering.verify_passes import less_certain

import cvm
from cvm.extending import I32, Cast, For, Index, Kernel, Store, Tensor, register_strategy

PROGRAM = """
func @main(%x: tensor<32x16xi32>, %w: tensor<24x16xi32>) -> tensor<32x24xi32> {
  %y = cvm.dense %x, %w
  return %y
}
"""


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept, placed = [*STRATEGIES], [*PLACED]
    yield
    STRATEGIES[:], PLACED[:] = kept, placed


def run() -> str:
    x = np.arange(512, dtype=np.int32).reshape(32, 16)
    w = np.arange(384, dtype=np.int32).reshape(24, 16)
    f = cvm.compile(PROGRAM)
    np.testing.assert_array_equal(f(x, w), x @ w.T)
    return f.lower("strategies")


def test_the_cheapest_strategy_is_taken() -> None:
    built: list[Kernel] = []

    def build(kernel: Kernel) -> Kernel:
        built.append(kernel)
        return kernel

    register_strategy("as it stands", lambda kernel: "", lambda kernel: 0, build)
    assert "as it stands" in run() and built
    with pytest.raises(cvm.Error, match="there is a strategy of this name already"):
        register_strategy("as it stands", lambda kernel: "", lambda kernel: 0, build)


def test_a_strategy_that_does_not_apply_or_gives_nothing_is_not_taken() -> None:
    def build(kernel: Kernel) -> Kernel:
        raise AssertionError

    register_strategy("elsewhere", lambda kernel: "it is for elsewhere", lambda kernel: 0, build)
    register_strategy("none", lambda kernel: "", lambda kernel: 0, lambda kernel: None)
    assert "it is for elsewhere" in run()


def racing(*tensors: Tensor, kind: Any = "parallel") -> For:
    """A loop of which every iteration stores its number to the first element of each tensor."""
    i = Index("i", 8)
    stores = [Store(t, tuple(ex.ZERO for _ in t.shape), Cast(i, I32)) for t in tensors]
    return For(i, tuple(stores), kind=kind)


def all_in_parallel(kernel: Kernel) -> Kernel:
    return kernel.with_body((*kernel.body, racing(*kernel.outputs)))


def without_stores(kernel: Kernel) -> Kernel:
    return kernel.with_body(())


@pytest.mark.parametrize(
    ("cost", "build", "text"),
    [
        (lambda k: 0, lambda k: k.with_body(()).body, "`build` gives tuple, not a Kernel"),
        (lambda k: 1 // 0, lambda k: k, "`cost` fails: ZeroDivisionError"),
        (lambda k: 0, lambda k: k.lost, "`build` fails: AttributeError"),
        (lambda k: 0, all_in_parallel, "%y is carried from one iteration to another"),
        (lambda k: 0, without_stores, "%y is a result, and its element [0, 0] is never written"),
    ],
)
def test_mistakes_name_the_strategy(cost: Any, build: Any, text: str) -> None:
    register_strategy("wrong", lambda kernel: "", cost, build)
    with pytest.raises(cvm.Error) as caught:
        cvm.compile(PROGRAM)
    assert "strategy wrong of" in str(caught.value) and text in str(caught.value)


def test_a_race_that_was_there_hides_no_other() -> None:
    y, z = (Tensor(n, (8,), I32) for n in "yz")
    before = Kernel("k", (y, z), (racing(y), racing(z, kind="serial")), 2)
    after = before.with_body((racing(y), racing(z)))
    assert [*less_certain(before, before)] == []
    (found,) = less_certain(after, before)
    assert "%z is carried from one iteration to another of the parallel loop" in found.message
