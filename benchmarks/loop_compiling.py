"""The loops of `loop_kernels`, each from its Python function to its first result on a few elements,
with nothing cached.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from loop_kernels import KERNELS, by_numba
from side_by_side import Case, installed

import cvm


def case(name: str) -> Case:
    function, make = KERNELS[name]

    def first(compiled: Callable[[Any], Any]) -> Callable[[], Any]:
        def run() -> Any:
            os.environ["CVM_CACHE_DIR"] = ""
            arguments = make(4, np.random.default_rng(0))
            result = compiled(function)(*arguments)
            return (0 if result is None else result, *arguments)

        return run

    found = Case({"cvm": first(cvm.kernel)}, tolerance=0.0)
    if installed("numba"):
        found.contenders["numba"] = first(by_numba)
    return found


WORK: dict[str, Callable[[], Case]] = {name: partial(case, name) for name in KERNELS}
