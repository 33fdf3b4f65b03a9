"""Forks and signals at any moment: children do not wait for locks of threads that they do not
have.
"""

import os
import signal

import pytest
from child_process import run_script

import cvm

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="there are no forks or POSIX signals here"
)

FORKS = """
import os, signal, sys, threading, warnings
import numpy as np
import cvm

warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads
program = "func @main(%x: tensor<?N x ?N x i32>) { %h = cvm.dense %x, %x %y = cvm.dense %h, %x return %y }"
calls, compiles = sys.argv[1] == "calls", sys.argv[1] == "compiles"
f = cvm.compile(program)
f(np.ones((3, 3), np.int32))
done = threading.Event()
number = iter(range(10**9))

def text():
    k = next(number)
    return f"func @main(%x: tensor<{k % 50 + 100}x7xi32>) {{ %y = cvm.cvm_clip %x {{precision = {k % 30 + 2}}} return %y }}"

def work():
    n = 1
    while not done.is_set():
        n = n % 300 + 1
        if calls:
            f(np.ones((n, n), np.int32))
        else:
            cvm.compile(text())

for _ in range(2):
    threading.Thread(target=work).start()
hung = 0
for k in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(100)
        x = np.ones((k + 400, k + 400), np.int32)
        y = f(x[:4, :4]) if not calls else f(x)
        if compiles:
            cvm.compile(text())
        os._exit(0 if (y == len(y) ** 2).all() else 3)
    hung += os.waitpid(child, 0)[1] != 0
done.set()
assert not hung, f"{hung} children hung"
"""
RESIZED = """
import signal
import numpy as np
import cvm

x = np.ones((96, 1000), np.int32)
f = cvm.compile("func @main(%x: tensor<96x1000xi32>) { %y = cvm.dense %x, %x return %y }")
seen = []

def handler(*_):
    seen.append(len(seen) % 5 + 1)
    cvm.set_num_threads(seen[-1])

signal.signal(signal.SIGALRM, handler)
for k in range(100_000):
    if k > 1500 and len(seen) > 200:
        break
    signal.setitimer(signal.ITIMER_REAL, 1e-5 + k % 89 * 1e-5)
    cvm.set_num_threads(k % 4 + 1)
    if not k % 20:
        assert (f(x) == 1000).all()
signal.setitimer(signal.ITIMER_REAL, 0)
cvm.set_num_threads(3)
assert cvm.get_num_threads() == 3 and (f(x) == 1000).all()
print(len(seen))
"""


CACHED = """
import os, signal, threading
from functools import cached_property
import cvm
from cvm.dialect.support import fork_safety

class Slow:
    @cached_property
    def value(self):
        entered.set()
        done.wait(60)
        return 1

entered, done = threading.Event(), threading.Event()
threading.Thread(target=lambda: Slow().value).start()
entered.wait(60)
child = os.fork()
if not child:
    signal.alarm(20)
    done.set()
    os._exit(Slow().value)
status = os.waitpid(child, 0)[1]
done.set()
assert status == 256, status
"""


def test_children_compute_cached_properties_that_other_threads_were_at():
    run_script(CACHED, timeout=60)


def test_forks_while_others_compile():
    run_script(FORKS, "compiles", "12", CVM_CACHE_DIR="", timeout=300)


@pytest.mark.slow
def test_forks_while_others_call_with_new_sizes():
    run_script(FORKS, "calls", "60", timeout=300)


@pytest.mark.slow
def test_the_number_of_threads_set_by_a_signal_handler():
    assert int(run_script(RESIZED)) > 100


def test_forks_inside_a_signal_handler_while_compiling(monkeypatch):
    """The handler interrupts the thread that compiles, which its fork must not wait for."""
    from cvm.dialect.support import fork_safety

    with fork_safety.no_fork(), fork_safety.no_fork():
        child = os.fork()
        if not child:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    child = os.fork()
    if not child:
        signal.alarm(100)
        y = cvm.compile("func @main(%x: tensor<3xi32>) { %y = cvm.negative %x return %y }")(
            [1, 2, 3]
        )
        os._exit(0 if y.tolist() == [-1, -2, -3] else 1)
    assert os.waitpid(child, 0)[1] == 0
