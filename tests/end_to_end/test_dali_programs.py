"""Whole programs of the dali dialect: what is fused, what is kept and what the reference says are
the same bits.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from available_targets import EVERY
from cvm.dialect.dali.promotion import SUPPORTED
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.spec.operator import OPERATORS, violated
from cvm.dialect.types.tensor_types import ElementType, TensorType
from operator_checks import assert_same
from samples_dali import DALI, values

import cvm

# operators that are exact on every target and cannot fail; integer powers only where they stay
# small
EXACT = sorted(
    name
    for name, op in DALI.items()
    if name not in ("dali.mod", "dali.floordiv", "dali.pow")
    and (not op.scalar or not SCALARS[op.scalar].ulps)
)
Typed = tuple[str, TensorType]


def chain(random: np.random.Generator, length: int) -> tuple[list[str], list[Typed], list[Typed]]:
    """Random operations on arguments and on each other's results: their lines, the arguments and
    the results.
    """
    rank = int(random.integers(0, 4))
    whole = tuple(int(n) for n in random.integers(1, 5, rank))
    if rank and random.random() < 0.6:  # long enough for vectors, with a tail
        whole = (*whole[:-1], int(random.integers(1, 80)))
    arguments: list[Typed] = []
    for n in range(4):
        shape = tuple(
            1 if random.random() < 0.25 else d
            for d in whole[int(random.integers(0, 2)) if rank else 0 :]
        )
        arguments.append(
            (f"%a{n}", TensorType(shape, SUPPORTED[int(random.integers(0, len(SUPPORTED)))]))
        )
    known, lines, results = list(arguments), [], []
    while len(lines) < length:
        cls = OPERATORS[str(random.choice(EXACT))]
        taken = [
            literal(random) if random.random() < 0.15 else pick(random, known) for _ in cls.names
        ]  # type: ignore[attr-defined]
        op = cls(*(t for _, t in taken))
        if violated(op, cls.constraints)[0] is None:
            name = f"%{len(lines)}"
            lines.append(f"  {name} = {cls.name} {', '.join(text for text, _ in taken)}")
            results.append((name, op.result_types()[0]))
            known.append(results[-1])  # type: ignore[arg-type]
    return lines, arguments, results


def pick(random: np.random.Generator, known: list[Typed]) -> Typed:
    """One of the values, a late one more often than not."""
    late = known[-3:] if random.random() < 0.7 else known
    return late[int(random.integers(0, len(late)))]


def literal(random: np.random.Generator) -> Typed:
    kind = SUPPORTED[int(random.integers(0, len(SUPPORTED)))]
    value = values(random, kind, ()).item()
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{text} : {kind}", TensorType((), kind)


def program(lines: list[str], arguments: list[Typed], returned: list[str], unknown: bool) -> str:
    def type_text(name: str, t: TensorType) -> str:
        sizes = [f"?{name[1:].upper()}N{n}" if unknown else str(d) for n, d in enumerate(t.shape)]
        return f"{name}: tensor<{' x '.join([*sizes, t.element.name])}>"

    head = ", ".join(type_text(*a) for a in arguments)
    return "\n".join([f"func @main({head}) {{", *lines, f"  return {', '.join(returned)}", "}"])


def arrays(random: np.random.Generator, arguments: list[Typed]) -> list[np.ndarray]:
    return [values(random, t.element, t.shape) for _, t in arguments]  # type: ignore[arg-type]


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(40))
def test_fused_is_unfused_is_the_reference(seed: int) -> None:
    random = np.random.default_rng(seed)
    lines, arguments, results = chain(random, int(random.integers(2, 12)))
    given = arrays(random, arguments)
    names = [name for name, _ in results]
    wanted = cvm.compile(program(lines, arguments, names, False), target="reference")(*given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    kept = program(lines, arguments, names, False)
    for text, expected in (
        (kept, wanted),
        (program(lines, arguments, names[-1:], False), wanted[-1:]),
        (program(lines, arguments, names[-1:], True), wanted[-1:]),
    ):
        found = cvm.compile(text)(*given)
        for got, want in zip(
            found if isinstance(found, tuple) else (found,), expected, strict=True
        ):
            assert_same(got, want, 0, text)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("op", ["floordiv", "mod"])
@pytest.mark.parametrize("element", [e for e in SUPPORTED if e.is_integer], ids=str)
def test_division_by_zero_names_its_line(element: ElementType, op: str, target: str) -> None:
    text = (
        f"func @main(%a: tensor<?x{element}>, %b: tensor<?x{element}>) {{\n"
        f"  %y = dali.{op} %a,\n   %b\n  return %y\n}}"
    )
    divide = cvm.compile(text, target=target)
    a, b = np.arange(1, 9).astype(element.dtype), np.arange(8, 0, -1).astype(element.dtype)
    np.testing.assert_array_equal(divide(a, b), a // b if op == "floordiv" else a % b)
    b[6] = 0
    with pytest.raises(cvm.CallError) as caught:
        divide(a, b)
    (said,) = caught.value.diagnostics
    assert (said.message, said.line, said.code) == ("integer division by zero", 2, "run")


FIRST_OF_SEVERAL = """
func @quotient(%a: tensor<NxIx>, %b: tensor<NxIx>) -> tensor<NxIx> {
  %q = dali.floordiv %a, %b
  return %q
}
func @main(%x: tensor<NxIx>, %y: tensor<NxIx>, %z: tensor<NxIx>, %t: tensor<NxIx>) {
  %a = dali.mod %x, %y
  %sum = cvm.sum %a
  %b = call @quotient(%x, %z)
  %c = dali.floordiv %b, %t
  %d = dali.floordiv %sum, %c
  return %a, %d
}
"""


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("n", [1, 64, 5000])
def test_of_several_divisions_by_zero_the_first_is_named(target: str, n: int) -> None:
    divide = cvm.compile(FIRST_OF_SEVERAL.replace("NxIx", f"{n}xi32"), target=target)
    numbers = np.random.default_rng(0).integers(1, 100, (4, n)).astype(np.int32)
    numbers[3] = 200  # the last quotient is by zero in any case
    for divisors, line in (((1, 2), 7), ((2,), 3), ((2, 3), 3), ((3,), 10), ((), 11)):
        given = numbers.copy()
        for k in divisors:
            given[k, n // 2] = 0
        with pytest.raises(cvm.CallError) as caught:
            divide(*given)
        assert caught.value.diagnostics[0].line == line, divisors


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_the_least_integer_divided_by_the_constant_minus_1(bits: int, target: str) -> None:
    """Also where it is one of two numbers that are known while compiling."""
    most = 2 ** (bits - 1) - 1
    text = f"""
        func @main(%x: tensor<5xi1>) {{
          %s = dali.add %x, {most} : i{bits}
          %q = dali.floordiv %s, -1 : i{bits}
          %r = dali.mod %s, -1 : i{bits}
          return %q, %r
        }}
    """
    quotient, rest = cvm.compile(text, target=target)(np.array([0, 1, 1, 0, 1], np.bool_))
    assert quotient.tolist() == [-most, -most - 1, -most - 1, -most, -most - 1] and not rest.any()


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_groups_of_axes_are_counted_when_called(target: str) -> None:
    add = cvm.compile(
        "func @main(%a: tensor<?x?x?x?x?x?x?xi32>, %b: tensor<?x?x?x?x?x?x?xi32>) {\n"
        "  %y = dali.add %a, %b\n  return %y\n}",
        target=target,
    )
    ones = np.ones(2**4, np.int32)
    assert add(
        ones[:8].reshape(2, 1, 2, 1, 2, 1, 1), ones[:8].reshape(1, 2, 1, 2, 1, 2, 1)
    ).shape == (
        2,
        2,
        2,
        2,
        2,
        2,
        1,
    )
    with pytest.raises(cvm.VerifyError, match=r"groups = 7") as caught:
        add(ones.reshape(2, 1, 2, 1, 2, 1, 2), ones[:8].reshape(1, 2, 1, 2, 1, 2, 1))
    assert caught.value.diagnostics[0].code == "dali.add.C4"
    with pytest.raises(cvm.VerifyError, match=r"broadcast"):
        add(ones[:2].reshape(1, 1, 1, 1, 1, 1, 2), ones[:3].reshape(1, 1, 1, 1, 1, 1, 3))


def test_transcendental_functions_of_constants_are_those_of_arguments() -> None:
    """They are not folded by the reference, whose last bit may be another one."""
    x = np.float32(0.7)
    of_constant = cvm.compile("func @main() {\n  %y = dali.exp 0.7\n  return %y\n}")
    of_argument = cvm.compile("func @main(%x: tensor<f32>) {\n  %y = dali.exp %x\n  return %y\n}")
    np.testing.assert_array_equal(of_constant(), of_argument(x))
    assert "constant" not in of_constant.lower("formulas")
    assert "constant" in cvm.compile("func @main() {\n  %y = dali.sqrt 2\n  return %y\n}").lower(
        "formulas"
    )


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_what_is_not_used_does_not_fail(target: str) -> None:
    text = (
        "func @main(%a: tensor<2xi32>) {\n  %q = dali.floordiv %a, 0\n  %y = dali.add %a, 1\n"
        "  return %y\n}"
    )
    np.testing.assert_array_equal(cvm.compile(text, target=target)(np.int32([1, 2])), [2, 3])


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_part_of_what_fails_fails(target: str) -> None:
    text = """
        func @main(%a: tensor<3xi32>, %b: tensor<3xi32>) {
          %q = dali.floordiv %a, %b
          %y = cvm.slice %q {begin = [0], end = [2]}
          return %y
        }
    """
    run = cvm.compile(text, target=target)
    np.testing.assert_array_equal(run(np.int32([4, 5, 6]), np.int32([2, 2, 2])), [2, 2])
    with pytest.raises(cvm.CallError, match="division by zero"):
        run(np.int32([4, 5, 6]), np.int32([2, 2, 0]))


def test_the_page_has_the_tables_of_the_code() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "dali.md").read_text("utf-8")
    assert runpy.run_path(str(docs / "promotion.py"))["page"](page) == page, (
        "python docs/promotion.py brings it up to date"
    )


def test_the_example_of_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its program and its Python function give the same bits."""
    script = Path(__file__).parents[2] / "examples" / "images" / "colours.py"
    monkeypatch.setattr("sys.argv", [str(script), "--picture", str(tmp_path / "out.png")])
    assert runpy.run_path(str(script))["main"]() == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
