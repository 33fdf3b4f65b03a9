"""Python functions as programs: what is traced, what it computes, and what cannot be traced."""

import pickle
import tracemalloc
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from cvm.dialect.builtin import Data
from cvm.dialect.ir.builder import Builder
from cvm.dialect.ir.function import Function, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.types.tensor_types import F32, TensorType

import cvm
from cvm.transforms import traced_function


@cvm.compile
def normalise(image, gain):
    return cvm.clamp(image * gain, 128, 255)


IMAGE = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 13
GAIN = np.array([1.25, 0.75, 2.0], np.float32)


def test_a_function_means_what_numpy_means():
    y = normalise(IMAGE, GAIN)
    assert y.dtype == np.float32
    assert np.array_equal(y, np.clip(IMAGE * GAIN, 128, 255))


def test_every_stage_is_shown():
    normalise(IMAGE, GAIN)
    text = normalise.lower("graph")
    assert 'numpy.elementwise %image, %gain {ufunc = "multiply"}' in text
    assert 'numpy.elementwise %0, 128.0 : f32 {ufunc = "maximum"}' in text
    module = normalise.program()
    assert np.array_equal(
        cvm.compile(module, entry="normalise")(IMAGE, GAIN), normalise(IMAGE, GAIN)
    )
    assert str(module) == text and repr(module) == f"<Module {__file__}: @normalise>"
    assert np.array_equal(cvm.compile(text, entry="normalise")(IMAGE, GAIN), normalise(IMAGE, GAIN))
    assert normalise.lower("formulas").count("\n") == 4


def test_out_is_written():
    y = np.empty((2, 3, 3), np.float32)
    assert normalise(IMAGE, GAIN, out=y) is y
    assert np.array_equal(y, normalise(IMAGE, GAIN))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x + y - 1,
        lambda x, y: 2 - x * y,
        lambda x, y: x / (y + 100),
        lambda x, y: 7 // (x * 0 + 2) + y,
        lambda x, y: -x + abs(y),
        lambda x, y: (x > y) & (x != 3) | ~(y <= 2),
        lambda x, y: (x << 2) ^ (y >> 1),
        lambda x, y: np.add(x, y) * np.multiply(3, x),
        lambda x, y: np.maximum(x, np.array([1, -2, 3, 0], np.int32)) + np.int32(4),
        lambda x, y: np.where(x > 2, x, y),
    ],
)
def test_operators_are_numpys_on_integers(function):
    x, y = np.array([[5, -3, 7, 2]], np.int32), np.array([[1], [4], [2]], np.int32)
    got = cvm.compile(function)(x, y)
    want = function(x, y)
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


def test_remainders_are_cs_by_the_rules_of_dali():
    x = np.array([7, -7, 5], np.int32)
    assert cvm.compile(lambda x: x % 3, rules="dali")(x).tolist() == [1, -1, 2]
    assert cvm.compile(lambda x: np.fmod(x, 3), rules="dali")(x).tolist() == [1, -1, 2]
    assert cvm.compile(lambda x: x % 3, rules="numpy")(x).tolist() == [1, 2, 2]


def test_structures_go_in_and_out():
    @cvm.compile
    def f(pair, named, scale=2):
        a, b = pair
        return {"sum": a + b, "scaled": (named["c"] * scale, a)}

    a, b, c = (np.full(3, n, np.int32) for n in (1, 2, 5))
    found = f((a, b), {"c": c})
    assert found["sum"].tolist() == [3] * 3
    assert found["scaled"][0].tolist() == [10] * 3
    assert found["scaled"][1].tolist() == [1] * 3
    assert f([a, b], {"c": c}, scale=3)["scaled"][0].tolist() == [15] * 3


class Model:
    def __init__(self, bias):
        self.bias = bias

    @cvm.compile
    def apply(self, x):
        return x + self.bias


def test_methods_are_traced_for_each_instance():
    x = np.ones(2, np.int32)
    assert (Model(np.int32(3)).apply(x).tolist(), Model(np.int32(5)).apply(x).tolist()) == (
        [4, 4],
        [6, 6],
    )


@pytest.mark.parametrize("function, count", [(np.exp, 1), (np.add, 2), (np.maximum, 2)])
def test_functions_of_numpy_on_arrays(function, count):
    arrays = [np.linspace(-3, n, 7, dtype="f4") for n in range(count)]
    compiled = cvm.compile(function)
    np.testing.assert_allclose(compiled(*arrays), function(*arrays), rtol=1e-6)
    with pytest.raises(cvm.CallError, match="where"):
        compiled(*arrays, where=arrays[0] > 0)


def test_a_signature_is_traced_once():
    calls = []

    @cvm.compile
    def f(x, mode="add"):
        calls.append(mode)
        return x + 1 if mode == "add" else x * 2

    for _ in range(3):
        f(np.ones(4, np.int32))
    f(np.ones(4, np.float32))
    assert f(np.full(4, 3, np.int32), mode="mul").tolist() == [6] * 4
    assert calls == ["add", "add", "mul"]


def test_many_shapes_share_a_kernel():
    traces = []

    @cvm.compile
    def f(x):
        traces.append(x.shape)
        return x * 2 + 1

    for n in range(2, 40):
        assert f(np.full(n, 3, np.int32)).tolist() == [7] * n
    assert len(traces) < 12


def test_a_batch_equals_its_samples():
    traces = []

    @cvm.compile
    def f(image, gain):
        traces.append(image.shape)
        return cvm.clamp(image * gain, 0, 255)

    rng = np.random.default_rng(0)
    images = [
        rng.integers(0, 256, (h, w, 3)).astype(np.uint8)
        for h, w in ((2, 5), (7, 4), (3, 6), (9, 2), (4, 5))
    ]
    results = f.batch(images, GAIN)
    assert len(traces) <= 2
    for image, result in zip(images, results, strict=True):
        assert np.array_equal(result, f(image, GAIN))
        assert result.dtype == np.float32


def test_other_dialects_are_reached():
    x, w = np.arange(8, dtype=np.int32).reshape(2, 4), np.ones((3, 4), np.int32)
    f = cvm.compile(lambda x, w: cvm.relu(cvm.dense(x, w) - 10))
    assert np.array_equal(f(x, w), np.maximum(x @ w.T - 10, 0))
    g = cvm.compile(lambda x: cvm.transpose(x, axes=(1, 0)))
    assert np.array_equal(g(x), x.T)


def test_targets_agree():
    f = cvm.compile(lambda x: (x * 3 + 1) // 2)
    g = cvm.compile(lambda x: (x * 3 + 1) // 2, target="reference")
    x = np.arange(-9, 9, dtype=np.int16)
    assert np.array_equal(f(x), g(x))


class Exporter:
    """An array of another library, known by its DLPack protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Interface:
    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("wrap", [Exporter, Interface, memoryview])
def test_arrays_of_other_libraries(wrap):
    x = np.arange(4, dtype=np.int32)
    assert cvm.compile(lambda x: x + 1)(wrap(x)).tolist() == [1, 2, 3, 4]
    f = cvm.compile("func @main(%x: tensor<4xi32>) {\n  %y = cvm.abs %x\n  return %y\n}\n")
    assert f(wrap(x)).tolist() == [0, 1, 2, 3]


class Negated(Exporter):
    """A PyTorch tensor such as z.conj().imag, whose elements are negated when it reads them."""

    def is_neg(self):
        return True

    def resolve_neg(self):
        return Exporter(-self.array)


def test_tensors_that_are_negated_when_read():
    x = np.arange(4, dtype=np.int32)
    assert cvm.compile(lambda x: x + 1)(Negated(x)).tolist() == [1, 0, -1, -2]
    f = cvm.compile("func @main(%x: tensor<4xi32>) {\n  %y = cvm.negative %x\n  return %y\n}\n")
    assert f(Negated(x)).tolist() == [0, 1, 2, 3]
    with pytest.raises(cvm.CallError, match="Negated"):
        f(x, out=Negated(x.copy()))


def test_compiled_functions_pickle_by_name():
    assert pickle.loads(pickle.dumps(normalise)) is normalise
    again = pickle.loads(pickle.dumps(cvm.compile(number_of_ones, target="reference")))
    assert again.target == "reference"
    assert again(np.ones(3, np.int32)).tolist() == [1, 1, 1]
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(cvm.compile(lambda x: x + 1))


def number_of_ones(x):
    return cvm.where(x == 1, 1, 0)


def branch(x):
    if x > 0:
        return x
    return -x


def number(x):
    return x + float(x)


def text(x):
    return x + "3"


def nothing(x):
    return None


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (branch, "use np.where"),
        (number, "cannot become Python numbers"),
        (text, "expected an array or a number, got str"),
        (nothing, "returns no array"),
        (lambda x: np.partition(x, 1), "np.partition has no counterpart"),
        (
            lambda x: np.add(x, 1, casting="unsafe"),
            "np.add takes operands, out, dtype and where here, got casting",
        ),
        (lambda x: x.sort(), "traced arrays have no sort; they have T, all, any"),
        (lambda x: x.__setitem__(0, 1), "changes no array in place"),
        (lambda x: round(x), "use np.rint"),
        (lambda x: pow(x, 2, 3), "no powers modulo"),
        (lambda x: f"{x:.2f}", "cannot become Python numbers"),
        (lambda x: x == None, "expected an array or a number, got NoneType"),  # noqa: E711
        (lambda x: cvm.clamp(x, 1), "wants the operand"),
        (lambda x: cvm.clamp(x, 1, 2, 3), "more"),
        (lambda x: cvm.conv2d(x, x, pading=1), "no attribute pading"),
        (lambda x: x + 2**40, "Python integer 1099511627776 out of bounds for int32"),
    ],
)
def test_what_cannot_be_traced_says_why(function, message):
    with pytest.raises(cvm.Error, match=message) as caught:
        cvm.compile(function)(np.ones(3, np.int32))
    diagnostic = caught.value.diagnostics[0]
    if function is branch:
        assert diagnostic.file == __file__
        assert "if x > 0:" in str(diagnostic)


def test_what_traced_arrays_have():
    def f(x):
        assert (x.shape, x.ndim, x.size, x.dtype, len(x)) == ((2, 3), 2, 6, np.int32, 2)
        assert not hasattr(x, "sort")
        return x

    assert cvm.compile(f)(np.ones((2, 3), np.int32)).sum() == 6


def test_a_broken_rule_names_the_line_of_python():
    def f(x, w):
        return cvm.dense(x, w)

    with pytest.raises(cvm.VerifyError) as caught:
        cvm.compile(f)(np.ones((2, 3), np.int32), np.ones((2, 4), np.int32))
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "cvm.dense.C2"
    assert "return cvm.dense(x, w)" in str(diagnostic)


def test_operators_outside_a_compiled_function():
    with pytest.raises(cvm.Error, match="works on the arrays of a function compiled"):
        cvm.sqrt(2.0)
    with pytest.raises(AttributeError):
        cvm.no_such_thing  # noqa: B018


def test_trace_gives_the_program_without_running_it():
    @cvm.compile
    def scaled(image, gain):
        return image * gain

    with pytest.raises(cvm.Error, match="has not been traced"):
        scaled.program()
    module = scaled.trace(IMAGE, GAIN)
    assert 'ufunc = "multiply"' in str(module)
    (entry,) = module.functions
    found = cvm.compile(module, entry=entry, target="reference")(IMAGE, GAIN)
    assert np.array_equal(found, scaled(IMAGE, GAIN))
    with pytest.raises(cvm.Error):
        scaled.trace(IMAGE)


@pytest.mark.parametrize("target", ["cpu", "cuda-sim", "reference"])
def test_trace_compiles_nothing(target, monkeypatch):
    compiled = []
    compile_function = traced_function.compile_function

    def counted(*args):
        compiled.append(args)
        return compile_function(*args)

    monkeypatch.setattr(traced_function, "compile_function", counted)
    f = cvm.compile(lambda image, gain: image * gain, target=target, rules="numpy")
    f.trace(IMAGE, GAIN)
    assert f.program() == f.trace(IMAGE, GAIN) and not compiled
    assert np.array_equal(f(IMAGE, GAIN), IMAGE * GAIN) and len(compiled) == 1
    f(IMAGE, GAIN)
    assert len(compiled) == 1 and f.program() == f.trace(IMAGE, GAIN)


class Weights:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.parts = [array, {"again": array}]


@pytest.mark.parametrize("target", ["reference", "cpu", "cuda-sim"])
@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_captured_arrays_are_those_of_the_trace(target, dtype):
    w = np.arange(9).reshape(3, 3).astype(dtype)
    weights = Weights(w)
    kept = w.copy()
    f = cvm.compile(
        lambda x: (
            x * w,
            x @ weights.array,
            x + weights.parts[0].T,
            np.concatenate([x, weights.parts[1]["again"]]),
            x - w[..., 0, 1],
            w,
        ),
        target=target,
        rules="numpy",
    )
    x = np.ones((3, 3), dtype)
    wanted = (x * kept, x @ kept, x + kept.T, np.concatenate([x, kept]), x - kept[0, 1], kept)
    for change in (lambda: None, lambda: w.fill(5)):
        change()
        found = f(x)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        for one in found:
            one[...] = 7  # results are the caller's
    assert all(
        not o.operator.data.array.flags.writeable
        for o in f.program().functions["lambda"].operations
        if o.operator.name == "const"
    )


def test_arrays_are_captured_as_they_are_where_they_are_used():
    w = np.zeros(3)

    def f(x):
        before = x + w
        w[1] = 4
        return before, x + w

    before, after = cvm.compile(f, target="reference", rules="numpy")(np.ones(3))
    assert before.tolist() == [1, 1, 1] and after.tolist() == [1, 5, 1]


def test_captured_arrays_are_copied_once():
    w = np.ones((512, 1024))
    f = cvm.compile(lambda x: (x * w).sum() + (x + w).max(), target="reference", rules="numpy")
    f.trace(np.ones(1024))  # what is loaded once
    tracemalloc.start()
    try:
        f.trace(np.ones((1, 1024)))
        assert tracemalloc.get_traced_memory()[1] < 1.9 * w.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("target", ["reference", "cpu", "cuda-sim"])
def test_constants_of_built_programs_are_copied(target):
    w = np.arange(4, dtype=np.float32)
    type_ = TensorType((4,), F32)
    builder, x = Builder(), Value("x", type_)
    y = builder.node(x).scalar("mul", builder.node(x).constant(w))
    main = Function("main", (x,), tuple(builder.operations), (y.value,))
    f = cvm.compile(Module({"main": main}), target=target)
    w[:] = 9
    assert f(np.ones(4, np.float32)).tolist() == [0, 1, 2, 3]
    assert not pickle.loads(pickle.dumps(Data(w))).array.flags.writeable


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class Layer:
    weight: Any
    bias: Any
    name: str = "layer"

    def __post_init__(self) -> None:
        assert isinstance(self.weight, np.ndarray)


@dataclass(frozen=True)
class Choice:
    factor: int


class Box:
    def __init__(self, value: Any, unit: str) -> None:
        self.value, self.unit = value, unit


def test_instances_come_back_as_what_they_were() -> None:
    x = np.arange(3.0)
    swap = cvm.compile(lambda p: type(p)(p[1], p[0]) if type(p) is Pair else (p[1], p[0]))
    for _ in range(3):  # a plain tuple of the same arrays, served by machine code
        assert type(swap((x, -x))) is tuple
    for _ in range(3):
        found = swap(Pair(x, -x))
        assert type(found) is Pair and found.first.tolist() == [0, -1, -2]
    assert type(swap((x, -x))) is tuple

    double = cvm.compile(lambda layers: {k: replaced(v) for k, v in layers.items()})
    layer = double({"a": Layer(x, x[:0])})["a"]
    assert type(layer) is Layer and layer.name == "layer" and layer.bias.shape == (0,)
    assert layer.weight.tolist() == [0, 2, 4]
    assert double({"a": Layer(x, x, "other")})["a"].name == "other"

    scaled = cvm.compile(lambda x, choice: x.reshape(choice.factor, -1))
    assert scaled(np.arange(6), Choice(2)).shape == (2, 3)
    assert scaled(np.arange(6), Choice(3)).shape == (3, 2)


def replaced(layer: Layer) -> Layer:
    made = object.__new__(Layer)
    for name, value in (("weight", layer.weight * 2), ("bias", layer.bias), ("name", layer.name)):
        object.__setattr__(made, name, value)
    return made


class Registered(Box):
    pass


def inside_itself(kind: str) -> tuple[Any, str]:
    """A value that contains itself, and the place where."""
    if kind == "list":
        held: Any = [np.ones(2)]
        held.append(held)
    elif kind == "dict":
        held = {"x": np.ones(2)}
        held["a"] = (held,)
    elif kind == "data class":
        held = Layer(np.ones(2), np.ones(2))
        object.__setattr__(held, "bias", [held])
    else:
        held = Registered(None, "m")
        held.value = {"a": held}
        cvm.register_pytree(Registered, lambda b: ((b.value,), b.unit), lambda unit, p: held)
    places = {"list": "[1]", "dict": "['a'][0]", "data class": ".bias[0]", "registered": ".0['a']"}
    return held, places[kind]


@pytest.mark.parametrize("kind", ["list", "dict", "data class", "registered"])
def test_values_that_contain_themselves_are_refused(kind: str) -> None:
    held, place = inside_itself(kind)
    for changed in (cvm.compile, cvm.grad, cvm.vmap):
        with pytest.raises(cvm.CallError) as e:
            changed(lambda x: np.float32(1))(held)
        assert f"x{place} is the {type(held).__name__} that it is in" in str(e.value)
    for inner in (lambda x: held, cvm.grad(lambda x: x), cvm.vmap(lambda x: x)):
        with pytest.raises(cvm.CallError) as e:
            cvm.compile(lambda x, inner=inner: inner(held))(np.ones(2))
        assert f"value{place} is the {type(held).__name__}" in str(e.value) or inner is not held


def test_nesting_is_limited_and_lists_of_operands_may_contain_themselves() -> None:
    deep: Any = np.ones(2)
    for _ in range(90):
        deep = (deep,)
    assert cvm.compile(lambda x: np.ones(2))(deep).tolist() == [1, 1]
    for _ in range(20):
        deep = [deep]
    with pytest.raises(cvm.CallError, match="x is nested more than 100 deep"):
        cvm.compile(lambda x: np.ones(2))(deep)
    held: list[Any] = [0]
    held.append(held)
    for use in (
        lambda x: x + held,
        lambda x: np.stack([x, held]),
        lambda x: np.add([1, [2, 3]], x),
    ):
        with pytest.raises(cvm.TraceError):
            cvm.compile(use)(np.ones(2))
    one = [np.ones(2)]
    assert cvm.compile(lambda a: a[0][0] + a[1][0])([one, one]).tolist() == [2, 2]


def test_registered_classes_are_arguments_and_results() -> None:
    half = cvm.compile(lambda box: Box(box.value / 2, box.unit.upper()))
    with pytest.raises(cvm.Error):
        half(Box(np.arange(3.0), "m"))
    cvm.register_pytree(
        Box, lambda box: ((box.value,), box.unit), lambda unit, parts: Box(*parts, unit)
    )
    found = half(Box(np.arange(3.0), "m"))
    assert type(found) is Box and found.unit == "M" and found.value.tolist() == [0, 0.5, 1]
    slope = cvm.grad(lambda box: (box.value**2).sum())(Box(np.arange(3.0), "m"))
    assert type(slope) is Box and slope.value.tolist() == [0, 2, 4]
    for wrong in (lambda _: 3, lambda box: ((box.value,), [box.unit])):
        cvm.register_pytree(Box, wrong, lambda unit, parts: Box(*parts, unit))
        with pytest.raises(cvm.Error, match="takes Box apart returns a pair"):
            half(Box(np.arange(3.0), "m"))
    with pytest.raises(cvm.Error, match="takes a class"):
        cvm.register_pytree(3, half, half)  # type: ignore[arg-type]


def test_branches_on_elements_name_what_computes_with_arrays() -> None:
    def greatest(x: Any) -> Any:
        return max(x[0], x[1])

    def both(x: Any) -> Any:
        return (x[0] > 0) and (x[1] > 0)

    def neither(x: Any) -> Any:
        return not x[0]

    def between(x: Any) -> Any:
        return 0 < x[0] < 3

    def repeated(x: Any) -> Any:
        while x[0] < 3:
            x = x + 1
        return x

    def chosen(x: Any) -> Any:
        return max(1, 2 if x[0] > 0 else 3)

    def stored(x: Any) -> Any:
        y = np.zeros(3)
        y[0] = x[0]
        return y

    def updated(x: Any) -> Any:
        x += 1
        return x

    for function, names in (
        (greatest, ("use np.maximum(a, b)",)),
        (both, ("use a & b",)),
        (neither, ("use ~a",)),
        (between, ("(a < b) & (b < c)",)),
        (repeated, ("use cvm.while_loop(",)),
        (chosen, ("use np.where(",)),
        (stored, ("np.zeros_like(x, shape=...)", "@cvm.kernel")),
        (updated, ("x = x.copy()", "@cvm.kernel")),
    ):
        with pytest.raises(cvm.TraceError) as e:
            cvm.compile(function)(np.ones(3))
        for name in names:
            assert name in str(e.value)


def test_a_loop_of_python_that_unrolls_far_is_told_once() -> None:
    def unrolled(x: Any, n: int) -> Any:
        for _ in range(n):
            x = np.var(x) * 1.5
        return x

    f = cvm.compile(unrolled, static_argnames=["n"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.trace(np.ones(3), 150)
    with pytest.warns(UserWarning, match=r"cvm.fori_loop .* @cvm.kernel") as told:
        f.trace(np.ones(3), 250)
        f.trace(np.ones(3), 260)
    assert len(told) == 1 and told[0].filename == __file__
