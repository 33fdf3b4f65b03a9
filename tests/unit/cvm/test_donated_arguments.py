"""Arguments whose arrays hold results: `donate_argnames` of `cvm.compile`, and `{inplace = n}` of a
program.
"""

import numpy as np
import pytest

import cvm

TARGETS = pytest.mark.parametrize("target", ["cpu", "reference", "cuda-sim"])


def appended(caches, x, position):
    """Two caches with rows stored at a position, and a result computed from the first one."""
    places = position + np.arange(x.shape[0])
    keys, values = (caches[n].at[places].set(x * (n + 1)) for n in range(2))
    return keys.sum(axis=0), [keys, values]


def arrays(capacity=8):
    caches = [np.full((capacity, 4), n, np.float32) for n in range(2)]
    return caches, np.arange(12, dtype=np.float32).reshape(3, 4), np.array(2)


@TARGETS
def test_donated_arrays_hold_the_results(target):
    f = cvm.compile(appended, target=target, donate_argnames="caches")
    wanted_sum, wanted = cvm.compile(appended, target=target)(*arrays())
    caches, x, position = arrays()
    for _ in range(3):  # the later calls are direct
        sums, found = f(caches, x, position)
        np.testing.assert_array_equal(sums, wanted_sum)
        for array, given, right in zip(found, caches, wanted, strict=True):
            assert array is given
            np.testing.assert_array_equal(array, right)


def test_an_update_costs_nothing_for_the_rest_of_the_array():
    def bytes_of(**options):
        f = cvm.compile(lambda c, x, p: c.at[p].set(x), **options)
        f.trace(np.zeros((capacity, 4), np.float32), np.ones(4, np.float32), np.array(1))
        return f.cost().bytes

    costs = {}
    for capacity in (256, 8192):
        costs[capacity] = bytes_of(donate_argnums=0), bytes_of()
    assert costs[256][0] == costs[8192][0]
    assert costs[8192][1] > 8192 * 16


def test_calls_with_donated_structures_do_not_pass_through_python(monkeypatch):
    from cvm.transforms.traced_function import TracedFunction

    seen = []
    original = TracedFunction.__call__

    def counted(self, *arguments, **keywords):
        seen.append(arguments)
        return original(self, *arguments, **keywords)

    monkeypatch.setattr(TracedFunction, "__call__", counted)
    f = cvm.compile(appended, donate_argnames="caches")
    caches, x, position = arrays()
    first = f(caches, x, position)
    reached = len(seen)
    again = f(first[1], x, position)
    assert len(seen) == reached
    assert isinstance(again, tuple) and isinstance(again[1], list)
    assert again[1][0] is caches[0]


def test_the_result_that_updates_an_argument_has_its_array():
    @cvm.compile(donate_argnums=(0, 1))
    def f(a, b, i):
        return b.at[i].set(5.0), a.at[i].add(1.0)

    a, b = np.zeros(4), np.ones(4)
    for count in (1, 2):
        second, first = f(a, b, np.array(1))
        assert first is a and second is b
        np.testing.assert_array_equal(a, [0, count, 0, 0])
        np.testing.assert_array_equal(b, [1, 5, 1, 1])


@TARGETS
@pytest.mark.parametrize("optimize", [0, 2])
def test_exchanged_arguments(target, optimize):
    for body in (lambda a, b: (b, a), lambda a, b: (b + 0, a * 1)):
        f = cvm.compile(body, donate_argnums=(0, 1), target=target, optimize=optimize)
        a, b = np.arange(3.0), np.ones(3)
        for n in range(4):
            found = f(a, b)
            right = [np.ones(3), np.arange(3.0)][:: 1 if n % 2 == 0 else -1]
            for array, wanted in zip(found, right, strict=True):
                np.testing.assert_array_equal(array, wanted)
            a, b = found


def test_an_old_value_that_is_read_later_is_kept():
    @cvm.compile(donate_argnums=0)
    def f(c, i):
        new = c.at[i].set(9.0)
        return new, c * 2, new.sum() - c.sum()

    c = np.arange(4.0)
    for wanted in (9.0, 0.0):
        before = c.copy()
        new, doubled, difference = f(c, np.array(0))
        np.testing.assert_array_equal(doubled, 2 * before)
        np.testing.assert_array_equal(new, [9, 1, 2, 3])
        np.testing.assert_array_equal(c, new)
        assert difference == wanted


def test_a_step_of_training_updates_the_weights():
    @cvm.compile(donate_argnums=0)
    def step(w, x):
        gradient = cvm.grad(lambda w: ((w["a"] * x + w["b"]) ** 2).sum())(w)
        return {k: w[k] - 0.1 * gradient[k] for k in w}

    w, x = {"a": np.ones(3), "b": np.zeros(3)}, np.arange(3.0)
    array = w["a"]
    for _ in range(3):
        w = step(w, x)
    assert w["a"] is array
    a, b = np.ones(3), np.zeros(3)
    for _ in range(3):
        error = 2 * (a * x + b)
        a, b = a - 0.1 * error * x, b - 0.1 * error
    np.testing.assert_allclose(w["a"], a)
    np.testing.assert_allclose(w["b"], b)


@TARGETS
def test_a_failed_check_is_reported_once(target):
    f = cvm.compile(lambda c, i: (c.at[i].add(1.0), c.sum()), donate_argnums=0, target=target)
    c = np.zeros(4)
    for _ in range(2):
        f(c, np.array(1))
        with pytest.raises(cvm.CallError, match="an index is outside of its axis"):
            f(c, np.array(7))
    assert c[1] == 2


def test_what_depends_on_an_overwritten_argument_does_not_run_again():
    """The index is in range only for the second time."""

    def moved(c, x):
        c = c - 4
        return c, x[c[0]]

    f = cvm.compile(moved, donate_argnums=0)
    x = np.arange(3.0)
    f(np.array([5]), x)
    for _ in range(2):
        with pytest.raises(cvm.CallError, match="outside of its axis"):
            f(np.array([8]), x)


def test_arrays_that_share_memory():
    f = cvm.compile(lambda a, b: (a + 1, b.sum()), donate_argnums=0)
    base = np.arange(4.0)
    f(np.zeros(3), np.zeros(3))
    found, total = f(base[:3], base[1:])
    np.testing.assert_array_equal(found, [1, 2, 3])
    assert total == 6
    np.testing.assert_array_equal(base, [1, 2, 3, 3])
    g = cvm.compile(lambda a, b: (a + 1, b + 2), donate_argnums=(0, 1))
    for _ in range(2):
        same = np.zeros(3)
        assert {float(r[0]) for r in g(same, same)} <= {1.0, 2.0}


def test_out_and_a_donated_argument():
    f = cvm.compile(lambda a: a + 1, donate_argnums=0)
    for _ in range(2):
        a, out = np.zeros(3), np.zeros(3)
        assert f(a, out=out) is out
        np.testing.assert_array_equal(out, np.ones(3))
        np.testing.assert_array_equal(a, np.ones(3))
        f(np.zeros(3))


def test_read_only_arrays_are_refused():
    f = cvm.compile(lambda a: a + 1, donate_argnums=0)
    a = np.zeros(3)
    f(a)
    a.flags.writeable = False
    with pytest.raises(cvm.CallError, match="%a is overwritten, but the array is read-only"):
        f(a)
    np.testing.assert_array_equal(a, np.ones(3))


def test_many_shapes():
    f = cvm.compile(lambda c, x: c.at[1].set(x), donate_argnums=0)
    for n in range(2, 20):
        c = np.zeros((n, 3))
        assert f(c, np.ones(3)) is c
        assert c.sum() == 3


def test_another_function_that_is_traced_computes_new_arrays():
    inner = cvm.compile(lambda a: a + 1, donate_argnums=0)
    a = np.zeros(3)
    np.testing.assert_array_equal(cvm.compile(lambda x: inner(x) + x)(a), np.ones(3))
    assert not a.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"donate_argnames": "z"}, "donate_argnames names the parameters a, b, got 'z'"),
        ({"donate_argnums": 2}, "donate_argnums counts the 2 parameters from 0, got 2"),
    ],
)
def test_wrong_names(options, message):
    with pytest.raises(cvm.Error, match=message):
        cvm.compile(lambda a, b: a, **options)


def test_no_result_for_a_donated_argument():
    f = cvm.compile(lambda a, b: a + b, donate_argnums=(0, 1))
    with pytest.raises(
        cvm.TraceError,
        match=r"argument b of .* is donated, but no further result is a tensor<3xf64>",
    ):
        f(np.zeros(3), np.zeros(3))
    with pytest.raises(cvm.Error, match="donate_argnums and donate_argnames are options"):
        cvm.compile("func @main(%x: tensor<f32>) { return %x }", donate_argnums=0)


PROGRAM = """func @main(%x: tensor<3xf32> {inplace = 1}, %y: tensor<3xf32>) {
  %a = cvm.elemwise_add %x, %y
  %b = cvm.negative %x
  return %a, %b
}"""


@TARGETS
@pytest.mark.parametrize("optimize", [0, 2])
def test_a_program_states_the_result(target, optimize):
    module = cvm.parse(PROGRAM)
    assert str(cvm.parse(str(module))) == str(module)
    f = cvm.compile(module, target=target, optimize=optimize)
    x = np.arange(3, dtype=np.float32)
    a, b = f(x, np.ones(3, np.float32))
    np.testing.assert_array_equal(a, [1, 2, 3])
    np.testing.assert_array_equal(b, [0, -1, -2])
    np.testing.assert_array_equal(x, b)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("= 1", "= 2", "inplace is the number of a result, of which there are 2, got 2"),
        ("= 1", "= -1", "inplace has no value, or the number of a result"),
        ("= 1", "= 1.0", "inplace has no value, or the number of a result"),
        ("= 1", "= false", "inplace has no value, or the number of a result"),
        ("f32>)", "f32> {inplace = 1})", "result 1 overwrites %x, too"),
        (
            "return %a, %b",
            "%s = theano.sum %b\n  return %a, %s",
            "has the type of the result that overwrites it, tensor<f32>, got tensor<3xf32>",
        ),
    ],
)
def test_wrong_numbers_of_results(old, new, message):
    with pytest.raises(cvm.VerifyError, match=message):
        cvm.parse(PROGRAM.replace(old, new))


def test_built_code_does_not_overwrite():
    from cvm.jit.aot.build import build

    with pytest.raises(cvm.TargetError, match="overwrites an argument; built code does not"):
        build(cvm.parse(PROGRAM), ["main"], "two")


@pytest.mark.parametrize(
    "update",
    [
        lambda c, x, p: c.at[1, :, p].set(x[2]),
        lambda c, x, p: c.at[0, p, 1:3].set(x[1:3]),
        lambda c, x, p: c.reshape(-1, 4).at[p].add(x).reshape(c.shape),
        lambda c, x, p: c.at[0, p].set(x).reshape(-1, 4).at[p].add(x).reshape(c.shape),
        lambda c, x, p: c.at[1, p - 1].set(0.0).at[0, p].set(x),
    ],
)
def test_updates_of_parts_and_of_views_copy_nothing(update):
    def arrays(capacity):
        return np.ones((2, capacity, 4), np.float32), np.arange(4, dtype=np.float32), np.array(1)

    f = cvm.compile(update, donate_argnums=0)
    wanted = cvm.compile(update)(*arrays(5))
    c, x, p = arrays(5)
    assert f(c, x, p) is c
    np.testing.assert_array_equal(c, wanted)
    stored = []
    for capacity in (100, 200):
        f.trace(*arrays(capacity))
        stored.append(f.cost().bytes_written)
    assert stored[1] - stored[0] < 100 * 32  # a copy has 32 bytes for each place
