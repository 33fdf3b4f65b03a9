"""Results at the ends of the floats' ranges, where quotients overflow and small arguments have few
digits.
"""

import numpy as np
import pytest

import cvm

inf, nan = np.inf, np.nan
OTHERS = (
    "func @main(%x: tensor<2x?N x f64>) { %y = theano.product_of_others %x {axis = [1]} return %y }"
)
DERIVATIVE = """
func @f(%x: tensor<?Nx ELEMENT>) { %y = theano.elemwise %x {scalar_op = "NAME"} return %y }
func @main(%x: tensor<?Nx ELEMENT>, %g: tensor<?Nx ELEMENT>) {
  %d = "theano.l_op"(%x, %g) {callee = @f}
  return %d
}
"""


@pytest.mark.parametrize("target", ["cpu", "cuda-sim", "reference"])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([2, 1e200, 1e200], [inf, 2e200, 2e200]),
        ([2, inf, 3], [inf, 6, inf]),
        ([2, nan, 3], [nan, 6, nan]),
        ([1e-200, 1e-200, 1e200], [1, 1, 0]),
        ([-0.0, 2, 3], [6, 0, 0]),
        ([0, 0, 3], [0, 0, 0]),
        ([7], [1]),
        ([], []),
    ],
)
def test_product_of_others(x, y, target):
    found = cvm.compile(OTHERS, target=target)(np.array([x, x], np.float64))
    np.testing.assert_array_equal(found, np.array([y, y], np.float64))


@pytest.mark.parametrize("axis", [None, [], [0], [1], [0, 2], [0, 1, 2]])
def test_product_of_others_along_several_axes(axis):
    x = np.random.default_rng(0).integers(1, 5, (3, 4, 2)).astype(np.float64)
    text = "func @main(%x: tensor<3x4x2xf64>) { %y = theano.product_of_others %x {AXIS} return %y }"
    text = text.replace("{AXIS}", "" if axis is None else f"{{axis = {axis}}}")
    whole = np.prod(x, axis=(0, 1, 2) if axis is None else tuple(axis), keepdims=True)
    for target in ("cpu", "reference", "cuda-sim"):
        np.testing.assert_array_equal(cvm.compile(text, target=target)(x), whole / x)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("name", ["j1", "i1"])
def test_bessel_functions_of_subnormal_numbers(name, element, target):
    text = DERIVATIVE.replace("NAME", name).replace("ELEMENT", element)
    dtype = np.dtype(element.replace("f32", "f4").replace("f64", "f8"))
    x = np.finfo(dtype).smallest_subnormal * np.array([0, 1, 2, 3, -4, 10**5, 2.0**50]).astype(
        dtype
    )
    np.testing.assert_array_equal(cvm.compile(text, entry="f", target=target)(x), x / 2)
    np.testing.assert_array_equal(
        cvm.compile(text, target=target)(x, np.ones_like(x)), np.full_like(x, 0.5)
    )


LIMITS = {  # of special functions, at the ends of their domains and at poles
    "erf": {-inf: -1, inf: 1},
    "erfc": {-inf: 2, inf: 0},
    "erfcx": {-inf: inf, inf: 0},
    "erfinv": {-inf: nan, -1.5: nan, -1: -inf, 0: 0, 1: inf, 1.5: nan, inf: nan},
    "erfcinv": {-inf: nan, -0.5: nan, 0: inf, 1: 0, 2: -inf, 2.5: nan, inf: nan},
    "gamma": {-inf: nan, -1: nan, 0: inf, inf: inf},
    "gammaln": {-1: inf, 0: inf, inf: inf},
    "psi": {-inf: nan, -1: nan, 0: -inf, inf: inf},
    "tri_gamma": {-1: inf, 0: inf, inf: 0},
    "j0": {-inf: 0, inf: 0},
    "j1": {-inf: 0, inf: 0},
    "i0": {-inf: inf, inf: inf},
    "i1": {-inf: -inf, inf: inf},
}


@pytest.mark.parametrize("target", ["cpu", pytest.param("reference", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_special_functions(name, target):
    points = {**LIMITS[name], nan: nan}
    text = (
        f'func @main(%x: tensor<?N x f64>) {{ %y = theano.elemwise %x {{scalar_op = "{name}"}} '
        f"return %y }}"
    )
    with np.errstate(all="ignore"):
        found = cvm.compile(text, target=target)(np.array([*points], np.float64))
    np.testing.assert_array_equal(found, [*points.values()])
