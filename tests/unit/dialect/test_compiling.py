"""The garbage collector rests while programs are made, and is as it was before when they are done,
or cannot be.
"""

from __future__ import annotations

import gc

import pytest
from cvm.dialect.support.compilation_context import gc_paused

import cvm

PROGRAM = """
func @main(%x: tensor<5xi32>) -> tensor<5xi32> {
  %y = cvm.abs %x
  return %y
}
"""


@pytest.fixture(params=[True, False], ids=["enabled", "disabled"])
def enabled(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_nothing_is_collected_inside(enabled):
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is enabled


def test_compiling_leaves_it_as_it_was(enabled):
    cvm.compile(PROGRAM)
    assert gc.isenabled() is enabled


def test_mistakes_leave_it_as_it_was(enabled):
    with pytest.raises(cvm.ParseError):
        cvm.compile(PROGRAM.replace("return", "give"))
    with pytest.raises(cvm.TargetError):
        cvm.compile(PROGRAM, entry="other")
    assert gc.isenabled() is enabled
