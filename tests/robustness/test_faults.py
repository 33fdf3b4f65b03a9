"""Faults at every step: after a failed allocation, file operation or an interrupt anywhere, the next compilation and call are right.

Nothing may be left behind: no lock is held, no setting changed, no thread running and no temporary file in the cache.
"""

import pytest
from child_process import run_script

STATE = """
import gc, math, os, random, sys, threading
import numpy as np
import cvm
from cvm.dialect.ir import fork_safety
from cvm.dialect.ir.limits import DEADLINE, LIMITS, Limits

TEXT = "func @main(%x: tensor<?x3xf32>, %w: tensor<4x3xf32>) {{ %h = cvm.dense %x, %w %y = cvm.relu %h %z = theano.elemwise %y, {} {{scalar_op = 'add'}} return %z }}".replace("'", '"')
X, W = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((4, 3), np.float32)
EXPECTED = np.maximum(X @ W.T, 0)
interval = sys.getswitchinterval()
seen = 0

def compiled():
    global seen
    seen += 1  # a new program each time, so that it is really compiled
    return cvm.compile(TEXT.format(float(seen))), seen

def right(f, added):
    for x in (X, X[:1], np.repeat(X, 50, 0)):
        assert (f(x, W) == np.maximum(x @ W.T, 0) + added).all()

def whole(what):
    assert gc.isenabled() and sys.getswitchinterval() == interval, what
    assert LIMITS.get() == Limits() and DEADLINE.get() == math.inf, what
    assert fork_safety._inside == 0, (what, fork_safety._inside)
    assert not [t for t in threading.enumerate() if t.name == "cvm compiling"], what
    free = []
    def take():
        for lock in (*fork_safety._outer, *fork_safety._inner, fork_safety._changed):
            assert lock.acquire(timeout=5), what
            lock.release()
        free.append(True)
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert free, what
    right(*compiled())

def attempt(what, fault, operation):
    try:
        with fault:
            operation()
        return False
    except fault.raised:
        whole(what)
        return True
    except cvm.Error as e:
        assert "memory does not suffice" in str(e), e
        whole(what)
        return True

right(*compiled())
"""
INTERRUPTS = (
    STATE
    + """
class Interrupt:
    raised = KeyboardInterrupt
    def __init__(self, at):
        self.left = at
    def __enter__(self):
        sys.settrace(self.trace)
    def __exit__(self, *_):
        sys.settrace(None)
    def trace(self, frame, event, _):
        if "contextlib" in frame.f_code.co_filename or "threading" in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self.trace

def length(operation):
    counter = Interrupt(-1)
    with counter:
        operation()
    return -1 - counter.left

made, number = compiled()
operations = {
    "compile": compiled,
    "call": lambda: made(X, W),
    "call with new sizes": lambda: cvm_call_new(),
}
rows = iter(range(100, 10**6))
def cvm_call_new():
    n = next(rows)
    assert (made(np.ones((n, 3), np.float32), W) == 3 + number).all()
found = 0
for name, operation in operations.items():
    steps = length(operation)
    for _ in range(int(sys.argv[1])):
        at = random.Random(name + str(_)).randrange(1, max(2, steps))
        found += attempt((name, at), Interrupt(at), operation)
    right(made, number)
assert found > int(sys.argv[1]), found
print("right")
"""
)
ALLOCATIONS = (
    STATE
    + """
class NoMemory:
    raised = MemoryError
    names = ("empty", "zeros", "ascontiguousarray", "full", "array")
    def __init__(self, at):
        self.left = at
    def __enter__(self):
        self.before = {n: getattr(np, n) for n in self.names}
        for n, function in self.before.items():
            setattr(np, n, self.failing(function))
    def failing(self, function):
        def call(*arguments, **named):
            self.left -= 1
            if self.left == 0:
                raise MemoryError("no memory")
            return function(*arguments, **named)
        return call
    def __exit__(self, *_):
        for n, function in self.before.items():
            setattr(np, n, function)

CONSTANT = 'func @main(%x: tensor<?x3xf32>) {{ %w = const dense<{}.5> : tensor<4x3xf32> %h = cvm.dense %x, %w return %h }}'
def with_constants():
    global seen
    seen += 1
    return cvm.compile(CONSTANT.format(seen))(X)
slow, added = compiled()
rows = iter(range(100, 10**6))
def call_slowly():
    x = np.asfortranarray(np.repeat(X[:1], next(rows), 0))  # copied to rows that lie one after the other
    assert (slow(x, W) == np.maximum(x @ W.T, 0) + added).all()
failed = 0
for name, operation in (("compile", with_constants), ("call", call_slowly)):
    at = 1
    while attempt((name, at), NoMemory(at), operation):
        at, failed = at + 1, failed + 1
assert failed > 2, failed
print("right")
"""
)
FILES = (
    STATE
    + """
EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.scandir", "os.utime", "tempfile.mkstemp", "os.listdir"}
armed, left, folder = False, 0, sys.argv[1]
os.environ["CVM_CACHE_DIR"] = folder
def hook(event, arguments):
    global left
    if armed and event in EVENTS and folder in str(arguments[:1]):
        left -= 1
        if left == 0:
            raise OSError(28, "no space left on device")
sys.addaudithook(hook)
os.urandom = lambda n: bytes(n)  # the cache shrinks every time
for program in ("new", "known"):
    at = 1
    while True:
        left, armed = at, True
        made = compiled() if program == "new" else (cvm.compile(TEXT.format(1.0)), 1)
        armed = False
        right(*made)
        if left > 0:
            break
        at += 1
    assert at > 2, (program, at)
    whole(program)
assert not [n for n in os.listdir(folder) if n.startswith(".new-")], os.listdir(folder)
print("right")
"""
)


def test_interrupts_at_any_bytecode():
    assert "right" in run_script(INTERRUPTS, "40")


@pytest.mark.slow
def test_interrupts_at_many_bytecodes():
    assert "right" in run_script(INTERRUPTS, "600")


def test_allocations_that_fail():
    assert "right" in run_script(ALLOCATIONS)


def test_file_operations_that_fail(tmp_path):
    assert "right" in run_script(FILES, str(tmp_path / "cache"))
