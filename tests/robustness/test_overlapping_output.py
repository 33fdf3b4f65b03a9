"""Arrays to write into whose own elements share memory are refused; all others that a stride can
describe are taken.
"""

import numpy as np
import pytest
from cvm.jit.calls.arguments import has_internal_overlap
from hypothesis import given, strategies as st
from numpy.lib.stride_tricks import as_strided
from tiers import examples

import cvm

ADD = "func @main(%a: tensor<?N x ?M x i32>) { %y = cvm.elemwise_add %a, %a return %y }"
INPLACE = """
func @main(%a: tensor<?Nxi32> {inplace}) {
  %y = theano.elemwise %a, %a {scalar_op = "add", inplace_pattern = {0 = 0}}
  return %y
}
"""


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4, 4), (4, 4)), ((3, 3), (8, 4)), ((2, 5), (12, 4)), ((3, 2), (4, 8)), ((5, 3), (-4, 4))],
)
def test_refused(shape, strides, target):
    base = np.zeros(60, np.int32)
    out = as_strided(base[30:], shape, strides)
    with pytest.raises(cvm.CallError, match="whose elements share memory"):
        cvm.compile(ADD, target=target)(np.ones(shape, np.int32), out=out)
    assert not base.any()


@pytest.mark.parametrize("strides", [(16, 4), (4, 12), (-40, 8), (8, -40), (12, 8)])
def test_taken(strides):
    out = as_strided(np.zeros(100, np.int32)[50:], (3, 2), strides)
    a = np.arange(6, dtype=np.int32).reshape(3, 2)
    cvm.compile(ADD)(a, out=out)
    assert np.array_equal(out, a + a)


def test_overwritten_arguments():
    f = cvm.compile(INPLACE)
    assert f(np.arange(3, dtype=np.int32)).tolist() == [0, 2, 4]
    with pytest.raises(
        cvm.CallError, match="%a is overwritten, but the array has elements that share memory"
    ):
        f(as_strided(np.arange(3, dtype=np.int32), (3,), (2,)))


@examples(500)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), min_size=1, max_size=4),
    st.sampled_from(["i1", "<i2"]),
)
def test_every_shape_and_stride(axes, dtype):
    array = as_strided(
        np.zeros(400, np.int8)[200:].view(np.int8), [n for n, _ in axes], [s for _, s in axes]
    )
    array = (
        array
        if dtype == "i1"
        else as_strided(np.zeros(200, dtype)[100:], array.shape, array.strides)
    )
    starts = [
        sum(i * s for i, s in zip(place, array.strides, strict=True))
        for place in np.ndindex(array.shape)
    ]
    taken = [start + byte for start in starts for byte in range(array.itemsize)]
    assert has_internal_overlap(array) == (len(set(taken)) < len(taken))


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(("start", "refused"), [(25, True), (26, False)])
def test_outs_of_which_numpy_does_not_find_out_soon_whether_they_overlap(start, refused, target):
    base = np.zeros(30_000, np.int32)
    shape, strides = (6, 4, 3, 5, 2), (156, 928, 3612, 10900, 54440)
    first, second = (
        as_strided(base, shape, (40, 232, 972, 2988, 14936)),
        as_strided(base[start:], shape, strides),
    )
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(first, second, max_work=10_000)
    program = (
        "func @main(%a: tensor<6x4x3x5x2xi32>) { %y = cvm.negative %a %z = cvm.elemwise_add "
        "%a, %a return %y, %z }"
    )
    f, a = cvm.compile(program, target=target), np.arange(1, 721, dtype=np.int32).reshape(shape)
    if refused:
        with pytest.raises(cvm.CallError, match="%y and %z that share memory"):
            f(a, out=(first, second))
        assert not base.any()
    else:
        f(a, out=(first, second))
        assert np.array_equal(first, -a) and np.array_equal(second, a + a)
