"""Passes of other packages stand where they belong in a target's pipeline, and skipped passes do
not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.lowering import pipeline
from cvm.lowering.passes import REGISTERED, Level, declare, placed


def swapped(kernel: Kernel) -> Kernel:
    return kernel


@pytest.mark.parametrize(("level", "targets"), [("loops", {"cpu", "cuda"}), ("gpu", {"cuda"})])
def test_a_pass_stands_after_the_one_it_follows(
    level: Level, targets: set[str], monkeypatch: pytest.MonkeyPatch, tune: Callable[..., None]
) -> None:
    registered = declare(level, Kernel)(swapped)
    plain = {name: [p.name for p in passes] for name, passes in pipeline.TARGETS.items()}
    monkeypatch.setitem(REGISTERED, "swapped", registered)
    assert {
        name: [p.name for p in placed(passes)] for name, passes in pipeline.TARGETS.items()
    } == plain
    monkeypatch.setitem(REGISTERED, "swapped", replace(registered, after="collapse"))
    for name, passes in pipeline.TARGETS.items():
        at = plain[name].index("collapse") + 1
        wanted = [*plain[name][:at], *(["swapped"] if name in targets else []), *plain[name][at:]]
        assert [p.name for p in placed(passes)] == wanted
    tune(skipped_passes=("collapse",))
    assert not {"collapse", "swapped"} & {
        p.name for passes in pipeline.TARGETS.values() for p in placed(passes)
    }
