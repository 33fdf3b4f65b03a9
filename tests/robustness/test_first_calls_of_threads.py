"""The first calls of several threads, of which one still imports what the others need."""

from child_process import run_script

# the second call comes while the table of ufuncs has some of its rows only
MEANWHILE = """
import sys, threading
import numpy as np
import cvm

entered, called = threading.Event(), threading.Event()

class Pausing:
    def find_spec(self, name, path, target=None):
        if name == "cvm.dialect.numpy.floating_point":
            entered.set()
            called.wait(2)

def second():
    assert entered.wait(60)
    results.append(sine(x))
    called.set()

sys.meta_path.insert(0, Pausing())
x, results = np.ones(3), []
sine = cvm.compile(np.sin)
thread = threading.Thread(target=second)
thread.start()
cvm.compile(np.cos)(x)
thread.join()
assert entered.is_set() and np.allclose(results, [np.sin(x)])
"""


def test_a_call_while_another_thread_imports_the_ufuncs() -> None:
    run_script(MEANWHILE)
