"""Calls through the emitted entry: what it takes itself, what it leaves to the slow entry, and that
nothing leaks.
"""

import ctypes
import itertools
import random
import re
import sys
import threading

import numpy as np
import pytest
from cvm.dialect.ir.deferred_size_limits import ARITHMETIC, CHECKS, SizeSteps
from cvm.dialect.types.sizes import Size
from cvm.jit.calls import fastcall
from cvm.jit.calls.dispatch_table import CallTable
from cvm.jit.calls.vectorcall_ir import TABLE, call_source
from cvm.jit.llvm.native_code import Library

import cvm

pytestmark = pytest.mark.skipif(
    not fastcall.usable(), reason="this Python's objects lie in memory in another way"
)

ADD = """
func @main(%a: tensor<4x3xi32>, %b: tensor<4x3xi32>) -> tensor<4x3xi32> {
  %y = cvm.elemwise_add %a, %b
  return %y
}
"""
TWO = """
func @main(%a: tensor<4xi32>) -> (tensor<4xi32>, tensor<1xi32>) {
  %y = cvm.negative %a
  %s = cvm.sum %a
  return %y, %s
}
"""
NEEDS_MEMORY = """
func @main(%x: tensor<64x64xi32>, %w: tensor<64x64xi32>) -> tensor<64x64xi32> {
  %h = cvm.dense %x, %w
  %y = cvm.dense %h, %w
  return %y
}
"""
DIVISION = """
func @main(%a: tensor<3xi32>, %b: tensor<3xi32>) -> tensor<3xi32> {
  %y = dali.floordiv %a, %b
  return %y
}
"""


@pytest.fixture
def add():
    return cvm.compile(ADD)


A = np.arange(12, dtype=np.int32).reshape(4, 3)


@pytest.fixture
def slow_calls(monkeypatch):
    """The calls that reach the slow entry."""
    from cvm.jit.functions.native_function import NativeFunction

    return counted_calls(monkeypatch, NativeFunction)


def counted_calls(monkeypatch, kind):
    """The arguments of each call that reaches the class's own entry."""
    seen = []
    original = kind.__call__

    def counted(self, *arguments, **keywords):
        seen.append(arguments)
        return original(self, *arguments, **keywords)

    monkeypatch.setattr(kind, "__call__", counted)
    return seen


def test_plain_calls_do_not_pass_through_python(slow_calls):
    f, g = cvm.compile(ADD), cvm.compile(TWO)
    out = np.empty_like(A)
    assert np.array_equal(f(A, A), A + A)
    assert f(A, A, out=out) is out
    assert np.array_equal(out, A + A)
    y, s = g(A[1:].reshape(-1)[:4])
    assert (y.tolist(), s.tolist()) == ([-3, -4, -5, -6], [18])
    pair = (np.empty(4, np.int32), np.empty(1, np.int32))
    assert g(A.reshape(-1)[:4], out=pair) is pair
    assert pair[1].tolist() == [6]
    assert slow_calls == []


@pytest.mark.parametrize(
    "odd",
    [
        A.astype(np.int16),
        A.astype(">i4"),
        np.asfortranarray(A),
        np.zeros((4, 6), np.int32)[:, ::2] + A,
        A.tolist(),
        A.view(type("Sub", (np.ndarray,), {})),
    ],
)
def test_whatever_else_is_accepted_gives_the_same(add, odd):
    assert np.array_equal(add(odd, A), np.asarray(odd, np.int64) + A)


def test_unaligned_arrays(add):
    memory = np.zeros(A.nbytes + 1, np.uint8)
    odd = memory[1:].view(np.int32).reshape(4, 3)
    odd[...] = A
    assert not odd.flags.aligned
    assert np.array_equal(add(odd, odd), A + A)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((A,), {}, "takes 2 arguments"),
        ((A, A, A), {}, "takes 2 arguments"),
        ((A, A[:3]), {}, "expected tensor<4x3xi32>, got tensor<3x3xi32>"),
        ((A, A.reshape(12)), {}, "expected tensor<4x3xi32>, got tensor<12xi32>"),
        ((A, A.astype(np.float32)), {}, "got tensor<4x3xf32>"),
        ((A, None), {}, "expected tensor<4x3xi32>"),
        ((A, A), {"out": np.empty((4, 3), np.int64)}, "out: expected a writable array"),
        ((A, A), {"out": np.empty((3, 4), np.int32)}, "out: expected a writable array"),
        ((A, A), {"out": 3}, "out: expected a writable array"),
    ],
)
def test_what_is_wrong_is_said(add, arguments, keywords, message):
    with pytest.raises(cvm.CallError, match=message):
        add(*arguments, **keywords)


def test_read_only_out_and_unknown_keywords(add):
    out = np.empty_like(A)
    out.flags.writeable = False
    with pytest.raises(cvm.CallError, match="read-only"):
        add(A, A, out=out)
    with pytest.raises(cvm.CallError, match="got one named into"):
        add(A, A, into=out)
    with pytest.raises(cvm.CallError, match="whose elements share memory"):
        add(A, A, out=np.lib.stride_tricks.as_strided(np.empty(3, np.int32), (4, 3), (0, 4)))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_arguments_by_name(target):
    f = cvm.compile(ADD.replace("elemwise_add", "elemwise_sub"), target=target)
    out = np.empty_like(A)
    assert np.array_equal(f(b=A, a=A * 3), A * 2)
    assert f(A * 3, b=A, out=out) is out
    assert np.array_equal(out, A * 2)
    for arguments, named, message in (
        ((A,), {"a": A}, "takes 2 arguments .*, got %a twice"),
        ((), {"b": A}, "takes 2 arguments .*, got 1, no %a"),
        ((A, A, A), {"b": A}, "got %b twice"),
    ):
        with pytest.raises(cvm.CallError, match=message):
            f(*arguments, **named)


def test_a_batch_of_samples():
    f = cvm.compile(
        "func @main(%x: tensor<?N x 2 x i32>, %k: tensor<2xi32>) { %y = cvm.broadcast_add "
        "%x, %k return %y }"
    )
    samples = [np.full((n, 2), n, np.int32) for n in (3, 0, 1)]
    k = np.array([1, 2], np.int32)
    for sample, result in zip(samples, f.batch(samples, k), strict=True):
        assert np.array_equal(result, sample + k)
    assert f.batch([], k) == []
    assert [r.tolist() for r in f.batch(samples[1:], [k, -k])] == [[], [[0, -1]]]
    for given, message in (
        ((k, k), "list of samples .*, got no list"),
        ((samples, [k]), "all of one length, got 1 and 3"),
        (([samples[0], k], k), "one rank, but those of argument 0 have 1 and 2"),
        ((samples, k, k), "takes 2 arguments"),
    ):
        with pytest.raises(cvm.CallError, match=message):
            f.batch(*given)


@pytest.mark.parametrize("program", [3, None, [1], 2.5])
def test_what_is_no_program_is_said(program):
    with pytest.raises(cvm.ParseError, match="expected a program's text, got"):
        cvm.parse(program)
    if program is not None:
        with pytest.raises(
            cvm.Error, match="expected a module, a program's text or path, or a Python function"
        ):
            cvm.compile(program)
    with pytest.raises(cvm.ParseError, match="expected the path of a program, got"):
        cvm.load(program)


def test_a_program_without_text_has_no_functions():
    with pytest.raises(cvm.TargetError, match="no function @main; it has none"):
        cvm.compile("")


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_outs_do_not_overlap_each_other(target):
    f = cvm.compile(
        "func @main(%x: tensor<5xi32>) {\n  %y = cvm.relu %x\n  %z = cvm.negative %x\n"
        "  return %y, %z\n}",
        target=target,
    )
    x, memory = np.arange(-2, 3, dtype=np.int32), np.zeros(10, np.int32)
    for _ in range(2):  # the second call may go another way
        f(x, out=(memory[::2], memory[1::2]))
        np.testing.assert_array_equal(memory[::2], [0, 0, 0, 1, 2])
        np.testing.assert_array_equal(memory[1::2], [2, 1, 0, -1, -2])
        for out in (
            (memory[:5], memory[:5]),
            (memory[:5], memory[4:9]),
            (memory[:5], memory[4::-1]),
        ):
            with pytest.raises(cvm.CallError, match="got ones for %y and %z that share memory"):
                f(x, out=out)


@pytest.mark.parametrize("given", [None, object(), {}])
def test_what_is_no_array_is_named(given):
    with pytest.raises(
        cvm.CallError, match=f"argument %a: expected tensor<4x3xi32>, got {type(given).__name__}"
    ):
        cvm.compile(ADD)(given, A)


@pytest.mark.parametrize("entry", [3, None, b"main"])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_an_entry_is_a_name(entry, target):
    for program in (ADD, cvm.parse(ADD)):
        with pytest.raises(cvm.Error, match="entry is the name of a function or a graph, got "):
            cvm.compile(program, entry, target)


def test_out_may_overlap_inputs():
    f = cvm.compile(
        "func @main(%a: tensor<8xi32>, %b: tensor<8xi32>) {\n"
        "  %y = cvm.elemwise_add %a, %b\n  return %y\n}\n"
    )
    memory = np.arange(12, dtype=np.int32)
    want = memory[:8] + memory[2:10]
    f(memory[:8], memory[2:10], out=memory[1:9])
    assert np.array_equal(memory[1:9], want)


def test_a_requirement_that_fails_is_reported():
    f = cvm.compile(DIVISION)
    x = np.array([7, 8, 9], np.int32)
    assert f(x, np.array([2, 3, 4], np.int32)).tolist() == [3, 2, 2]
    with pytest.raises(cvm.CallError, match=r"3:8.*division by zero"):
        f(x, np.array([2, 0, 4], np.int32))
    assert f(x, np.array([1, 1, 1], np.int32)).tolist() == [7, 8, 9]


def test_threads_share_a_function():
    f = cvm.compile(NEEDS_MEMORY)
    rng = np.random.default_rng(0)
    samples = [
        (
            rng.integers(-9, 9, (64, 64), dtype=np.int32),
            rng.integers(-9, 9, (64, 64), dtype=np.int32),
        )
        for _ in range(4)
    ]
    wants = [f(*s) for s in samples]
    wrong = []

    def work(n):
        for _ in range(200):
            if not np.array_equal(f(*samples[n]), wants[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_nothing_leaks():
    f, g = cvm.compile(ADD), cvm.compile(TWO)
    out = np.empty_like(A)
    counts = [sys.getrefcount(o) for o in (A, out, A.dtype, np.ndarray)]
    for _ in range(1000):
        f(A, A)
        f(A, A, out=out)
        g(A.reshape(-1)[:4])
    after = [sys.getrefcount(o) for o in (A, out, A.dtype, np.ndarray)]
    assert max(abs(a - b) for a, b in zip(counts, after, strict=True)) < 10


def test_a_function_that_is_gone_is_freed():
    import gc
    import weakref

    f = cvm.compile(ADD)
    f(A, A)
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("shape", ["0x3", "", "1x1x1x1x1x1x1x1"])
def test_shapes_of_every_rank(shape):
    dims = tuple(int(d) for d in shape.split("x") if d)
    written = f"tensor<{shape}{'x' if shape else ''}i32>"
    f = cvm.compile(
        f"func @main(%a: {written}) -> {written} {{\n  %y = cvm.abs %a\n  return %y\n}}\n"
    )
    x = np.full(dims, -3, np.int32)
    assert np.array_equal(f(x), -x)
    assert f(x).shape == dims


ANY = """
func @main(%a: tensor<?N x ?M x i32>, %b: tensor<?M x i32>) -> tensor<?M x ?N x i32> {
  %s = dali.add %a, %b
  %y = cvm.transpose %s {axes = [1, 0]}
  return %y
}
"""


def test_new_sizes_do_not_pass_through_python(slow_calls):
    f = cvm.compile(ANY)
    for _ in range(2):
        for n, m in ((3, 4), (5, 1), (0, 2), (4, 3)):
            a, b = np.arange(n * m, dtype=np.int32).reshape(n, m), np.arange(m, dtype=np.int32)
            out = np.empty((m, n), np.int32)
            assert np.array_equal(f(a, b), (a + b).T)
            assert f(a, b, out=out) is out and np.array_equal(out, (a + b).T)
    assert not slow_calls


POOLED = """
func @main(%x: tensor<1x1x?H x ?W x i32>, %b: tensor<?K x i32>) {
  %p = cvm.max_pool2d %x {pool_size = [3, 2], strides = [2, 3], padding = [1, 0], ceil_mode = true}
  %f = cvm.flatten %p
  %y = cvm.broadcast_add %f, %b
  %z = cvm.concatenate %y, %f {axis = 0}
  return %y, %z
}
"""


def test_sizes_are_computed_as_verification_infers_them(slow_calls):
    f, reference = cvm.compile(POOLED), cvm.compile(POOLED, target="reference")
    refused = 0
    for h, w in itertools.product((1, 2, 3, 6, 7, 30), (1, 2, 5, 9)):
        for k in {1, 4, 10, ((h - 1 + 1) // 2 + 1) * max((w + 3) // 3, 1)}:
            x, b = np.arange(h * w, dtype=np.int32).reshape(1, 1, h, w), np.ones(k, np.int32)
            try:
                wanted = reference(x, b)
            except cvm.Error as e:
                refused += 1
                with pytest.raises(type(e)) as got:
                    f(x, b)
                assert str(got.value) == str(e)
            else:
                for a, c in zip(f(x, b), wanted, strict=True):
                    assert a.shape == c.shape and np.array_equal(a, c)
    assert refused and len(slow_calls) < refused + 8


def test_steps_on_sizes_mean_in_machine_code_what_they_mean_in_python():
    own = """
define ptr @computed(ptr %plans, ptr %known, ptr %values) {
  %found = call ptr @planned(ptr %plans, ptr %known, ptr %values)
  ret ptr %found
}
"""
    library = Library(
        call_source() + own, {"computed": (ctypes.c_void_p,) * 3}, (), fastcall.addresses()
    )
    rng = random.Random(40)
    ended = 0
    for _ in range(400):
        steps = SizeSteps([(a,) for a in "abc"])
        for atom in "abc":
            steps.of(Size.of_atom((atom,)))
        for _ in range(12):
            steps.of(rng.choice((rng.randint(-9, 9), rng.randint(-(2**62), 2**62))))
            name = rng.choice((*4 * ARITHMETIC, *CHECKS))
            steps.add(name, *(rng.randrange(len(steps.places)) for _ in range(2)))
        sizes = [rng.choice((0, 1, 7, 2**40 - 1)) for _ in "abc"]
        table = CallTable(0, (), (), (), [], {}, print)
        table.plan([(steps, 0, [])])
        values = (ctypes.c_int64 * (len(steps.places) + 1))()
        found = library.functions["computed"](
            table.words[TABLE.index("plans")], (ctypes.c_int64 * 3)(*sizes), values
        )
        wanted = steps.values(sizes)
        ended += wanted is None
        assert bool(found) == (wanted is not None)
        assert wanted is None or values[:-1] == wanted
    assert 50 < ended < 350


def test_sizes_are_still_compared(slow_calls):
    f = cvm.compile(ANY)
    a, b, c = np.ones((3, 4), np.int32), np.ones(4, np.int32), np.ones(3, np.int32)
    assert f(a, b).shape == (4, 3)
    assert f(a, b).shape == (4, 3)
    with pytest.raises(
        cvm.CallError, match=r"expected tensor<\?M x i32> with \?M = 4, as in %a, got tensor<3xi32>"
    ):
        f(a, c)
    with pytest.raises(cvm.CallError, match="out: expected a writable array"):
        f(a, b, out=np.empty((3, 4), np.int32))
    assert f(a, b).tolist() == [[2, 2, 2]] * 4


def test_more_sizes_than_are_kept():
    f = cvm.compile(ANY)
    for n in (*range(300), 7, 299, 150):
        a, b = np.full((n, 2), n, np.int32), np.ones(2, np.int32)
        for _ in range(2):
            assert f(a, b).tolist() == [[n + 1] * n] * 2


def test_workspace_grows_with_the_sizes(slow_calls):
    f = cvm.compile(
        "func @main(%x: tensor<?N x ?N x i32>, %w: tensor<?N x ?N x i32>) -> tensor<?N x "
        "?N x i32> {\n"
        "  %h = cvm.dense %x, %w\n  %y = cvm.dense %h, %w\n  return %y\n}\n"
    )
    rng = np.random.default_rng(0)
    for n in (4, 32, 100, 8, 100, 32):
        x, w = rng.integers(-9, 9, (2, n, n)).astype(np.int32)
        for _ in range(2):
            assert np.array_equal(f(x, w), x @ w.T @ w.T)
    assert not slow_calls


def test_a_requirement_that_fails_for_known_sizes():
    f = cvm.compile(DIVISION.replace("3xi32", "?N x i32"))
    for n in (3, 5):
        x = np.arange(n, dtype=np.int32)
        for _ in range(2):
            assert f(x, np.ones(n, np.int32)).tolist() == list(range(n))
        with pytest.raises(cvm.CallError, match=r"3:8.*division by zero"):
            f(x, np.zeros(n, np.int32))


def test_threads_and_many_sizes():
    f = cvm.compile(NEEDS_MEMORY.replace("64x64x", "?N x ?N x "))
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for n in range(1, 60):
            x, w = rng.integers(-9, 9, (2, n, n)).astype(np.int32)
            for _ in range(3):
                if not np.array_equal(f(x, w), x @ w.T @ w.T):
                    wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_traced_functions_are_called_directly(monkeypatch):
    from cvm.transforms.traced_function import TracedFunction

    seen = counted_calls(monkeypatch, TracedFunction)

    @cvm.compile
    def f(a, b):
        return a * 2 + b, a - b

    x, y = np.arange(4, dtype=np.int32), np.ones(4, np.int32)
    outs = np.empty(4, np.int32), np.empty(4, np.int32)
    for _ in range(3):
        both = f(x, y)
        assert [v.tolist() for v in both] == [[1, 3, 5, 7], [-1, 0, 1, 2]]
        assert f(x, y, out=outs) is outs and outs[0].tolist() == [1, 3, 5, 7]
    assert len(seen) == 1
    assert f(x.reshape(2, 2), y.reshape(2, 2))[0].shape == (2, 2)  # another signature
    assert f(x.reshape(2, 2), y.reshape(2, 2))[0].shape == (2, 2)
    assert f(x, y)[0].shape == (4,)
    assert f(x, b=y)[1].tolist() == [-1, 0, 1, 2]
    assert f(x.astype(np.float32), y.astype(np.float32))[0].dtype == np.float32
    with pytest.raises(cvm.CallError, match="missing a required argument"):
        f(x)
    assert f.program().functions["f"].arguments[0].known_type.element.name == "f32"


def test_traced_structures_and_methods_stay_what_they_are():
    class Scale:
        def __init__(self, k):
            self.k = k

        @cvm.compile
        def by(self, x):
            return {"y": [x * self.k]}

        @cvm.compile
        def plain(self, x):
            return (x + self.k,)

    two, three = Scale(2), Scale(3)
    x = np.arange(3, dtype=np.int32)
    for _ in range(3):
        assert two.by(x)["y"][0].tolist() == [0, 2, 4] and three.by(x)["y"][0].tolist() == [0, 3, 6]
        (y,) = two.plain(x)
        assert y.tolist() == [2, 3, 4]


def test_a_traced_function_that_is_gone_is_freed():
    import gc
    import weakref

    f = cvm.compile(lambda a: a + 1)
    assert f(A)[0, 0] == 1
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


@pytest.fixture
def slow_traced(monkeypatch):
    """The calls of traced functions that reach the slow entry."""
    from cvm.transforms.traced_function import TracedFunction

    return counted_calls(monkeypatch, TracedFunction)


def test_structures_are_taken_apart_directly(slow_traced):
    @cvm.compile
    def f(pair, named, how, c):
        (a, b), d = pair, named["z"][0]
        return a - b * (2 if how == "twice" else 1) + c, d - named["y"]

    a, b, c, d = (np.full(3, n, np.int32) for n in (50, 3, 1, 20))
    outs = np.empty(3, np.int32), np.empty(3, np.int32)
    for _ in range(4):
        y, z = f((a, b), {"z": [d], "y": a}, "twice", c)
        assert (y[0], z[2]) == (45, -30)
        assert f((a, b), {"z": [d], "y": a}, "twice", c, out=outs) is outs and outs[0][1] == 45
    assert len(slow_traced) == 1
    assert f((a, b), {"y": a, "z": [d]}, "twice", c)[0][0] == 45  # in another order
    assert f((a, b), {"z": [d], "y": a}, "once", c)[0][0] == 48
    assert f([a, b], {"z": (d,), "y": a}, "once", c)[0][0] == 48
    assert len(slow_traced) == 4
    assert f([a, b], {"z": (d,), "y": a}, "once", c)[0][0] == 48
    assert len(slow_traced) == 4
    for wrong in ((a,), (a, b, c), a, None, {"a": a, "b": b}):
        with pytest.raises((cvm.Error, ValueError, TypeError)):
            f(wrong, {"z": [d], "y": a}, "twice", c)
    with pytest.raises(cvm.Error, match="sizes that meet are equal"):
        f((a, b), {"z": [d], "y": a}, "twice", c[:2])


def test_what_structures_hold_is_kept_and_let_go(slow_traced):
    f = cvm.compile(lambda pair, more: pair[0] + more["k"][0])
    a = np.arange(4, dtype=np.int32)
    pair, more = (a, a), {"k": [a]}
    f(pair, more)
    counts = [sys.getrefcount(o) for o in (a, pair, more, more["k"])]
    for _ in range(1000):
        f(pair, more)
    assert len(slow_traced) == 1
    assert [sys.getrefcount(o) for o in (a, pair, more, more["k"])] == counts
    large = cvm.compile(lambda xs: xs[0] * 3 + xs[1])
    xs = [np.ones((1000, 1000), np.int32), np.ones((1000, 1000), np.int32)]
    large(xs)
    done = []

    def replace():
        while not done:
            xs[0], xs[1] = np.ones((1000, 1000), np.int32), np.ones((1000, 1000), np.int32)

    other = threading.Thread(target=replace)
    other.start()
    try:
        for _ in range(30):
            assert large(xs).min() == large(xs).max() == 4
    finally:
        done.append(True)
        other.join()


def test_signatures_that_alternate_are_all_direct(slow_traced):
    f = cvm.compile(lambda a: a + 1)
    arrays = [np.ones((2,) * n, dtype) for n in range(1, 4) for dtype in (np.int32, np.float32)]
    for a in arrays:
        f(a)
    for _ in range(3):
        for a in arrays:
            assert f(a).shape == a.shape and f(a).dtype == a.dtype
    assert len(slow_traced) == len(arrays)
    g = cvm.compile(lambda a, word: a + len(word))
    for n in [*range(1, 40), *range(1, 40), 39, 39]:  # more structures than are kept on the way
        assert g(arrays[0], "a" * n).tolist() == [1 + n] * 2


def test_sizes_after_many_shapes_are_direct(slow_traced):
    f = cvm.compile(lambda a: a + 1)
    for _ in range(2):
        for n in range(2, 30):
            assert f(np.zeros(n, np.int32)).tolist() == [1] * n
    assert len(slow_traced) < 10


def test_many_sizes_are_all_direct(slow_calls):
    f = cvm.compile(
        "func @main(%a: tensor<?N x ?M x i32> {range = [0, 9]}) { %y = cvm.negative %a return %y }"
    )
    sizes = [(n, m) for n in range(0, 40) for m in range(1, 20)]
    for _ in range(2):
        for n, m in sizes:
            assert f(np.full((n, m), 9, np.int32)).shape == (n, m)
    assert not slow_calls
    for place in ((0, 0), (38, 17), (39, 18)):
        a = np.zeros((40, 19), np.int32)
        a[place] = 10
        with pytest.raises(
            cvm.CallError,
            match=rf"expected values from 0 to 9, got 10 at \[{place[0]}, {place[1]}\]",
        ):
            f(a)


def test_arrays_that_were_pickled_are_taken_directly(add, slow_calls):
    import pickle

    b = pickle.loads(pickle.dumps(A))
    assert np.array_equal(add(b, A), A + A)
    assert np.array_equal(add(A, b, out=pickle.loads(pickle.dumps(A))), A + A)
    assert slow_calls == []
    with pytest.raises(cvm.CallError, match="got tensor<4x3xui32>"):
        add(b.astype(np.uint32), A)


@pytest.mark.parametrize("results", [1, 2])
@cvm.limits(memory=1 << 60)
def test_memory_that_does_not_suffice_is_said(results):
    lines = "\n".join(f"%y{n} = dali.add %a, %b" for n in range(results))
    names = ", ".join(f"%y{n}" for n in range(results))
    f = cvm.compile(
        f"func @main(%a: tensor<?N x 1 x i64>, %b: tensor<524288xi64>) {{\n{lines}\n"
        f"return {names}\n}}"
    )
    b = np.ones(1 << 19, np.int64)
    for _ in range(2):
        with pytest.raises(cvm.CallError, match="memory does not suffice"):
            f(np.ones((1 << 20, 1), np.int64), b)
    y = f(np.ones((2, 1), np.int64), b)
    assert (y if results == 1 else y[1]).shape == (2, 1 << 19)
    g = cvm.compile(
        f"func @main(%a: tensor<1048576x1xi64>, %b: tensor<524288xi64>) {{\n{lines}\n"
        f"return {names}\n}}"
    )
    for _ in range(2):
        with pytest.raises(cvm.CallError, match="memory does not suffice"):
            g(np.ones((1 << 20, 1), np.int64), b)


class Raising:
    """An array-like object whose conversion raises."""

    @property
    def __array_interface__(self):
        raise RuntimeError("not today")


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_arguments_that_raise_are_named(target):
    f = cvm.compile(ADD, target=target)
    with pytest.raises(
        cvm.CallError, match=r"argument %b: expected tensor<4x3xi32>, got Raising \(not today\)"
    ):
        f(A, Raising())
    g = cvm.compile(lambda x, more: x + more[0])
    with pytest.raises(
        cvm.CallError, match=r"argument more\[0\]: expected arrays, .*, got Raising \(not today\)"
    ):
        g(A, [Raising()])


def test_functions_are_compiled_in_several_threads_at_once():
    functions = [cvm.compile(lambda a, n=n: a + n) for n in range(12)]
    found = {}

    def work(n):
        found[n] = [functions[k](A)[0, 0] for k in range(n, 12, 4)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {n: [n, n + 4, n + 8] for n in range(4)}


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_masked_arrays_are_taken_only_with_all_their_elements(target):
    top = A.max()
    whole, some = np.ma.array(A), np.ma.array(A, mask=top == A)
    what = (
        f"a masked array, {np.count_nonzero(top == A)} of {A.size} masked; its .filled(...) is "
        "an array of values"
    )
    f = cvm.compile(ADD, target=target)
    np.testing.assert_array_equal(f(whole, A), f(A, A))
    for call, told in (
        (lambda: f(A, some), f"argument %b: expected tensor<4x3xi32>, got {what}"),
        (
            lambda: f(A, A, out=some.copy()),
            f"out: expected a writable array tensor<4x3xi32>, got {what}",
        ),
        (lambda: cvm.compile(lambda x: x + 1)(some), f"expected an array of values, got {what}"),
        (lambda: cvm.compile(lambda x: x + some)(A), f"expected an array of values, got {what}"),
        (
            lambda: cvm.compile(lambda x: np.maximum(some, x))(A),
            f"expected an array of values, got {what}",
        ),
    ):
        with pytest.raises(cvm.Error, match=re.escape(told)):
            call()
    np.testing.assert_array_equal(f(some.filled(7), A), A + np.where(top == A, 7, A))
