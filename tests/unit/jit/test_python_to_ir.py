"""The subset of Python that the runtime's own machine code is written in."""

import ctypes

import numpy as np
import pytest
from cvm.jit.llvm.native_code import Library, Source
from cvm.jit.llvm.python_to_ir import ir_text

FUNCTIONS = """
"@calls = global i64 0"

def weight(n: i64) -> i64:
    i64[calls] = i64[calls] + 1
    return n if n & 1 == 0 else 0 - n

# the weights of the even numbers before the first that is above a limit, and of 7 and 9
@export
def total(numbers: ptr, count: i64, limit: i64) -> i32:
    sum = 0
    for k in range(count):
        n = i64[numbers + 8 * k]
        if n > limit:
            break
        if not (n & 1 == 0 or n == 7 or n == 9):
            continue
        sum = sum + weight(n)
    while sum > 1000 and sum != 2000:
        sum = sum // 2
    i64[numbers] = sum
    return ir(i32, "trunc i64 {} to i32", i64[calls])

@export
def endless(n: i32) -> i32:
    while True:
        n = n - 1 << 1
        if n > 100:
            return n
"""


@pytest.fixture(scope="module")
def library():
    exports = {
        "total": (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        "endless": (ctypes.c_int32,),
    }
    return Library(Source(FUNCTIONS), exports, ("calls",))


@pytest.mark.parametrize(
    ("numbers", "sum", "calls"),
    [
        ([2, 4, 3, 8], 14, 3),
        ([2, 7, 9, 11], -14, 3),
        ([2, 50, 8], 2, 1),
        ([1], 0, 0),
        ([0] + [40] * 75, 750, 76),
        ([40] * 50, 2000, 50),
    ],
)
def test_loops_conditions_and_memory(library, numbers, sum, calls):
    ctypes.c_int64.from_address(library.addresses["calls"]).value = 0
    array = np.array(numbers)
    assert library.functions["total"](array.ctypes.data, len(array), 40) == calls
    assert array[0] == sum


def test_a_loop_that_only_a_return_leaves(library):
    assert library.functions["endless"](3) == 130


def test_no_block_is_out_of_reach():
    text = ir_text(FUNCTIONS)
    labels = [
        line.strip()[:-1]
        for line in text.splitlines()
        if line.endswith(":") and "entry" not in line
    ]
    assert len(labels) > 10 and all(f"label %{label}" in text for label in labels)
    assert "unreachable" not in text and text.count("define internal") == 1


@pytest.mark.parametrize("expression", ["x ** 2", "x @ x", "x.y", "-x", "'text'", "1.5"])
def test_what_is_no_part_of_the_language(expression):
    with pytest.raises((SyntaxError, KeyError)):
        ir_text(f"def f(x: i64) -> i64:\n    return {expression}\n")
