"""Traces the compilation of a dense layer without optimization, and a call of it: the functions of
ours that are entered.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

import cvm

ROOT = Path(cvm.__file__).parents[1]
ROOMS = (
    "cvm",
    "dialect",
    "grammar",
    "parser",
    "lowering",
    "jit",
)  # a virtual environment may lie beside them
PROGRAM = """
func @main(%x: tensor<2x3xT>, %w: tensor<4x3xT>, %b: tensor<4xT>) -> tensor<2x4xT> {
  %h = cvm.dense %x, %w, %b
  %y = cvm.relu %h
  return %y
}
"""


class Tracer:
    """The code that this process enters, but for what modules run while they are imported."""

    def __init__(self) -> None:
        self.entered: dict[CodeType, None] = {}
        self._importing = threading.local()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        code, depth = frame.f_code, getattr(self._importing, "depth", 0)
        if code.co_name == "<module>":
            self._importing.depth = depth + (1 if event == "call" else -1)
        elif event == "call" and not depth:
            self.entered[code] = None

    def functions(self) -> Iterator[tuple[str, str]]:
        """The files, from the checkout's folder on, and the functions and methods there; what is
        inside one is part of it.
        """
        for code in self.entered:
            path = Path(code.co_filename)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS:
                yield path.relative_to(ROOT).as_posix(), code.co_qualname.partition(".<locals>")[0]


def main(element: str) -> None:
    text = PROGRAM.replace("T", element)
    dtype = {"i32": np.int32, "f32": np.float32}[element]
    x, w, b = (
        np.arange(6, dtype=dtype).reshape(2, 3),
        np.ones((4, 3), dtype),
        np.arange(4, dtype=dtype),
    )
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    y = cvm.compile(cvm.parse(text), optimize=0)(x, w, b)
    sys.setprofile(None)
    np.testing.assert_array_equal(y, x @ w.T + b)
    print(json.dumps(list(dict.fromkeys(tracer.functions()))))


if __name__ == "__main__":
    main(sys.argv[1])
