"""Each attack of tests/fuzz finds nothing in a few inputs, and finds what is planted."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.types import constant_files
from cvm.dialect.types.tensor_types import ELEMENT_TYPES, TensorType
from outcomes import assert_same

import cvm

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.fuzz import __main__ as command, differential  # noqa: E402
from tests.fuzz.attacks import ATTACKS  # noqa: E402
from tests.fuzz.mutants import mutants, run  # noqa: E402
from tests.fuzz.mutate import mutate_bytes, mutate_text  # noqa: E402
from tests.fuzz.mutate_models import TFLITE, TOSA, Format  # noqa: E402

TIMES = {
    "programs": 16,
    "cuda": 8,
    "cache": 5,
    "functions": 64,
    "schedules": 6,
    "fusion": 12,
    "quantize": 8,
    "jax": 12,
}
PLANTED = """
import sys
sys.argv = ["tests.fuzz", "--attack", "text", "--inside", sys.argv[1], "--times", "50"]
sys.path[:0] = [{root!r}, {root!r} + "/tests/support"]
from cvm.parser import decode
from cvm.dialect.ir import verify
real = verify.check
def check(module):
    if any(len(f.operations) == 2 for f in module.functions.values()):
        raise {error}
    return real(module)
verify.check = check
from tests.fuzz.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "onnx" else n for n in ATTACKS]
)
def test_an_attack_finds_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not ATTACKS[name].corpus():
        pytest.skip("a package is not installed")
    if name == "cuda" and pytest.importorskip("cvm.jit.cuda.nvrtc").missing():
        pytest.skip("needs nvidia-cuda-nvrtc")
    command = [
        sys.executable,
        "-m",
        "tests.fuzz",
        "--attack",
        name,
        "--times",
        str(TIMES.get(name, 60)),
        "--seconds",
        "200",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and "nothing found" in done.stdout, done.stdout + done.stderr
    assert f"{name}: {TIMES.get(name, 60)} inputs" in done.stdout


@pytest.mark.parametrize("error", ["KeyError(1)", "SystemExit(os.kill(os.getpid(), 11))"])
def test_a_planted_fault_is_found(error: str, tmp_path: Path) -> None:
    program = PLANTED.format(root=str(ROOT), error=error).replace(
        "import sys\n", "import os, sys\n", 1
    )
    (tmp_path / "input").write_bytes(bytes(8))
    known = {**os.environ, "CVM_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", program, str(tmp_path / "input")]
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, timeout=280)
    assert done.returncode != 0
    assert len((tmp_path / "input").read_bytes()) > 8


def test_mutations_are_repeatable_and_change_something() -> None:
    data = b"func @main(%x: tensor<4xi32>) { return %x }"
    for mutate in (mutate_bytes, mutate_text):
        found = [mutate(data, random.Random(n)) for n in range(200)]
        assert found == [mutate(data, random.Random(n)) for n in range(200)]
        assert sum(f != data for f in found) > 150 and len(set(found)) > 100


@pytest.mark.parametrize(("name", "taken"), [("tflite", 0.2), ("tosa", 0.1), ("onnx", 0.1)])
def test_mutants_of_models_are_other_models(name: str, taken: float) -> None:
    """Their structure is right so often that many are imported, and nearly all differ."""
    if not (corpus := ATTACKS[name].corpus()):
        pytest.skip("a package is not installed")
    read = {"tflite": cvm.from_tflite, "tosa": cvm.from_tosa, "onnx": cvm.from_onnx}[name]
    drawn = [random.Random(n) for n in range(120)]
    found = [ATTACKS[name].mutate(chance.choice(corpus), chance) for chance in drawn]
    assert found[0] == ATTACKS[name].mutate((again := random.Random(0)).choice(corpus), again)
    imported = 0
    for model in found:
        with suppress(cvm.Error):
            read(model)
            imported += 1
    assert imported > taken * len(found) and len(set(found) - set(corpus)) > 0.8 * len(found)


@pytest.mark.parametrize(("format", "name"), [(TFLITE, "tflite"), (TOSA, "tosa")])
def test_flatbuffers_are_written_as_they_were_read(format: Format, name: str) -> None:
    for data in ATTACKS[name].corpus()[:40]:
        row = format.read(data)
        assert str(format.read(format.write(row))) == str(row) != "{}"


def test_most_files_of_arrays_are_wrong_in_a_few_fields() -> None:
    """Many are read, so that what is wrong is found late."""
    read: Counter[str] = Counter()
    for n in range(200):
        for name in ("npy", "npz", "safetensors"):
            with suppress(Exception):
                archive = constant_files.FORMATS[f".{name}"](
                    io.BytesIO(ATTACKS[name].mutate(b"", random.Random(n))), ""
                )
                for key in archive[0]:
                    read[name] += (
                        archive[1](key, TensorType((3,), ELEMENT_TYPES["i32"])) is not None
                    )
    assert all(10 < read[name] < 500 for name in ("npy", "npz", "safetensors"))


def test_programs_of_other_numbers_are_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all differ, have several operations, and some chain them, have unknown sizes or
    derivatives.
    """
    found: list[differential.Case] = []
    monkeypatch.setattr(differential, "same", lambda cases, *_: found.extend(cases))
    monkeypatch.setattr(differential, "clocked", lambda *_: None)
    differential.compare(range(60), "cpu")
    texts, numbers = {str(c.module) for c in found}, {c.number for c in found}
    operations = [
        o for f in {f for c in found for f in c.module.functions.values()} for o in f.operations
    ]
    assert len(texts) > len(numbers) > 45 and len(operations) > 4 * len(numbers)
    assert len({o.operator.name for o in operations}) > 60
    assert any("func @back" in t for t in texts) and any("<?x" in t for t in texts)
    chained = [
        o for o in operations if any(v.name.startswith("v") for _, v in o.operator.operands())
    ]
    assert len(chained) > len(operations) // 8


@pytest.mark.parametrize("element", ["bf16", "f16", "f64", "complex<f32>"])
def test_nan_is_no_difference(element: str) -> None:
    """A campaign reported one of bf16, of which NumPy does not know that it is one."""
    nan = cvm.compile(f"func @main() {{ %t = const dense<nan> : tensor<2x{element}> return %t }}")()
    number = np.zeros(2, nan.dtype)
    assert differential.identical(nan, nan.copy()) and not differential.identical(nan, number)
    assert_same([nan], [nan.copy()], "")
    with pytest.raises(AssertionError):
        assert_same([nan], [number], "")
    with pytest.raises(AssertionError):
        assert_same([number], [np.zeros(2, np.int32)], "")


def test_hours_are_shared_by_the_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float, int]] = []
    corpora = {"one": [b""], "two": [b""], "of a package that is not there": []}
    attacks = {n: replace(ATTACKS["text"], corpus=lambda c=c: c) for n, c in corpora.items()}
    monkeypatch.setattr("tests.fuzz.attacks.ATTACKS", attacks)
    monkeypatch.setattr(
        command, "attack", lambda name, seconds, _, job: asked.append((name, seconds, job)) or 0
    )
    monkeypatch.setattr("sys.argv", ["tests.fuzz", "--hours", "4", "--jobs", "2"])
    assert command.main() == 0
    assert sorted(asked) == [(n, 2 * 3600, job) for n in ("one", "two") for job in (0, 1)]


def test_mutants_change_one_token() -> None:
    found = mutants(3, seed=7)
    assert found == mutants(3, seed=7) != mutants(3, seed=8)
    for mutant in found:
        lines = (ROOT / mutant.path).read_text("utf-8").splitlines(), mutant.text.splitlines()
        changed = [n for n, (a, b) in enumerate(zip(*lines, strict=True), 1) if a != b]
        assert changed == [mutant.line] and mutant.old != mutant.new
        assert lines[1][mutant.line - 1].count(mutant.new) > lines[0][mutant.line - 1].count(
            mutant.new
        )


@pytest.mark.slow
def test_a_mutant_is_noticed_by_a_failing_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import it\ndef test_it(): assert it.one == 1\n", "utf-8")
    for value, said in (("1", ""), ("2", "FAILED test_it.py::test_it"), ("[", "ERROR test_it.py")):
        (tmp_path / "it.py").write_text(f"one = {value}\n", "utf-8")
        found = run(tmp_path, ["test_it.py"], 100)
        assert found.startswith(said) and bool(found) == bool(said)
    (tmp_path / "it.py").write_text("while True: pass\n", "utf-8")
    assert run(tmp_path, [], 3) == "no end within 3 s"
