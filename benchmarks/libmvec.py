"""glibc's functions of vectors (libmvec), called in a loop: what C compilers make of calls of the
mathematical library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import Found
from cvm.jit.llvm.native_code import Library

ULPS = 4  # how far off its results may be, as its documentation says
BYTES = 32  # of a vector
LOOP = """\
declare {vector} @{symbol}({types})
define i32 @loop(i64 %count, ptr %out, {pointers}) nounwind {{
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
{loads}
  %y = call {vector} @{symbol}({values})
  %to = getelementptr {element}, ptr %out, i64 %i
  store {vector} %y, ptr %to, align {size}
  %next = add nuw nsw i64 %i, {lanes}
  br label %head
done:
  ret i32 0
}}
"""
LOAD = """\
  %p{n} = getelementptr {element}, ptr %a{n}, i64 %i
  %x{n} = load {vector}, ptr %p{n}, align {size}"""


def found(symbol: str) -> int | None:
    """The address of a function of the library; None without the library, the function or a
    suitable processor.
    """
    try:
        entry = getattr(ctypes.CDLL("libmvec.so.1"), symbol)
    except (OSError, AttributeError):
        return None
    return ctypes.cast(entry, ctypes.c_void_p).value


def on_libmvec(contenders: Found, name: str, out: np.ndarray, *arrays: np.ndarray) -> None:
    """The function of so many whole vectors, under C's name for f64."""
    size, lanes = out.itemsize, BYTES // out.itemsize
    symbol = f"_ZGVdN{lanes}{'v' * len(arrays)}_{name}{'f' if size == 4 else ''}"
    assert out.size % lanes == 0
    if address := found(symbol):
        contenders["libmvec"] = _loop(symbol, address, lanes, out, *arrays)


def _loop(
    symbol: str, address: int, lanes: int, out: np.ndarray, *arrays: np.ndarray
) -> Callable[[], Any]:
    element = "float" if out.itemsize == 4 else "double"
    words = {"symbol": symbol, "element": element, "size": out.itemsize, "lanes": lanes}
    words["vector"] = vector = f"<{lanes} x {element}>"
    each = range(len(arrays))
    text = LOOP.format(
        **words,
        types=", ".join(vector for _ in each),
        pointers=", ".join(f"ptr %a{n}" for n in each),
        values=", ".join(f"{vector} %x{n}" for n in each),
        loads="\n".join(LOAD.format(**words, n=n) for n in each),
    )
    pointers = [ctypes.c_void_p] * (1 + len(arrays))
    library = Library(text, {"loop": (ctypes.c_int64, *pointers)}, imports={symbol: address})
    run, places = library.functions["loop"], [a.ctypes.data for a in (out, *arrays)]

    def call() -> None:
        run(out.size, *places)

    call.library = library  # type: ignore[attr-defined]  # its code is freed with it
    return call
