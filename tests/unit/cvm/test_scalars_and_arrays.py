"""Scalars and arrays of rank 0 in traced functions, as in NumPy, and memory that arrays share with
their views.
"""

from __future__ import annotations

import warnings
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest
from aliasing_functions import judge, tally
from numpy_forms import FORMS
from tiers import everything, some

import cvm

# of a scalar s, an array a of rank 0, a vector v and a matrix x
RANK_0 = [
    "\ns[...]",
    "s[()]",
    "s[None]",
    "a[...]",
    "a[()]",
    "a[None]",
    "v[0]",
    "v[..., 0]",
    "v[0, ...]",
    "v[np.array(0)]",
    "v[np.argmax(v)]",
    "x[0, 0, ...]",
    "x[0, np.argmax(v)]\ns.T",
    "a.T",
    "s.reshape(())",
    "a.reshape(())",
    "np.reshape(s, ())",
    "np.reshape(a, ())",
    "v[:1].reshape(())",
    "s.squeeze()",
    "np.squeeze(s)",
    "np.squeeze(a)\nv[:1].squeeze()",
    "np.squeeze(v[:1])",
    "x[:1, :1].squeeze()",
    "np.transpose(s)",
    "np.transpose(a)",
    "s.copy()",
    "np.copy(s)",
    "a.copy()",
    "np.copy(a)\ns.astype('i8')",
    "a.astype('f8')",
    "a.astype('i4')",
    "a.astype('i4', copy=False)",
    "np.zeros_like(s)",
    "np.zeros_like(a)",
    "np.ones_like(s)",
    "np.full_like(s, 2)\nnp.where(s > 1, s, 2)",
    "np.where(a > 1, a, 2)",
    "np.broadcast_to(s, ())",
    "np.broadcast_to(a, ())",
    "np.broadcast_arrays(s, a)",
    "np.tensordot(v, v, 1)\nnp.tensordot(s, s, 0)",
    "np.einsum('i,i->', v, v)",
    "np.einsum('i->', v)",
    "np.einsum('->', a)",
    "np.einsum(',->', a, a)",
    "np.select([a > 1], [a], 2)\nnp.choose(a % 2, [a, a])",
    "np.take(v, 0)",
    "np.take(v, np.array(0))",
    "np.round(a)",
    "np.round(s)",
    "a.round()",
    "np.clip(a, 0, 1)",
    "a.clip(0, 1)",
    "np.real(a)\na.real",
    "s.real",
    "a.imag",
    "np.imag(a)",
    "a.conj()",
    "s.conj()",
    "np.conj(a)",
    "np.nan_to_num(a)",
    "np.interp(a, v, v)",
    "np.searchsorted(v, a)",
    "np.isclose(a, a)\nnp.linalg.norm(v)",
    "np.linalg.norm(x)",
    "np.linalg.norm(x, 1)",
    "np.linalg.norm(v, 0)",
    "np.linalg.norm(v, 3)",
    "np.linalg.vector_norm(v)\nnp.linalg.matrix_norm(x)",
    "np.linalg.trace(x)",
    "np.trace(x)",
    "np.median(v)",
    "np.median(x)",
    "np.dot(a, a)",
    "np.dot(v, v)",
    "a.dot(a)",
    "np.inner(a, a)\nnp.inner(v, v)",
    "np.vecdot(v, v)",
    "v @ v",
    "np.matmul(v, v)",
    "np.linalg.multi_dot([v, np.ones((6, 6)), v])",
    "np.angle(a)",
    "np.max(a)",
    "np.sum(a)\nnp.sum(a, axis=())",
    "a.sum(keepdims=True)",
    "np.mean(a)",
    "np.add(a, a)",
    "a + a",
    "a + 1",
    "-a",
    "+a",
    "abs(a)",
    "a > 1",
    "a ** 2",
    "np.moveaxis(a, (), ())",
    "np.ptp(a)\nnp.average(v)",
    "np.average(v, weights=v)",
    "np.flip(a)",
    "np.fix(a)",
    "np.digitize(a, [1, 2])",
    "np.argmax(a)",
    "np.tile(a, ())",
    "np.roll(a, 1)",
    "np.any(a)\nnp.all(v)",
    "np.count_nonzero(v)",
    "np.var(v)",
    "np.std(v)",
    "np.kron(a, a)",
    "np.linspace(a, a, 2)[0]",
    "np.frexp(a)",
    "np.modf(a)",
    "divmod(a, 2)\nnp.float_power(a, 2)",
    "np.max(a, initial=1)",
    "np.nansum(v)",
    "np.nanmax(a)",
    "np.nanmean(v)",
    "np.add.reduce(v)",
    "np.gcd(a, a)",
    "np.maximum(a, a)\nnp.square(a)",
    "np.permute_dims(a)",
    "np.sum(v, out=a.copy())",
    "np.add(a, 1, out=a.copy())",
    "np.divmod(a, 2)",
    "copy(a)",
    "copy(s)",
    "deepcopy(a)",
    "deepcopy(s)\nnp.interp(2.5, v, v)",
    "np.clip(s, 0, 1)",
    "np.concatenate([v, v])[0]",
    "sum(v)",
    "[e for e in v]",
    "np.split(v, 2)[0][0]",
    "np.sort(v)[-1]",
    "v.mean()\n",
]
RANK_0 = [form.strip() for line in RANK_0 for form in line.split("\n") if form.strip()]
NAMES = {"np": np, "copy": copy, "deepcopy": deepcopy}


def kinds(found: Any, kind: Any) -> Any:
    if isinstance(found, (tuple, list)):
        return [kinds(x, kind) for x in found]
    return kind(found)


def numpys(found: Any) -> str:
    return "array" if isinstance(found, np.ndarray) else "scalar"


def traced(found: Any) -> str:
    return ("scalar" if found.is_scalar else "array") if hasattr(found, "weak") else numpys(found)


@pytest.mark.parametrize("forms", [RANK_0, some(FORMS, 60)], ids=["rank 0", "forms"])
def test_scalars_are_numpys(forms: list[str]) -> None:
    x = np.arange(24).reshape(4, 6).astype(np.int32)
    wrong: list[str] = []
    for form in forms:
        function = eval(f"lambda x, v, s, a: {form}", NAMES)

        def shown(x: Any, function: Any = function) -> Any:
            nonlocal found
            found = kinds(function(x, x[0], x[0, 1], x[..., 0, 1]), traced)
            return x

        found: Any = None
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                wanted = kinds(function(x, x[0], x[0, 1], x[..., 0, 1]), numpys)
                cvm.compile(shown, target="reference", rules="numpy").trace(x)
            except (cvm.Error, TypeError, ValueError, LookupError, ArithmeticError):
                assert forms is not RANK_0, form
                continue
        if found != wanted:
            wrong.append(f"{form}: {found} for {wanted}")
    assert not wrong, "\n".join(wrong)


def test_second_names_follow_numpy() -> None:
    """Random functions that keep names across changes in place, hardly any of them refused."""
    found = tally(range(300 if everything else 40))
    assert found["same"] > 0.9 * found.total(), found


@pytest.mark.parametrize("target", ["reference", "cpu", "cuda-sim"])
def test_second_names_on_each_target(target: str) -> None:
    for seed in range(1000, 1002):
        assert judge(seed, (target,)) == "same"


def test_changes_reach_views_and_leave_scalars() -> None:
    def sums(x: Any) -> Any:
        total = x.sum()
        before = total
        total += 1.0
        product = x @ x
        kept = {"dot": product, "mean": x.mean()}
        product *= 2
        kept["mean"] -= 1
        return total - before, kept["dot"] - product, kept["mean"]

    def rows(x: Any) -> Any:
        y = x * 2
        s = y[0]
        s += 10
        view, last = y[1:], y[..., -1]
        last[...] = 5
        view[::-1][0] += 1
        return y, s, view, last

    def steps(x: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            total, most = carry
            before = total
            total += x[i]
            return total, most + (total - before)

        return cvm.fori_loop(0, 3, body, (np.float64(0), x[0] * 0))

    x = np.arange(4.0)
    for target in ("reference", "cpu"):
        compiled = [cvm.compile(f, target=target, rules="numpy") for f in (sums, rows, steps)]
        for found, wanted in zip(compiled[0](x), (1, -14, 0.5), strict=True):
            assert found == wanted
        for found, want in zip(compiled[1](x), rows(x), strict=True):
            np.testing.assert_array_equal(found, want)
        assert compiled[2](x) == (3, 3)


def test_arrays_of_rank_0_are_shared_and_arguments_stay() -> None:
    def shared(x: Any) -> Any:
        total = np.zeros_like(x)
        before = total
        total += x
        return before

    def argument(x: Any) -> Any:
        x += 1
        return x

    def carried(x: Any) -> Any:
        return cvm.fori_loop(0, 2, lambda i, s: argument(s), np.zeros_like(x))

    x = np.array(3.0)
    assert cvm.compile(shared, rules="numpy")(x) == 3
    for function in (argument, carried):
        with pytest.raises(cvm.TraceError, match="leaves its arguments as they are"):
            cvm.compile(function, rules="numpy")(x)
    for number in (3.0, np.float64(3)):  # which are scalars
        assert cvm.compile(argument, rules="numpy")(number) == 4.0
    assert x == 3


def test_arguments_are_scalars_or_arrays() -> None:
    def kept(x: Any) -> Any:
        copied = x.copy()
        before = copied
        copied += 1
        return before

    f = cvm.compile(kept, target="reference", rules="numpy")
    assert [f(x) for x in (np.float64(3), np.array(3.0), np.float64(3))] == [3, 4, 3]


def test_loops_of_no_steps_give_arrays_of_their_own() -> None:
    def none(x: Any) -> Any:
        made = np.zeros_like(x)
        (found,) = cvm.fori_loop(0, 0, lambda i, carry: carry, (made,))
        found[...] = 3
        return made, found

    for x in (np.array(1.0), np.ones(2)):
        made, found = cvm.compile(none, target="reference", rules="numpy")(x)
        assert np.all(made == 0) and np.all(found == 3)
