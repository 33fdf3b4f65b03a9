"""Every rule against finite differences, forward mode against reverse mode, and what derivatives
are of zeros and ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.theano.scalar_op import SCALAR_OPS
from cvm.dialect.types.tensor_types import C64, F32, F64, ElementType, FieldType, TensorType
from derivative_domains import DOMAINS
from finite_differences import check

import cvm

ROUGH = (
    "psi",
    "gamma",
    "gammaln",
    "j0",
    "j1",
    "i0",
    "i1",
    "erfcx",
    "erfinv",
    "erfcinv",
)  # f64 to about 1e-14 only
BY_ONE_OPERAND = ("gammainc", "gammaincc", "gammal", "gammau", "chi2sf", "jv", "iv")
OTHER = ("complex", "complex_from_polar", "angle", "and_", "or_", "xor", "invert")


def differentiable(name: str) -> bool:
    """Test whether an operation has a rule for all its operands, and takes and gives floats."""
    op = SCALAR_OPS[name]
    if op.gradient is None or name in (*BY_ONE_OPERAND, *OTHER, "cast", "stop_gradient"):
        return False
    return not op.rule.result(*(F64,) * (op.arity or 2)).is_discrete


def floats(random: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    return random.uniform(*DOMAINS.get(name, (-2.0, 2.0)), shape)


@pytest.mark.parametrize("name", sorted(filter(differentiable, SCALAR_OPS)))
def test_scalar_operation(name: str) -> None:
    random = np.random.default_rng(1)
    arity = SCALAR_OPS[name].arity or 3
    operands = [floats(random, s, name) for s in [(3, 4), (1, 4), (4,)][:arity]]
    if name == "clip":
        operands = [
            operands[0],
            operands[1] - 2,
            operands[2] + 2,
        ]  # the lower bound below the upper one
    check(
        OPERATORS["theano.elemwise"](tuple(operands), scalar_op=name),
        random,
        2e-5 if name in ROUGH else 2e-6,
        1e-4,
    )


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_cast(dtype: str) -> None:
    text = f"""
        func @f(%x: tensor<3xf64>) {{
          %y = theano.elemwise %x {{scalar_op = "cast", dtype = {dtype}}}
          %z = theano.elemwise %y {{scalar_op = "sqr"}}
          %s = theano.sum %z
          return %s
        }}
        func @main(%x: tensor<3xf64>) -> tensor<3xf64> {{
          %g = theano.grad @f(%x)
          return %g
        }}
    """
    np.testing.assert_allclose(cvm.compile(text, target="reference")(np.arange(3.0)), [0, 2, 4])


COMPLEX = (
    "add",
    "sub",
    "mul",
    "true_div",
    "inv",
    "pow",
    "sqr",
    "sqrt",
    "neg",
    "abs_",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "identity",
    "second",
    "mul_without_zeros",
    "real",
    "imag",
    "conj",
    "angle",
    "gamma",
    "switch",
)


@pytest.mark.parametrize("mixed", [False, True], ids=["complex", "beside real"])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_operation(name: str, mixed: bool) -> None:
    random = np.random.default_rng(1)
    shapes = [(3, 4), (1, 4), (4,)][: SCALAR_OPS[name].arity or 3]
    operands = [random.uniform(0.4, 1.5, s) + 1j * random.uniform(0.3, 1.2, s) for s in shapes]
    if mixed:
        operands[-1] = operands[-1].real
        if len(operands) == 1:
            return  # the real operation
    if name == "switch":
        operands[0] = np.arange(12).reshape(3, 4) % 2
    check(
        OPERATORS["theano.elemwise"](tuple(operands), scalar_op=name),
        random,
        2e-5 if name in ROUGH else 2e-6,
        1e-4,
    )


@pytest.mark.parametrize("name", ["complex", "complex_from_polar"])
def test_complex_from_real(name: str) -> None:
    random = np.random.default_rng(1)
    check(
        OPERATORS["theano.elemwise"](
            (random.normal(size=(3, 4)), random.normal(size=4)), scalar_op=name
        ),
        random,
    )


@pytest.mark.parametrize("axis", [None, (1,), ()], ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "prod_without_zeros"])
def test_complex_reduction(name: str, axis: tuple[int, ...] | None) -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=(2, 3)) + 1j * random.normal(size=(2, 3))
    given = {"no_zeros_in_input": True} if name == "prod" else {}
    check(OPERATORS[f"theano.{name}"](x, axis, **given), random, 5e-6, 1e-5)


AXES: list[tuple[int, ...] | None] = [None, (), (0,), (-1,), (0, 2), (1, 0, 2)]


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "min", "prod_without_zeros", "product_of_others"]
)
def test_reduction(name: str, axis: tuple[int, ...] | None) -> None:
    random = np.random.default_rng(2)
    check(OPERATORS[f"theano.{name}"](random.normal(size=(2, 3, 4)), axis), random, 5e-6, 1e-5)


@pytest.mark.parametrize("function", ["add", "mul", "maximum", "minimum", "mul_without_zeros"])
@pytest.mark.parametrize("name", ["careduce", "careduce_dtype"])
def test_careduce(name: str, function: str) -> None:
    random = np.random.default_rng(3)
    check(
        OPERATORS[f"theano.{name}"](random.normal(size=(2, 3)), (1,), scalar_op=function),
        random,
        5e-6,
        1e-5,
    )


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_product_of_others_with_zeros(zeros: int) -> None:
    random = np.random.default_rng(zeros)
    x = random.normal(size=(2, 4))
    x[0, :zeros] = 0
    check(OPERATORS["theano.product_of_others"](x, (1,)), random, 5e-6, 1e-5)


@pytest.mark.parametrize("order", [(1, 0, 3), ("x", 3, 0, "x", 1), (3, 1, 0, 2)], ids=str)
def test_dimshuffle(order: tuple[Any, ...]) -> None:
    random = np.random.default_rng(4)
    check(OPERATORS["theano.dimshuffle"](random.normal(size=(2, 3, 1, 4)), order), random)


DALI = sorted(
    n
    for n, o in OPERATORS.items()
    if o.dialect == "dali"
    and hasattr(o, "gradient")
    and (o.derivative or o.gradient is not o.__mro__[1].gradient)
)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [n for n in DALI if n.partition(".")[2] not in ("floor", "ceil")])
def test_dali(name: str) -> None:
    random = np.random.default_rng(5)
    op = OPERATORS[name]
    shapes = [(3, 4), (4,), (3, 1)]
    if name == "dali.where":
        operands: tuple[Any, ...] = (
            random.random((3, 4)) < 0.5,
            random.normal(size=(4,)),
            random.normal(size=(3, 1)),
        )
    else:
        operands = tuple(
            floats(random, s, name.partition(".")[2])
            for s, _ in zip(shapes, op.fields, strict=False)
        )
    check(op(*operands), random, 2e-6, 1e-4)


def field(*shape: int, tensor: tuple[int, ...] = (), element: ElementType = F32) -> FieldType:
    return FieldType(shape, TensorType(tensor, element))


VECTORS = field(3, 4, tensor=(2,))
COMPLEX_FIELD = field(3, 4, element=C64)
COG: list[tuple[str, tuple[FieldType, ...], dict[str, Any]]] = [
    *((n, (VECTORS, field(3, 4)), {}) for n in ("add", "sub", "mul", "div", "max", "min", "mod")),
    *((n, (field(tensor=(2,)), VECTORS), {}) for n in ("sub", "mul", "div")),
    ("neg", (VECTORS,), {}),
    ("reciprocal", (VECTORS,), {}),
    ("reduce_sum", (VECTORS,), {}),
    ("field_reduce_sum", (VECTORS,), {}),
    ("field_reduce_max", (VECTORS,), {}),
    ("field_reduce_min", (VECTORS,), {}),
    ("outer", (field(3), field(2, 4)), {}),
    ("slice", (VECTORS,), {"index": 1}),
    ("subfield", (VECTORS,), {"begin": (1, 0), "end": (3, 3)}),
    ("reshape", (VECTORS,), {"shape": (2, 6)}),
    ("expand", (VECTORS,), {"shape": (5, 4)}),
    ("shift", (VECTORS,), {"amount": (1, -2)}),
    *(
        ("expand", (VECTORS,), {"shape": s, "border": b})
        for b in ("clamp", "cyclic")
        for s in ((3, 4), (5, 4), (4, 11), (14, 25))
    ),
    ("shift_cyclic", (VECTORS,), {"amount": (1, -2)}),
    ("stack", (VECTORS, VECTORS), {}),
    ("vector", (field(3), field(3)), {}),
    ("vector_element", (VECTORS,), {"index": 1}),
    *((n, (COMPLEX_FIELD, COMPLEX_FIELD), {}) for n in ("add", "sub", "mul", "div")),
    *((n, (VECTORS, field(3, 4, element=C64)), {}) for n in ("add", "mul", "div")),
    *(
        (n, (COMPLEX_FIELD,), {})
        for n in ("neg", "reciprocal", "real", "imag", "conj", "abs", "phase", "field_reduce_sum")
    ),
    *((n, (VECTORS,), {}) for n in ("real", "imag", "conj", "abs", "phase")),
    ("complex", (VECTORS, field(3, 4)), {}),
]


@pytest.mark.parametrize(
    ("name", "types", "attributes"), COG, ids=[f"{n}{k}" for k, (n, *_) in enumerate(COG)]
)
def test_cog(name: str, types: tuple[FieldType, ...], attributes: dict[str, Any]) -> None:
    random = np.random.default_rng(8)
    operands = [random.uniform(0.5, 2.5, t.array_shape).astype(np.float32) for t in types]
    operands = [
        o + np.complex64(1j) * random.permuted(o) if t.element is C64 else o
        for o, t in zip(operands, types, strict=True)
    ]
    op = OPERATORS[f"cog.{name}"]
    variadic = op.fields[0].kind == "variadic"
    made = op(tuple(operands), **attributes) if variadic else op(*operands, **attributes)
    check(made, random, 2e-2, 1e-3, types)


# What is stated of particular values


def gradient(body: str, x: np.ndarray, result: str = "%s") -> np.ndarray:
    shape = "x".join([*map(str, x.shape), "f64"])
    text = f"""
        func @f(%x: tensor<{shape}>) {{
          {body}
          return {result}
        }}
        func @main(%x: tensor<{shape}>) -> tensor<{shape}> {{
          %g = theano.grad @f(%x)
          return %g
        }}
    """
    found = [cvm.compile(text, target=target)(x) for target in ("reference", "cpu")]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
    return found[0]


def test_product_of_zeros() -> None:
    rows = np.array([[1.0, 2, 3], [0, 5, 6], [0, 0, 7]])
    body = "%p = theano.prod %x {axis = [1]}\n %s = theano.sum %p"
    np.testing.assert_array_equal(gradient(body, rows), [[6, 3, 2], [30, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(gradient("%s = theano.prod %x", np.array([0.0])), [1])
    np.testing.assert_array_equal(
        gradient("%s = theano.prod %x {no_zeros_in_input = true}", np.array([2.0, 4])), [4, 2]
    )


def test_ties() -> None:
    x = np.array([3.0, 1, 3])
    np.testing.assert_array_equal(gradient("%s = theano.max %x", x), [1, 0, 1])
    np.testing.assert_array_equal(
        gradient('%y = theano.elemwise %x, 3 {scalar_op = "maximum"}\n %s = theano.sum %y', x),
        [1, 0, 1],
    )


def test_second_derivatives() -> None:
    T = cvm.theano
    cube = cvm.grad(lambda x: T.sum(cvm.grad(lambda y: T.sum(T.mul(y, y, y)))(x)))
    np.testing.assert_allclose(cube(np.arange(4.0)), 6 * np.arange(4.0))
    product = cvm.grad(lambda x: T.prod(x))
    rows = [cvm.jvp(product, (np.array([2.0, 0, 4]),), (e,))[1] for e in np.eye(3)]
    np.testing.assert_array_equal(rows, [[0, 4, 0], [4, 0, 2], [0, 2, 0]])


def test_integers_get_zeros_and_formal_derivatives() -> None:
    text = """
        func @f(%n: tensor<2xi64>, %x: tensor<2xf32>) {
          %e = theano.elemwise %n {scalar_op = "exp"}
          %c = theano.elemwise %x {scalar_op = "cast", dtype = i32}
          return %e, %c
        }
        func @main(%n: tensor<2xi64>, %x: tensor<2xf32>, %g: tensor<2xf64>, %h: tensor<2xf64>) {
          %a, %b = "theano.l_op"(%n, %x, %g, %h) {callee = @f}
          return %a, %b
        }
    """
    a, b = cvm.compile(text, target="reference")(
        np.array([0, 1]), np.zeros(2, np.float32), np.ones(2), np.ones(2)
    )
    assert a.dtype == np.float64 and b.dtype == np.float32
    np.testing.assert_allclose(a, [1, np.e])
    np.testing.assert_array_equal(b, 0)


def test_missing_rule_names_the_path() -> None:
    text = """
        func @f(%x: tensor<3xf64>) {
          %a = theano.elemwise %x {scalar_op = "exp"}
          %b = theano.elemwise %a {scalar_op = "tri_gamma"}
          %s = theano.sum %b
          return %s
        }
        func @main(%x: tensor<3xf64>) {
          %g = theano.grad @f(%x)
          return %g
        }
    """
    with pytest.raises(
        cvm.VerifyError,
        match=r"theano.elemwise of tri_gamma has no derivative; it is on the path %x -> %a -> %b",
    ):
        cvm.compile(text)


def test_an_operator_of_a_family_without_a_derivative_is_named() -> None:
    text = """
    func @f(%x: tensor<3xf32>) -> tensor<f32> {
      %i = theano.elemwise %x {scalar_op = "cast", dtype = i32}
      %g = cvm.broadcast_greater %i, %i
      %y = theano.elemwise %g {scalar_op = "cast", dtype = f32}
      %s = theano.sum %y
      return %s
    }
    func @main(%x: tensor<3xf32>) {
      %d = theano.grad @f(%x)
      return %d
    }"""
    with pytest.raises(
        cvm.VerifyError,
        match=r"cvm.broadcast_greater has no derivative; it is on the path %x -> %i -> %g",
    ):
        cvm.compile(text)


def test_sizes_that_a_rule_has_to_know() -> None:
    text = """func @f(%x: !cog.field<[?], f32>) {
      %y = cog.expand %x {shape = [9], border = "cyclic"}
      return %y
    }
    func @main(%x: !cog.field<[?], f32>, %g: !cog.field<[9], f32>) {
      %gx = "theano.l_op"(%x, %g) {callee = @f}
      return %gx
    }"""
    with pytest.raises(
        cvm.VerifyError, match=r"cog.expand with a cyclic border, .* on the path %x -> %y"
    ):
        cvm.compile(text)


def test_unknown_by_one_operand() -> None:
    x = np.array([0.7, 1.9])
    density = cvm.grad(lambda a, x: cvm.theano.sum(cvm.theano.gammainc(a, x)), wrt=1)(
        np.array([2.0, 2.0]), x
    )
    np.testing.assert_allclose(density, x * np.exp(-x), rtol=1e-12)
    with pytest.raises(cvm.Error, match=r"theano\.elemwise of gammainc by %\w+ has no derivative"):
        cvm.grad(lambda a, x: cvm.theano.sum(cvm.theano.gammainc(a, x)), wrt=0)(
            np.array([2.0, 2.0]), x
        )


def test_python_forms() -> None:
    T = cvm.theano

    def loss(weights: dict[str, Any], x: Any) -> Any:
        return T.sum(T.sqr(T.add(T.dot(x, weights["w"]), weights["b"])))

    x, w, b = np.ones((4, 3)), np.full((3, 2), 0.5), np.zeros(2)
    value, found = cvm.value_and_grad(loss)({"w": w, "b": b}, x)
    np.testing.assert_allclose(value, ((x @ w + b) ** 2).sum())
    np.testing.assert_allclose(found["w"], x.T @ (2 * (x @ w + b)))
    np.testing.assert_allclose(found["b"], (2 * (x @ w + b)).sum(0))
    y, pull = cvm.vjp(lambda x: T.sqr(x), np.arange(3.0))
    np.testing.assert_allclose(pull(np.ones(3))[0], 2 * np.arange(3.0))
    np.testing.assert_allclose(y, np.arange(3.0) ** 2)
    value, tangent = cvm.jvp(lambda a, b: T.mul(a, b), (x, x), (x, 2 * x))
    np.testing.assert_allclose(tangent, 3 * x)


def test_of_a_program() -> None:
    f = cvm.compile(
        'func @main(%x: tensor<3xf64>) {\n %y = theano.elemwise %x {scalar_op = "sqr"}\n'
        " %s = theano.sum %y\n return %s\n}"
    )
    np.testing.assert_allclose(cvm.grad(f)(np.arange(3.0)), [0, 2, 4])
    value, found = cvm.value_and_grad(f)(np.arange(3.0))
    assert value == 5.0
    np.testing.assert_allclose(found, [0, 2, 4])
    y, pull = cvm.vjp(f, np.arange(3.0))
    assert y == 5.0
    np.testing.assert_allclose(pull(2.0), [0, 4, 8])
    np.testing.assert_allclose(cvm.jvp(f, (np.arange(3.0),), (np.ones(3),))[1], 6)


def test_seeds_have_the_shapes_of_their_values() -> None:
    x = np.ones((2, 3))
    with pytest.raises(
        cvm.Error, match=r"a tangent has the shape of its value, tensor<2x3xf64>, got tensor<3xf64>"
    ):
        cvm.jvp(lambda x: x * x, (x,), (x[0],))
    with pytest.raises(cvm.Error, match=r"a cotangent has the shape of its value"):
        cvm.vjp(lambda x: x * x, x)[1](x[:1])
    with pytest.raises(cvm.Error, match="wrt names arguments 0 to 0, each once, got 'x'"):
        cvm.grad(lambda x: x.sum(), wrt="x")(x)


@pytest.mark.parametrize("function", [3, "func @main() {}"])
def test_what_is_no_function_has_no_derivative(function: Any) -> None:
    with pytest.raises(cvm.Error, match="expected a function to differentiate"):
        cvm.grad(function)


def test_what_does_not_say_what_it_takes_is_no_function() -> None:
    for wrong in (cvm.compile, cvm.grad):
        with pytest.raises(
            cvm.TraceError, match="expected a Python function that says what it takes"
        ):
            wrong(max)
