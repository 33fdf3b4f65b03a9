"""One thread and two: the same programs, and what two threads gain where memory or arithmetic is
the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from side_by_side import Case

import cvm

CHOSEN: dict[str, tuple[str, ...]] = {  # of each group
    "elementwise": ("a * b + c, 16M", "ten operations with exp, 16M"),
    "images": ("32x480x640x3",),
    "shifts": ("16M elements", "800K elements"),
    "functions": ("exp float32",),
    "reductions": (
        "sum float32 all",
        "sum float32 axis 0",
        "sum float32 axis 1",
        "max int32 axis 1",
    ),
    "movement": ("transpose 4096x4096 f32", "NCHW to NHWC 16x64x112x112 f32", "take 1M of 4M i32"),
    "contractions": (
        "conv 3x3, 64 channels of 56x56",
        "conv 3x3, 256 of 14x14",
        "conv 3x3, 512 of 7x7",
        "conv 1x1, 256 to 1024 of 14x14",
        "depthwise 3x3, 256 of 28x28",
        "first layer 7x7 stride 2, 3 to 64 of 224x224",
        "dense 64 x 1024 by 1024 x 1024",
    ),
    "matmul": ("1024 x 1024 by 1024 x 1024",),
    "clocked": ("Gray-Scott, 2048 x 2048",),
}


def both(make: Callable[[], Case]) -> Case:
    """Our contender of a case, with one thread and with two; the peers are left out."""
    case = make()
    run = case.contenders["cvm"]
    case.contenders = {"cvm": run, "cvm, 2 threads": lambda: run()}
    case.before = {name: ready(n, run) for n, name in enumerate(case.contenders, 1)}
    case.results = {}
    if case.units:
        case.out, case.units = None, dict.fromkeys(case.contenders, case.units["cvm"])
        case.results = dict.fromkeys(case.contenders, lambda: 0)
    return case


def ready(n: int, run: Callable[[], Any]) -> Callable[[], Any]:
    """Sets the number of threads; a call not timed wakes them."""

    def before() -> None:
        cvm.set_num_threads(n)
        run()

    return before


def work(chosen: Mapping[str, tuple[str, ...]]) -> dict[str, Callable[[], Case]]:
    found: dict[str, Callable[[], Case]] = {}
    for group, titles in chosen.items():
        made = import_module(group).WORK
        found |= {f"{group}: {title}": lambda make=made[title]: both(make) for title in titles}
    return found


WORK = work(CHOSEN)
