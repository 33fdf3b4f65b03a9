"""A call that begins while another call of the same function runs in the same thread, as in a
signal handler.
"""

import signal

import numpy as np
import pytest
from child_process import run_script

import cvm

TWO_PRODUCTS = """
func @main(%x: tensor<?N x ?N x i32>) {
  %h = cvm.dense %x, %x
  %y = cvm.dense %h, %x
  return %y
}
"""
# between taking its workspace and running, each slow call is interrupted by one with larger sizes
INTERRUPTED = f"""
import numpy as np
import cvm

f = cvm.compile('''{TWO_PRODUCTS}''')
entry = f.library.functions["entry"]
interrupted = []

def handler(*arguments):
    if not interrupted:
        interrupted.append(True)
        for n in (400, 500, 600):
            f(np.ones((n, n), np.int32))
    return entry(*arguments)

f.library.functions["entry"] = handler
x = np.full((300, 300), 2, np.int32).T  # of another layout, which machine code leaves to Python
y = f(x)
assert interrupted and np.array_equal(y, x @ x @ x)
"""
SIGNALS = f"""
import signal
import numpy as np
import cvm

f = cvm.compile('''{TWO_PRODUCTS}''')
sizes = [64]

def handler(*_):
    sizes.append(sizes[-1] % 700 + 8)
    n = sizes[-1]
    x = np.ones((n, n), np.int32)
    assert (f(x.T) == n * n).all()

signal.signal(signal.SIGALRM, handler)
x = np.full((96, 96), 3, np.int32).T
delays = 0
while len(sizes) < 150:
    delays += 1
    signal.setitimer(signal.ITIMER_REAL, 1e-4 + delays % 97 * 1e-5)
    for _ in range(10):
        assert (f(x) == 96 * 96 * 27).all()
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(sizes))
"""


def test_a_nested_call_with_larger_sizes_leaves_the_workspace_alone():
    run_script(INTERRUPTED)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no interval timers here")
def test_signal_handlers_may_call_the_interrupted_function():
    assert int(run_script(SIGNALS)) >= 150


def test_calls_of_a_traced_function_keep_the_way_they_are_on():
    """A function of many signatures serves few of them directly at a time; what it served stays as
    it is in memory.
    """
    f = cvm.compile(lambda a, b: a + b)
    kept = []
    for _ in range(3):
        for rank in range(1, 20):
            x = np.ones((2,) * (rank % 5 + 1), ("i4", "f4", "f8", "i8")[rank % 4])
            f(x, x)
            kept.append(f._ways and dict(f._ways))
    first = kept[0]
    assert all(f._ways[compiled] is way for compiled, way in first.items())
    chain, way = [], f._way
    while way is not None:
        chain.append(way)
        way = getattr(way, "following", None)
    assert len(chain) == len(set(map(id, chain))) == len(f._direct) + 1
