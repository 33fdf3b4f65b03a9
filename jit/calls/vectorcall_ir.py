"""The layout of what the machine code of calls reads, and the modules of that code.

`vectorcall.ll` has the code for programs, `kernel_call.ll` that for kernels of Python functions; both
describe their tables, whose fields have names here.
"""

import re

from ...dialect.ir.deferred_size_limits import STEPS as SIZE_STEPS
from ..llvm.ir_files import join_ir, read_ir
from ..runtime.fp_environment_ir import declarations, in_default_environment, register_of

# places in a NumPy array object, in bytes
DATA, RANK, SHAPE, DESCRIPTOR, FLAGS = 16, 24, 32, 56, 64
ELEMENT = 24  # the place in a descriptor of the elements' kind, letter, order, flags and number
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
HEAD = 16  # bytes of an object before what is its own: the code's address, and the way's
WAY = ("table", "positional", "form", "slow", "next", "build")
TABLE = (
    "arguments",
    "results",
    "constants",
    "sizes",
    "room",
    "program",
    "only",
    "workspace",
    "plans",
    "values",
    "report",
)
RECORD = ("descriptor", "rank", "sizes", "element", "place")  # of an argument or result, in a table
STEPS = (*SIZE_STEPS, "address")  # `address` is where the value of an earlier step lies
SHAPED = ("shape", "bytes")  # of an argument or result, in an entry
VERSIONED = (
    "positional",
    "slow",
    "next",
    "program",
    "sizing",
    "report",
    "overlaps",
    "number",
    "latest",
    "cells",
    "arguments",
    "pointers",
    "places",
    "lengths",
    "measures",
    "arrays",
    "made",
    "sizes",
    "result",
)
SOURCES = {
    "call": ("objects", "vectorcall", "pytree"),
    "call_kernel": ("objects", "kernel_call"),
}
BUSY = 64  # bytes before the workspace where a word tells whether it is in use


def python_functions() -> list[str]:
    """The functions of CPython that the code calls."""
    text = "".join(read_ir(f"calls/{name}.ll") for names in SOURCES.values() for name in names)
    found = re.findall(r"^declare \w+ @(Py\w+)\(", text, re.MULTILINE)
    return list(dict.fromkeys(found))


def call_source(entry: str = "call") -> str:
    """The module of the function of this name, which Python calls."""
    register = register_of()
    head = (
        "internal i32 @run(ptr %program, ptr %pointers, ptr %sizes, ptr %workspace)"
        " alwaysinline nounwind"
    )
    run = in_default_environment(
        head, "%program", ("ptr %pointers", "ptr %sizes", "ptr %workspace"), register
    )
    parts = (read_ir(f"calls/{name}.ll") for name in SOURCES[entry])
    return join_ir(*parts, declarations(register), run)
