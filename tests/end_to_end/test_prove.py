"""`cvm prove` proves equal functions, and finds counterexamples, which run, for others."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, I1, ElementType

import cvm
from cvm.cli import main

z3 = pytest.importorskip("z3")

from cvm.proving.bit_vectors import Arithmetic  # noqa: E402
from cvm.proving.division import is_quotient  # noqa: E402
from cvm.proving.equivalence import Verdict, program_after, program_of, prove, proved_in  # noqa: E402
from cvm.terminal.run_pipeline import chosen_passes, complete  # noqa: E402

DISCRETE = [e for e in ELEMENT_TYPES.values() if e.is_discrete]
PAGE = Path(__file__).parents[2] / "docs" / "proofs.md"


def verdict(arguments: str, result: str, *bodies: str, seconds: float = 20) -> Verdict:
    """The verdict on two functions, of the arguments' names and types and of expressions."""
    module = cvm.parse(
        "".join(
            f"func @{name}({arguments}) -> {result} {{\n{body}\n  return %y\n}}\n"
            for name, body in zip("fg", bodies, strict=True)
        )
    )
    return prove(program_of(module, "f"), program_of(module, "g"), seconds)


def numpy(ufunc: str, *operands: str, to: str = "y", more: str = "") -> str:
    return f'  %{to} = numpy.elementwise {", ".join(operands)} {{ufunc = "{ufunc}"{more}}}'


def values(random: np.random.Generator, e: ElementType) -> int:
    low, high = e.limits
    edges = [low, low + 1, 0, 1, high - 1, high]
    if random.random() < 0.5:
        return edges[random.integers(len(edges))]
    return int(random.integers(low, high, dtype=np.uint64 if high >= 2**63 else np.int64))


@pytest.mark.parametrize(
    "name", [n for n, r in SCALARS.items() if r.takes(*[DISCRETE[1]] * r.arity)]
)
def test_bit_vectors_are_what_numpy_computes(name: str) -> None:
    random, row, arithmetic = np.random.default_rng(0), SCALARS[name], Arithmetic()
    for e in DISCRETE:
        types = [e] * row.arity if row.arity < 3 else [I1, e, e]
        for _ in range(6 if row.takes(*types) else 0):
            given = [values(random, t) for t in types]
            if name in ("shl", "shr", "ipow"):
                given[1] %= min(e.bits, 9)
            terms = [
                arithmetic.data(arithmetic.constant(n, t), t)
                for n, t in zip(given, types, strict=True)
            ]
            found = z3.simplify(arithmetic.apply(name, terms, types))
            if name in arithmetic.abstract or f"{name} of {e}" in arithmetic.abstract:
                continue
            with np.errstate(all="ignore"):
                wanted = row.numpy(
                    *(np.array(n, t.dtype) for n, t in zip(given, types, strict=True))
                )
            result = row.result(*types)
            number = (
                z3.is_true(found)
                if result is I1
                else found.as_signed_long()
                if result.signed
                else found.as_long()
            )
            assert number == np.asarray(wanted).item(), (name, e, given)


def test_shifts_beyond_the_width_stand_for_anything() -> None:
    arithmetic, e = Arithmetic(), ELEMENT_TYPES["i8"]
    x = z3.BitVec("x", 8)
    beyond = arithmetic.apply("shl", [x, z3.BitVecVal(8, 8)], [e, e])
    assert not z3.is_true(z3.simplify(beyond == 0)) and not z3.is_bv_value(z3.simplify(beyond))


def test_quotients_by_products() -> None:
    """The inequality against all numbers of 8 bits."""
    for d in range(1, 20):
        for s in (8, 9, 11):
            for m in range(max((1 << s) // d - 2, 1), (1 << s) // d + 4):
                for a in (0, m // 2):
                    for low, high in ((0, 255), (17, 100), (-128, 127)):
                        exact = all((x * m + a) >> s == x // d for x in range(low, high + 1))
                        assert is_quotient(m, a, s, d, low, high) == exact, (m, a, s, d, low, high)


X, XY = "%x: tensor<?N x i32>", "%x: tensor<?N x i32>, %y0: tensor<?N x i32>"
I32, LONG = "tensor<?N x i32>", ", dtype = i64"
RANGED = "%x: tensor<?N x i32> {range = [0, 1000000]}"
AS_LONG = numpy("astype", "%x", to="w", more=LONG)
EQUAL = {
    "remainder and mask": (
        X,
        I32,
        numpy("remainder", "%x", "8 : i32"),
        numpy("bitwise_and", "%x", "7 : i32"),
    ),
    "square of an absolute sum": (
        XY,
        I32,
        "  %s = cvm.elemwise_add %x, %y0\n  %a = cvm.abs %s\n  %y = cvm.broadcast_mul %a, %a",
        "  %s = cvm.elemwise_add %y0, %x\n  %y = cvm.broadcast_mul %s, %s",
    ),
    "quotient by a product": (
        RANGED,
        "tensor<?N x i64>",
        f"{AS_LONG}\n{numpy('floor_divide', '%w', '10 : i64')}",
        f"{AS_LONG}\n{numpy('multiply', '%w', '3435973837 : i64', to='p')}\n"
        + numpy("right_shift", "%p", "35 : i64"),
    ),
    "movement of floats": (
        "%x: tensor<?N x ?M x f32>",
        "tensor<?N x ?M x f32>",
        "  %t = theano.dimshuffle %x {new_order = [1, 0]}\n  %y = theano.dimshuffle %t {new_order = [1, 0]}",
        '  %y = theano.elemwise %x {scalar_op = "identity"}',
    ),
    "reshape of a transpose": (
        "%x: tensor<4x6xi32>",
        "tensor<24xi32>",
        "  %t = cvm.transpose %x {axes = [1, 0]}\n  %u = cvm.transpose %t {axes = [1, 0]}\n"
        "  %y = cvm.reshape %u {target_shape = [24]}",
        "  %y = cvm.reshape %x {target_shape = [24]}",
    ),
    "sums of equal terms": (
        "%x: tensor<?N x ?K x i32>, %z: tensor<?N x ?K x i32>",
        "tensor<?N x i32>",
        "  %s = cvm.elemwise_add %x, %z\n  %y = cvm.sum %s {axes = [1]}",
        "  %s = cvm.elemwise_add %z, %x\n  %y = cvm.sum %s {axes = [1]}",
    ),
}


@pytest.mark.parametrize("case", EQUAL)
def test_equal_programs_are_proved(case: str) -> None:
    assert verdict(*EQUAL[case]).kind == "proved"


WRONG = {
    "the least integer": (
        X,
        I32,
        "  %y = cvm.abs %x",
        "  %n = cvm.negative %x\n  %m = cvm.broadcast_max %n, %x\n  %y = cvm.relu %m",
    ),
    "too small a multiplier": (
        RANGED,
        "tensor<?N x i64>",
        f"{AS_LONG}\n{numpy('floor_divide', '%w', '10 : i64')}",
        f"{AS_LONG}\n{numpy('multiply', '%w', '3277 : i64', to='p')}\n"
        + numpy("right_shift", "%p", "15 : i64"),
    ),
    "the sign of a zero": (
        "%x: tensor<?N x f32>",
        "tensor<?N x f32>",
        "  %y = dali.add %x, 0.0",
        "  %y = dali.mul %x, 1.0",
    ),
    "a division by zero": (
        XY,
        I32,
        '  %y = theano.elemwise %x, %y0 {scalar_op = "int_div"}',
        "  %y = cvm.broadcast_div %x, %y0",
    ),
    "another order": (
        "%x: tensor<4x6xi32>",
        "tensor<24xi32>",
        "  %t = cvm.transpose %x {axes = [1, 0]}\n  %y = cvm.reshape %t {target_shape = [24]}",
        "  %y = cvm.reshape %x {target_shape = [24]}",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_unequal_programs_have_a_counterexample(case: str) -> None:
    found = verdict(*WRONG[case])
    assert found.kind == "wrong" and found.wrong is not None
    assert sum(a.size for a in found.wrong) <= 24


def test_wide_products_are_proved_in_fewer_bits() -> None:
    module = cvm.parse(
        f"""
        func @f({XY}) -> {I32} {{
          %y = cvm.broadcast_mul %x, %y0
          return %y
        }}
        func @g({XY}) -> {I32} {{
          {numpy("bitwise_and", "%x", "%y0", to="a")}
          {numpy("bitwise_or", "%x", "%y0", to="b")}
          {numpy("bitwise_xor", "%x", "%a", to="c")}
          {numpy("bitwise_xor", "%y0", "%a", to="d")}
          {numpy("multiply", "%a", "%b", to="e")}
          {numpy("multiply", "%c", "%d", to="f")}
          {numpy("add", "%e", "%f")}
          return %y
        }}
        """
    )
    assert proved_in(program_of(module, "f"), program_of(module, "g"), 8, 60)
    assert "proved at 8 bits, tested on 7 inputs at 32 bits" in str(
        Verdict(narrow=(8,), tests=7, bits=32)
    )


@pytest.mark.parametrize(
    ("bodies", "reason"),
    [
        (("  %y = dali.add %x, %z", "  %y = dali.add %z, %x"), "add of f32"),
        (("  %y = dali.sqrt %x", '  %y = theano.elemwise %x {scalar_op = "sqrt"}'), ""),
    ],
)
def test_functions_of_floats_stand_for_themselves(bodies: tuple[str, str], reason: str) -> None:
    found = verdict("%x: tensor<?N x f32>, %z: tensor<?N x f32>", "tensor<?N x f32>", *bodies)
    assert found.kind == ("tested" if reason else "proved") and reason in str(found)
    assert found.tests > 200 or not reason


def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text("utf-8")
    program = page.partition("```cvm\n")[2].partition("```")[0]
    (file := tmp_path / "distribute.cvm").write_text(program)
    assert main(["prove", str(file), "--strict"]) == 0
    assert capsys.readouterr().out == "@f and @g: proved for all inputs\n"
    file.write_text(
        "func @f(%x: tensor<?N x i32>) -> tensor<?N x i32> {\n  %y = cvm.abs %x\n  return %y\n}\n"
        "func @g(%x: tensor<?N x i32>) -> tensor<?N x i32> {\n  %n = cvm.negative %x\n"
        "  %m = cvm.broadcast_max %n, %x\n  %y = cvm.relu %m\n  return %y\n}\n"
    )
    assert main(["prove", str(file), "-o", str(tmp_path / "wrong.cvm")]) == 1
    assert main(["run", str(tmp_path / "wrong.cvm")]) == 0
    shown = capsys.readouterr().out
    assert "@f and @g: wrong\n" in shown and shown.endswith(
        "%a0: tensor<1xi32>\n  [-2147483648]\n%b0: tensor<1xi32>\n  [0]\n"
    )
    assert "%a0: tensor<1xi32>\n  [-2147483648]\n%b0: tensor<1xi32>\n  [0]\n" in page


LAYER = """
func @main(%x: tensor<?N x 3 x i32> {range = [-9, 9]}) -> tensor<?N x 4 x i32> {
  %w = const dense<[[1, 0, 2], [0, 1, -1], [3, -2, 0], [1, 1, 1]]> : tensor<4x3xi32>
  %sum = cvm.dense %x, %w
  %half = cvm.cvm_right_shift %sum {precision = 8, shift_bit = 1}
  %y = cvm.relu %half
  return %y
}
"""


def test_before_and_after_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "layer.cvm").write_text(LAYER)
    passes = "canonicalize,fuse,integer_ranges,rounding_shift,simplify_with_ranges"
    assert main(["prove", str(file), "--strict", "--pipeline", passes]) == 0
    assert main(["prove", str(file), "--strict", "--pipeline", "cse"]) == 0
    assert capsys.readouterr().out.count("proved for all inputs") == 2


CLAMP = """
func @main(%x: tensor<9xi32>) -> tensor<9xi8> {
  %a = theano.elemwise %x, 100 : i32 {scalar_op = "minimum"}
  %b = theano.elemwise %a, 0 : i32 {scalar_op = "maximum"}
  %y = theano.elemwise %b {scalar_op = "cast", dtype = i8}
  return %y
}
"""


def test_kernels_after_passes() -> None:
    module = cvm.parse(CLAMP)
    passes, _ = complete(chosen_passes("fuse,schedule", None), "graph")
    after = program_after(module, "main", passes)
    before = program_of(module, "main", compiled=True)
    assert prove(before, after).kind == "proved"
    wrong = cvm.parse(CLAMP.replace("100", "101"))
    found = prove(program_of(wrong, "main", compiled=True), after)
    assert found.wrong is not None and found.wrong[0].max() > 100


def test_kernels_of_open_sizes_are_tested() -> None:
    module = cvm.parse(CLAMP.replace("<9x", "<?N x "))
    passes, _ = complete(chosen_passes("vectorize", None), "graph")
    found = prove(program_of(module, "main", compiled=True), program_after(module, "main", passes))
    assert found.kind == "tested" and "sizes or places" in str(found)


def test_results_without_elements_are_equal() -> None:
    bodies = "  %y = cvm.abs %x", "  %y = cvm.negative %x"
    assert verdict("%x: tensor<0xi32>", "tensor<0xi32>", *bodies).proved


def test_a_result_without_elements_proves_no_other() -> None:
    text = """
        func @%s(%%x: tensor<?N x i32>, %%z: tensor<0xi32>) -> (tensor<0xi32>, tensor<?N x i32>) {
          %%y = cvm.%s %%x
          return %%z, %%y
        }
    """
    module = cvm.parse(text % ("f", "abs") + text % ("g", "negative"))
    assert prove(program_of(module, "f"), program_of(module, "g")).kind == "wrong"


def test_ranges_without_a_number_in_common_prove_nothing() -> None:
    text = "func @%s(%%x: tensor<3xi32> {range = %s}) -> tensor<3xi32> {\n  return %%x\n}\n"
    module = cvm.parse(text % ("f", "[5, 9]") + text % ("g", "[-9, 2]"))
    with pytest.raises(cvm.Error, match="no number in common"):
        prove(program_of(module, "f"), program_of(module, "g"))


def table() -> dict[str, str]:
    """The lines of the page's table by their rewrites."""
    lines = PAGE.read_text("utf-8").partition("<!-- proofs -->")[2].splitlines()
    return {line.split(" | ")[0]: line for line in lines if line.startswith("| `")}


ROWS = runpy.run_path(str(PAGE.with_suffix(".py")))


def test_the_table_has_all_rows() -> None:
    assert len(table()) == len(ROWS["ROWS"]), "python docs/proofs.py brings it up to date"


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS["ROWS"], ids=lambda row: Path(row.file).stem)
def test_own_rewrites(row: Any) -> None:
    """Each row of docs/proofs.md is as it says; fewer are proved where z3 has less time."""
    line = ROWS["line"](row)
    known = table()[line.split(" | ")[0]]
    assert line == known or not known.endswith("| proved |")


PATTERNS = """
from cvm.extending import OPERATORS, pattern

Negative = OPERATORS["cvm.negative"]

@pattern()
def negative_twice(op: Negative, b):
    return getattr(b.owner(op.x), "x", None) if isinstance(b.owner(op.x), Negative) else None

@pattern()
def abs_of_negative(op: OPERATORS["cvm.abs"], b):
    return getattr(b.owner(op.x), "x", None) if isinstance(b.owner(op.x), Negative) else None

@pattern()
def never(op: Negative, b):
    return None
"""


def test_the_patterns_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "signs.py").write_text(PATTERNS)
    command = [sys.executable, "-m", "cvm", "prove", "signs", "-o", "wrong.cvm"]
    environment = {**os.environ, "PYTHONPATH": str(Path(cvm.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        "negative_twice of signs: proved for all inputs",
        "abs_of_negative of signs: wrong",
        "the counterexample: cvm run wrong.cvm --entry counterexample",
        "never of signs: not proved (it matches no program made of the operators' examples)",
    ]


REWRITES = """
rewrite @distribute(%a: tensor<?N x i32>, %b: tensor<?N x i32>, %c: tensor<?N x i32>) {
  %s = cvm.elemwise_add %a, %b
  %y = cvm.broadcast_mul %s, %c
  return %y
} => {
  %s = cvm.broadcast_mul %a, %c
  %t = cvm.broadcast_mul %b, %c
  %y = cvm.elemwise_add %s, %t
  return %y
}

rewrite @no_sign(%a: tensor<?N x i32>) {
  %n = cvm.abs %a
  %y = cvm.relu %n
  return %y
} => {
  %n = cvm.abs %a
  return %n
}
"""


def test_rewrites_of_a_file_and_of_a_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The least integer has no absolute value."""
    (tmp_path / "rules.cvm").write_text(REWRITES)
    wrong = tmp_path / "wrong.cvm"
    assert main(["prove", str(tmp_path / "rules.cvm"), "-o", str(wrong)]) == 1
    verdicts = ["rewrite @distribute: proved for all inputs", "rewrite @no_sign: wrong"]
    assert capsys.readouterr().out.splitlines()[:2] == verdicts
    assert main(["run", str(wrong)]) == 0
    assert capsys.readouterr().out.split() == [
        *("%a0:", "tensor<1xi32>", "[0]"),
        *("%b0:", "tensor<1xi32>", "[-2147483648]"),
    ]
    package = tmp_path / "rules"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from pathlib import Path\nfrom cvm.extending import register_rewrites\n"
        "register_rewrites(Path(__file__).with_name('rules.cvm'))\n"
    )
    (package / "rules.cvm").write_text(REWRITES)
    environment = {**os.environ, "PYTHONPATH": str(Path(cvm.__file__).parents[1])}
    command = [sys.executable, "-m", "cvm", "prove", "rules", "-o", "wrong.cvm"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[:2] == verdicts, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no two functions take and give the same types"),
        (["--seconds", "nan"], "--seconds nan: expected a number above 0"),
        (["--seconds", "0"], "--seconds 0: expected a number above 0"),
        (["--equal", "main"], "expected the names of two functions"),
        (["--equal", "main,other"], "no function @other"),
        (["--pipeline", "cse", "--equal", "a,b"], "--equal compares functions"),
    ],
)
def test_wrong_command_lines(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "layer.cvm").write_text(LAYER)
    assert main(["prove", str(file), *arguments]) in (1, 2)
    assert message in capsys.readouterr().err
