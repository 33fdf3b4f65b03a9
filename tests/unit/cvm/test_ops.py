"""Operators as functions: `cvm.ops.<dialect>.<operator>` on arrays, traced, derived and batched."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import cvm

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_on_arrays_and_in_traced_functions() -> None:
    expected = X.T
    assert (cvm.ops.cvm.transpose(X, axes=(1, 0)) == expected).all()
    assert (cvm.ops.cvm.transpose(x=X, axes=[1, 0]) == expected).all()
    f = cvm.compile(lambda x: cvm.ops.cvm.transpose(x, axes=(1, 0)) + 1)
    assert (f(X) == expected + 1).all()
    joined = cvm.ops.cvm.concatenate(X, X, axis=1)
    assert (joined == np.concatenate([X, X], 1)).all()


def test_attributes_of_equal_numbers_are_apart() -> None:
    x = np.array([[1, 5]], np.int32)
    assert cvm.ops.cvm.sum(x, axes=(1,), keepdims=True).shape == (1, 1)
    assert cvm.ops.cvm.sum(x, axes=(1,), keepdims=False).shape == (1,)
    with pytest.raises(cvm.Error, match="keepdims"):
        cvm.ops.cvm.sum(x, axes=(1,), keepdims=1)


def test_derivatives_and_batches() -> None:
    x = np.array([-1.0, 2.0, 3.0], np.float32)
    w = np.ones((3,), np.float32)

    def loss(x):
        return (cvm.ops.cvm.relu(x) * w).sum()

    assert cvm.grad(loss)(x).tolist() == [0, 1, 1]
    assert (cvm.vmap(cvm.ops.cvm.relu)(X - 2) == np.maximum(X - 2, 0)).all()


def test_signature_and_help() -> None:
    assert str(inspect.signature(cvm.ops.cvm.take)) == "(x, indices, *, axis: int | None = None)"
    assert "clip(indices" in (cvm.ops.cvm.take.__doc__ or "")
    assert cvm.ops.cvm.take is cvm.ops.cvm.take
    assert "take" in dir(cvm.ops.cvm)
    assert {"cvm", "dali", "theano"} <= {*dir(cvm.ops)}


def test_wrong_names_and_operands() -> None:
    with pytest.raises(AttributeError, match=r"did you mean cvm\.relu"):
        _ = cvm.ops.cvm.rely
    with pytest.raises(AttributeError, match="there is no dialect cvn; did you mean cvm"):
        _ = cvm.ops.cvn
    with pytest.raises(cvm.Error, match="got the operand x twice"):
        cvm.ops.cvm.relu(X, x=X)
    with pytest.raises(cvm.Error, match="expected an array"):
        cvm.ops.cvm.take(indices=X)
    with pytest.raises(cvm.Error, match="no attribute axs"):
        cvm.ops.cvm.take(X, X, axs=1)
