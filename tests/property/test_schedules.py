"""Random schedules keep every bit of kernels, on processors of several vector widths."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.jit.host_processor import host_processor
from cvm.lowering.analysis.intrinsics import INTRINSICS
from cvm.lowering.scheduling.steps import STEPS
from random_schedules import KERNELS, keeps_every_bit, random_step, text_of
from tiers import everything

import cvm
from cvm import cli

SIZES = ((1, 1, 1), (3, 5, 4), (17, 33, 9), (32, 64, 16), (40, 19, 8))[0 if everything else 2 :]
IS_X86 = host_processor().is_x86
PROCESSORS = [None, *(("x86-64-v2", "x86-64-v3") if IS_X86 and everything else ())]


@pytest.mark.parametrize("name", KERNELS)
def test_random_schedules_keep_every_bit(name: str) -> None:
    keeps_every_bit(name, 0, 8 if everything else 4, PROCESSORS, SIZES)


ATTEMPTS = 300  # of each kernel
ORDER = re.compile("would change the order|is carried|lanes write|iterations twice")


@pytest.mark.slow
def test_what_dependences_forbid_is_said_with_both_accesses() -> None:
    rng, found = random.Random(0), dict[tuple[str, str], str]()
    for name in KERNELS:
        schedule = cvm.schedule(text_of(name))
        for _ in range(ATTEMPTS):
            step = random_step(rng, schedule)
            try:
                schedule.copy().apply(step)
            except cvm.VerifyError as e:
                if ORDER.search(said := e.diagnostics[0].message):
                    found[name, step] = said
    assert len(found) >= 100
    for said in found.values():
        assert len(re.findall("`[^`]+`", said)) >= 2, said


REFUSED = {
    "vectorize{loop=k by=8}": r"%c is carried .* the vector loop over %k, in `.*` and `.*`",
    "reorder{loops=k,j}": "the loop j has 2 statements: distribute{loop=j} gives each a loop",
    "parallelize{loop=k}": "k is inside another loop or a branch",
    "split{loop=i by=1}": "parts have at least 2 iterations, got by=1",
    "split{loop=i by=4 tail=none}": "tail is guard, peel or shift, got none",
    "split{loop=ii by=4}": "there is no loop ii; did you mean i: the kernel has i, j, k",
    "stage{array=d at=i}": "there is no array d",
    "spilt{loop=i by=4}": "there is no step spilt; did you mean split",
    "split{loop=i}": "split needs the option by",
    "split{loop=i by=x}": "expected a whole number, got 'x'",
    "split{loop=../x by=2}": "expected a name, got '../x'",
}


@pytest.mark.parametrize("step", REFUSED)
def test_a_step_that_is_refused_says_why(step: str) -> None:
    schedule = cvm.schedule(text_of("product"))
    before = schedule.lower()
    with pytest.raises(cvm.VerifyError, match=REFUSED[step]):
        schedule.apply(step)
    assert schedule.lower() == before and str(schedule) == ""


ILLEGAL = [
    ("wavefront", "reorder{loops=i#1,j#1}", None),
    ("wavefront", "parallelize{loop=i#1}", "does not run from 0 to a size"),
    ("wavefront", "vectorize{loop=j#1 by=4}", "carried"),
    ("prefix", "parallelize{loop=j#1}", "inside another loop"),
    ("prefix", "vectorize{loop=j#1 by=4}", "carried"),
    ("prefix", "reorder{loops=j#1,i#1}", None),
    ("columns", "parallelize{loop=i}", "carried"),
    ("triangle", "reorder{loops=k,i#1}", "the bounds of k depend on %i"),
    ("triangle", "parallelize{loop=i#1}", "carried"),
    ("accumulator", "vectorize{loop=k by=4}", "carried"),
]


@pytest.mark.parametrize(("name", "step", "said"), ILLEGAL)
def test_dependences_decide(name: str, step: str, said: str | None) -> None:
    schedule = cvm.schedule(text_of(name))
    if said is None:
        assert str(schedule.apply(step)) == step
        return
    with pytest.raises(cvm.VerifyError, match=said):
        schedule.apply(step)


def test_a_skewed_dependence_forbids_an_interchange() -> None:
    text = """kernel @skewed(%a: tensor<?M x ?N x i32>) -> (%c: tensor<?M x ?N x i32>) {
      for %i in 0..?M { for %j in 0..?N { %c[%i, %j] = %a[%i, %j] } }
      for %i in 1..?M { for %j of ?N in 0..?N - 1 {
        %c[%i, %j] = %c[%i - 1, %j + 1] + 1 } } }"""
    with pytest.raises(
        cvm.VerifyError, match=r"would change the order of two accesses of %c: .* and"
    ):
        cvm.schedule(text).reorder("j#1", "i#1")


def test_a_second_name_of_an_array_forbids_steps() -> None:
    text = """kernel @shifted(%x: tensor<?N x i32>) -> (%y: tensor<?N x i32> view of %x) {
      for %i in 1..?N { %y[%i] = %x[%i - 1] + 1 } }"""
    with pytest.raises(cvm.VerifyError, match="%y and %x are one array, so nothing may move"):
        cvm.schedule(text).peel("i", first=1)


def test_a_fusion_that_reads_ahead_is_refused() -> None:
    text = """kernel @ahead(%a: tensor<?N x i32>) -> (%c: tensor<?N x i32>, %d: tensor<?N x i32> zero) {
      for %i of ?N in 0..?N - 1 { %c[%i] = %a[%i] }
      for %i of ?N in 0..?N - 1 { %d[%i] = %a[%i + 1] }
      for %i of ?N in ?N - 1..?N { %c[%i] = 0 }
    }"""
    schedule = cvm.schedule(text)
    assert "for" in schedule.fuse("i#0", "i#1").lower()
    ahead = text.replace("%d[%i] = %a[%i + 1]", "%d[%i] = %c[%i + 1]").replace(
        "?N - 1..?N {", "0..?N {"
    )
    with pytest.raises(cvm.VerifyError):
        cvm.schedule(ahead).fuse("i#0", "i#1")


def test_float_sums_change_their_order_only_when_told_to() -> None:
    text = """kernel @sums(%a: tensor<?M x ?N x f32>) -> (%c: tensor<f32>) {
      %c[] = 0.0
      for %i in 0..?M { for %j in 0..?N { %c[] = %c[] + %a[%i, %j] } } }"""
    with pytest.raises(cvm.VerifyError, match="would change the order of two accesses of %c"):
        cvm.schedule(text).reorder("j", "i")
    told = cvm.schedule(text).reorder("j", "i", reassociate=True)
    assert str(told) == "reorder{loops=j,i reassociate=true}"
    exact = cvm.schedule(text.replace("f32", "i32").replace("0.0", "0")).reorder("j", "i")
    a = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert exact.compile()(a) == a.sum()


def test_a_kernel_of_a_program_is_scheduled_by_name() -> None:
    f = cvm.compile(
        "func @main(%x: tensor<?Nx64xi32>, %w: tensor<48x64xi32>) {"
        " %y = cvm.dense %x, %w %z = cvm.max %y {axes=[1]} return %z, %y }"
    )
    schedule = cvm.schedule(f, name="main.0")
    schedule.expand("acc0", "j").distribute("j").reorder("k", "j#1").vectorize("j#1")
    rng = np.random.default_rng(0)
    x, w = rng.integers(-9, 9, (7, 64), np.int32), rng.integers(-9, 9, (48, 64), np.int32)
    for wanted, found in zip(f(x, w), schedule.compile()(x, w), strict=True):
        assert (wanted == found).all()
    with pytest.raises(cvm.Error, match=r"there is no kernel main\.7; the kernels are main\.0"):
        cvm.schedule(f, name="main.7")


@cvm.kernel(checks=False)
def product(a: Any, b: Any, c: Any) -> None:
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s


def test_a_kernel_from_python() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((9, 21)), rng.standard_normal((21, 19))
    wanted, found = np.zeros((9, 19)), np.zeros((9, 19))
    product(a, b, wanted)
    schedule = cvm.schedule(product, a, b, found)
    schedule.expand("s", "j").distribute("j").reorder("k", "j#1").vectorize("j#1", 4)
    schedule.compile()(a, b, found)
    assert wanted.tobytes() == found.tobytes()


def test_a_copy_goes_its_own_way() -> None:
    schedule = cvm.schedule(text_of("stencil")).split("i", 4)
    other = schedule.copy().split("j", 8)
    assert [len(s.steps) for s in (schedule, other)] == [1, 2]


def test_a_text_of_steps_is_read_whole_or_not_at_all() -> None:
    schedule = cvm.schedule(text_of("stencil"))
    with pytest.raises(cvm.VerifyError) as e:
        schedule.apply("// first\nsplit{loop=i by=4}\n  split{loop=x by=4}\n", "s.schedule")
    (d,) = e.value.diagnostics
    assert (d.file, d.line, d.column, schedule.steps) == ("s.schedule", 3, 3, ())


def test_the_command_line_takes_steps(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, steps = tmp_path / "k.loops", tmp_path / "k.schedule"
    kernel.write_text(text_of("stencil"))
    steps.write_text("split{loop=i by=4 into=io,ii}\n")
    assert cli.main(["opt", str(kernel), "--pipeline", "split{loop=i by=4 into=io,ii}"]) == 0
    by_pipeline = capsys.readouterr().out
    assert cli.main(["lower", str(kernel), "--to", "loops", "--schedule", str(steps)]) == 0
    assert capsys.readouterr().out == by_pipeline and "%io" in by_pipeline
    assert cli.main(["opt", str(kernel), "--pipeline", "vectorize{loop=i by=0}"]) == 1
    assert "reproducer" not in capsys.readouterr().err


def test_the_page_of_schedules(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cvm.kernels.intrinsics.PLACED", [])
    page = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text("utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "schedules.md", "exec"), {})
    INTRINSICS.clear()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "distribute{loop=j}" and len(said) == 4
    steps = re.findall(r"^\| `(\w+)\{", page, re.MULTILINE)
    assert {*steps} == {*STEPS}


BLOCKS = re.findall(
    r"^```schedule\n(.*?)^```",
    (Path(__file__).parents[2] / "docs" / "schedules.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)
EXAMPLES = {
    "matrix product": """kernel @product(%a: tensor<32x8xf32>, %b: tensor<8x64xf32>) -> (%c: tensor<32x64xf32>) {
      for %i in 0..32 { for %j in 0..64 {
        %c[%i, %j] = 0.0
        for %k in 0..8 { %c[%i, %j] = fma(%a[%i, %k], %b[%k, %j], %c[%i, %j]) } } } }""",
    "blur": """kernel @blur(%a: tensor<?M x ?N x f32>) -> (%c: tensor<[?M - 2] x [?N - 2] x f32>) {
      alloc heap %h: tensor<?M x [?N - 2] x f32>
      for %i in 0..?M { for %j in 0..?N - 2 {
        %h[%i, %j] = %a[%i, %j] + %a[%i, %j + 1] + %a[%i, %j + 2] } }
      for %i in 0..?M - 2 { for %j in 0..?N - 2 {
        %c[%i, %j] = (%h[%i, %j] + %h[%i + 1, %j] + %h[%i + 2, %j]) * 0.125 } } }""",
    "histogram": """kernel @histogram(%x: tensor<?N x ui8>) -> (%h: tensor<256xi32> zero) {
      for %i in 0..?N { %h[i64(%x[%i])] = %h[i64(%x[%i])] + 1 } }""",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_page_keep_every_bit(name: str) -> None:
    schedule = cvm.schedule(EXAMPLES[name]).apply(BLOCKS[[*EXAMPLES].index(name)])
    rng = np.random.default_rng(0)
    shapes = {"matrix product": ((32, 8), (8, 64)), "blur": ((71, 133),), "histogram": ((99_999,),)}
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes[name]]
    if name == "histogram":
        arrays = [rng.integers(0, 256, shapes[name][0]).astype(np.uint8)]
    wanted, found = (f(*arrays) for f in (cvm.compile(EXAMPLES[name]), schedule.compile()))
    assert wanted.tobytes() == found.tobytes()
    if name == "matrix product":  # the sums of a tile are in registers: no copy, no loads of them
        compiled: Any = schedule.compile()
        text = compiled.lower("llvm-opt")
        loop = text[text.index("phi <16 x float>") :]
        assert "%c.tile[%c0" in schedule.lower() and "= %c[" not in schedule.lower()
        assert loop.count("phi <16 x float>") >= 16


NOT_LEGAL = [
    ("prefix", "inline{array=c}", "no nest stores %c whole"),
    ("blur", "inline{array=a}", "no nest stores %a whole"),
    ("two_results", "privatize{array=c loop=i#0}", "not all accesses are updates"),
    ("histogram", "privatize{array=c loop=j}", "inside another loop"),
    ("product", "privatize{array=c loop=i}", "not all accesses are updates"),
]


@pytest.mark.parametrize(("name", "step", "said"), NOT_LEGAL)
def test_copies_and_inlining_are_refused(name: str, step: str, said: str) -> None:
    with pytest.raises(cvm.VerifyError, match=said):
        cvm.schedule(text_of(name)).apply(step)
