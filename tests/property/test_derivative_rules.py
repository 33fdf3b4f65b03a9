"""Derivatives exist for each operator of every dialect, in both directions, for known and unknown
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import samples_builtin as samples_like  # noqa: F401  (enters its samples)
import samples_cog
import samples_dali  # noqa: F401  (enters its samples)
import samples_numpy  # noqa: F401  (enters its samples)
import samples_quant  # noqa: F401  (enters its samples)
import samples_theano  # noqa: F401  (enters its samples)
from cvm.dialect.ir.builder import Builder
from cvm.dialect.ir.function import Value
from cvm.dialect.spec.operator import OPERATORS, Operator
from cvm.dialect.theano.scalar_op import SCALAR_OPS, UNKNOWN
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import BY_DTYPE, F64, FieldType, TensorType, Type
from cvm.jit.compile import compile_function
from derivative_domains import DOMAINS
from finite_differences import check, normal, program
from samples import SAMPLES

import cvm

CHOICES = {"indices", "cond", "condition"}  # operands by which nothing is differentiated
INTEGERS = "its operands are integers or i1"
NO_FLOAT = "its results are integers or i1"
CLOCK = "it stands in a graph, whose program is its whole clock"
EXPANDED = "it is expanded into operations that have derivatives"
WITHOUT = {
    **dict.fromkeys(("call", "theano.l_op", "theano.r_op", "theano.grad"), EXPANDED),
    "const": "it has no operands",
    "builtin.scan": "its derivative is that of its function: tests/end_to_end/test_traced_loops.py",
    "builtin.while": "the number of its steps is not known, so it is refused",
    **{f"cog.{n}": CLOCK for n in ("field", "sensor", "feedback", "probe", "actuator")},
    **{f"dali.{n}": INTEGERS for n in ("and", "or", "xor", "not", "shl", "shr")},
    **{f"dali.{n}": NO_FLOAT for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"theano.{n}": NO_FLOAT for n in ("all", "any")},
    **{n: NO_FLOAT for n, op in OPERATORS.items() if op.dialect == "quant"},
    **{f"builtin.{n}": NO_FLOAT for n in ("argsort", "argmax", "argmin", "iota_like")},
    "builtin.run_kernel": "it is a program of its own, so it is refused",
    "builtin.tree_ensemble": "it jumps where a feature meets a split, so it is refused",
    "builtin.bitcast": "its results are bits, whose numbers jump",
    "numpy.gcd": INTEGERS,
    **{
        f"cvm.{n}": INTEGERS
        for n in (
            "broadcast_greater",
            "clip",
            "cvm_clip",
            "cvm_left_shift",
            "cvm_right_shift",
            "cvm_precision",
            "cvm_lut",
            "get_valid_count",
            "non_max_suppression",
        )
    },
}
KNOWN_ONLY = {"cog.expand": "cyclic border, of a size that is not known"}
NO_RULE = {"tri_gamma"}  # as in Theano
BY_ONE_OPERAND = {
    "gammainc": [0],
    "gammaincc": [0],
    "gammal": [0],
    "gammau": [0],
    "chi2sf": [1],
    "jv": [0],
    "iv": [0],
}
ELSEWHERE = {
    "builtin.view",  # fields as tensors and back, in every test of a cog operator
    "builtin.print",  # tests/filetests/builtin/effects.cvm
    "builtin.assert",
    "builtin.if",  # tests/end_to_end/test_branches.py
}
DIFFERENTIABLE = sorted(set(OPERATORS) - set(WITHOUT) - ELSEWHERE)


def samples(
    name: str, random: np.random.Generator
) -> Iterator[tuple[Operator[np.ndarray], list[Type]]]:
    """A sample over floats, the operands that only choose staying as they are, or all of them; with
    the operands' types.
    """
    op = samples_cog.sample(name, random) if name.startswith("cog.") else SAMPLES[name](random)
    fields = [t for t in op.types.values() if isinstance(t, FieldType)]
    low, high = DOMAINS.get(name.partition(".")[2], (0.3, 2.0))

    def values(n: str, a: np.ndarray, kept: set[str]) -> np.ndarray:
        if fields and a.dtype.kind == "c":
            return (
                random.uniform(low, high, a.shape) + 1j * random.uniform(low, high, a.shape)
            ).astype(a.dtype)
        return (
            a
            if n in kept or n.partition("[")[0] in kept
            else random.uniform(low, high, a.shape).astype("f4" if fields else "f8")
        )

    for kept in (set[str](), CHOICES, {n for n, _ in op.operands()}):
        arrays = [values(n, a, kept) for n, a in op.operands()]
        types: list[Type] = [TensorType(a.shape, BY_DTYPE[a.dtype]) for a in arrays]
        if fields:
            types = [f.with_element(t.element) for f, t in zip(fields, types, strict=True)]
        given = iter(arrays)
        yield op.map(lambda _, given=given: next(given)), types


def unknown(types: list[Type]) -> list[Type]:
    """The same types with a name for each size."""
    return [
        t.with_array_shape(tuple(Size.named(f"X{n}N{k}") for k in range(len(t.array_shape))))
        for n, t in enumerate(types)
    ]


def differentiated(
    name: str, sizes: str, seed: int
) -> tuple[Operator[np.ndarray], list[Type]] | None:
    """A sample that has operands and results to differentiate; None where there is none."""
    for op, types in samples(name, np.random.default_rng(seed)):
        try:
            module, _, wrt = program(
                op, unknown(types) if sizes == "unknown" else types, derived=False
            )
        except cvm.VerifyError:
            continue
        if wrt and any(not t.element.is_discrete for t in module.functions["f"].result_types):
            return op, unknown(types) if sizes == "unknown" else types
    return None


def as_results(found: Any) -> tuple[np.ndarray, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.sample(60)
@pytest.mark.parametrize("sizes", ["known", "unknown"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_has_a_derivative(name: str, sizes: str) -> None:
    """By finite differences, both directions against each other, and compiled as by definition."""
    checked = 0
    for seed in range(8):
        if (found := differentiated(name, sizes, seed)) is None:
            continue
        op, types = found
        if not all(np.isfinite(r).all() for r in as_results(op.reference())):
            continue  # a window of nothing but padding holds -inf
        if sizes == "unknown" and name in KNOWN_ONLY:
            try:
                module, _, _ = program(op, types)
                compile_function(module, "back", "reference")
            except cvm.VerifyError as e:
                assert KNOWN_ONLY[name] in str(e)
                checked += 1
                continue
        random = np.random.default_rng(seed)
        rough = name.startswith("cog.")
        check(op, random, 2e-2 if rough else 5e-6, 1e-3 if rough else 1e-5, types)
        if not checked:
            compiled(op, types, random)
        checked += 1
        if checked == 3:
            break
    assert checked, "no sample is one of floats"


def compiled(op: Operator[np.ndarray], types: list[Type], random: np.random.Generator) -> None:
    module, arrays, wrt = program(op, types)
    results = compile_function(module, "f", "reference")(*arrays)
    seeds = {"back": as_results(results), "forth": tuple(arrays[n] for n in wrt)}
    for name, like in seeds.items():
        given = [*arrays, *(normal(random, a) for a in like)]
        wanted, got = (
            compile_function(module, name, target)(*given) for target in ("reference", "cpu")
        )
        for a, b in zip(as_results(got), as_results(wanted), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            tolerance = 1e-4 if a.dtype in (np.float32, np.complex64) else 1e-11
            np.testing.assert_allclose(a, b, tolerance, tolerance)


@pytest.mark.parametrize(
    "name", sorted(n for n, why in WITHOUT.items() if why in (INTEGERS, NO_FLOAT))
)
def test_what_has_nothing_to_differentiate(name: str) -> None:
    assert all(differentiated(name, "known", seed) is None for seed in range(8))


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_reasons_are_of_operators(name: str) -> None:
    assert name in OPERATORS


def test_scalar_operations_without_a_rule() -> None:
    assert {n for n, op in SCALAR_OPS.items() if op.gradient is None} == NO_RULE


@pytest.mark.parametrize(
    "name",
    sorted(
        n
        for n, op in SCALAR_OPS.items()
        if op.gradient is not None and op.takes(*(F64,) * (op.arity or 2))
    ),
)
def test_operands_by_which_a_scalar_operation_has_a_rule(name: str) -> None:
    builder, op = Builder(), SCALAR_OPS[name]
    xs = [builder.node(Value(f"x{n}", TensorType((3,), F64))) for n in range(op.arity or 2)]
    dtype: dict[str, Any] = {"dtype": F64} if name == "cast" else {}
    y = builder.apply("theano.elemwise", *xs, scalar_op=name, **dtype)
    if not y.element.is_discrete:
        found = op.pulled(y, xs, y)
        assert [n for n, d in enumerate(found) if d is UNKNOWN] == BY_ONE_OPERAND.get(name, [])
