"""Faults at every step: after a failed allocation, file operation or an interrupt anywhere, the
next compilation and call are right.

Nothing may be left behind: no lock is held, no setting changed, no thread running and no temporary
file in the cache.
"""

import pytest
from child_process import run_script

STATE = """
import gc, math, os, random, sys, threading
import numpy as np
import cvm
from cvm.dialect.support import fork_safety
from cvm.dialect.support.limits import DEADLINE, LIMITS, Limits

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
    assert not fork_safety._inside, (what, fork_safety._inside)
    assert not [t for t in threading.enumerate() if t.name == "cvm compiling"], what
    free = []
    def take():
        for lock in (*fork_safety._outer, *fork_safety._inner, fork_safety._changed):
            assert lock.acquire(timeout=60), what
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
        pass  # the traceback is dropped first, and with it what its frames hold: generators that were begun
    except cvm.Error as e:
        assert "memory does not suffice" in str(e), e
    whole(what)
    return True

right(*compiled())
"""
INTERRUPTS = (
    STATE
    + """
import _thread, signal

class Signal(int):
    # An attribute and not a call: CPython runs handlers after calls, at jumps backward and where functions begin, nowhere else.
    # So the handler does not run in the tracer, but at the first of these places in the code that is traced.
    arrives = property(_thread.interrupt_main)

SIGINT = Signal(signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # which may be ignored, as in jobs of a shell
SETTINGS = {"ScopedSetting.__call__", "ScopedSetting._leave", "no_fork", "_leave", "compiling", "_end", "toolchain"}

class Interrupt:
    raised = KeyboardInterrupt
    def __init__(self, at):
        self.left, self.settings = at, []
    def __enter__(self):
        sys.settrace(self.trace)
    def __exit__(self, *_):
        sys.settrace(None)
    def trace(self, frame, event, _):
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return None if "llvmlite" in frame.f_code.co_filename else self.trace
        if event == "opcode":
            self.left -= 1
            if self.left < 0 and frame.f_code.co_qualname in SETTINGS:
                self.settings.append(-1 - self.left)
            if self.left == 0:
                sys.settrace(None)
                SIGINT.arrives
        return self.trace

def places(operation):
    counter = Interrupt(-1)
    with counter:
        operation()
    return range(1, -1 - counter.left), counter.settings

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
    anywhere, settings = places(operation)
    for _ in range(int(sys.argv[1])):  # by turns where settings change
        at = random.Random(name + str(_)).choice(settings if _ % 2 and settings else anywhere)
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
SINGLE = (
    STATE
    + """
import builtins
from cvm.dialect.support import files
from cvm.jit.cache import disk_cache
left, cut, folder = 0, sys.argv[2] == "cut", sys.argv[1]
os.environ["CVM_CACHE_DIR"] = folder

def fails():
    global left
    left -= 1
    return left == 0

def failing(function):
    def call(*arguments, **named):
        if fails() and not cut:
            raise OSError(5, "input/output error")
        return function(*arguments, **named)
    return call

class File:  # whose reads and writes fail, or end too early
    def __init__(self, file):
        self.file, self.fileno = file, file.fileno
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
        if fails() and not cut:
            raise OSError(5, "input/output error")
    def read(self, *count):
        data = self.file.read(*count)
        if fails():
            if not cut:
                raise OSError(5, "input/output error")
            return data[: len(data) // 2]
        return data
    def write(self, data):
        if fails():
            self.file.write(data[: len(data) // 2])
            if not cut:
                raise OSError(28, "no space left on device")
            return len(data) // 2
        return self.file.write(data)
    def writelines(self, parts):
        for part in parts:
            self.write(part)

class Os:
    def __getattr__(self, name):
        return failing(getattr(os, name)) if name in ("fstat", "utime", "replace") else getattr(os, name)

for module in (disk_cache, files):
    module.open, module.os = lambda *a, **named: File(builtins.open(*a, **named)), Os()
failed = 0
for program in ("new", "known"):
    at = 1
    while True:
        left = at
        made = compiled() if program == "new" else (cvm.compile(TEXT.format(1.0)), 1)
        over, left = left > 0, 0
        right(*made)
        if over:
            break
        at, failed = at + 1, failed + 1
    whole(program)
    right(*compiled())
assert failed > 4, failed
assert not [n for n in os.listdir(folder) if n.startswith(".new-")], os.listdir(folder)
print("right")
"""
)
MEMORY = (
    STATE
    + """
import re, resource
LARGE = "func @main(%x: tensor<?x?xf64>, %w: tensor<?x?xf64>) {{ %t = dali.add %x, {} %h = cvm.dense %t, %w %v = dali.add %h, %h return %h, %v }}"

def size():
    return int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10

class Little:  # address space left for new memory
    raised = MemoryError
    def __init__(self, room):
        self.room = room
    def __enter__(self):
        resource.setrlimit(resource.RLIMIT_AS, (size() + self.room, resource.RLIM_INFINITY))
    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

x = np.ones((2100, 3))  # results of more than 32 MiB, for which malloc asks the system
failed = worked = 0
for room in range(0, 160 << 20, int(sys.argv[1])):
    f = cvm.compile(LARGE.format(float(room % 7 + 1)), cpu="native")
    f(x[:2, :2], x[:2, :2])
    def operation():
        h, v = f(np.asfortranarray(x), x)
        assert (h == 3 * (room % 7 + 2)).all() and (v == 2 * h).all()
    one = attempt(room, Little(room), operation)
    failed, worked = failed + one, worked + (not one)
    operation()
assert failed > 3 and worked > 3, (failed, worked)
print("right")
"""
)


def test_interrupts_at_any_bytecode():
    assert "right" in run_script(INTERRUPTS, "40", CVM_CACHE_DIR="")


@pytest.mark.slow
def test_interrupts_at_many_bytecodes():
    assert "right" in run_script(
        INTERRUPTS, "600", timeout=600, CVM_CACHE_DIR=""
    )  # all imported by the first program


def test_allocations_that_fail():
    assert "right" in run_script(ALLOCATIONS)


def test_file_operations_that_fail(tmp_path):
    assert "right" in run_script(FILES, str(tmp_path / "cache"))


@pytest.mark.parametrize("how", ["fail", "cut"])
def test_single_reads_and_writes_that_fail(how, tmp_path):
    """One read, write, close, rename or question of the cache's fails, or a read or write ends too
    early.
    """
    assert "right" in run_script(SINGLE, str(tmp_path / "cache"), how)


@pytest.mark.slow
@pytest.mark.skipif("not __import__('sys').platform.startswith('linux')", reason="needs RLIMIT_AS")
def test_calls_for_which_the_system_has_no_memory():
    """The system gives no more memory from some allocation of a call on."""
    assert "right" in run_script(MEMORY, str(9 << 20))
