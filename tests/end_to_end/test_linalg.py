"""`cvm lower --to linalg`: IREE, a compiler of others, takes it and gives our results: integers to
the bit, floats within bounds.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from conformance_cases import Case, arrays, cases, differs
from cvm.dialect.ir.function import Graph
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.spec.operator import OPERATORS
from outcomes import arguments
from pages import ROOT
from tiers import some

import cvm

compiler = pytest.importorskip("iree.compiler")
runtime = pytest.importorskip("iree.runtime")

REFUSED = ("is not lowered to linalg", "linalg has no complex numbers", "has an effect")
BOUND = {
    np.dtype(np.float16): 4e-3,
    np.dtype(np.float32): 4e-6,
    np.dtype(np.float64): 1e-11,
}  # of the largest value
Run = Callable[[str, list[np.ndarray]], list[np.ndarray]]


def compiled_by_iree(text: str) -> Run:
    """A call of a module's functions by their names, compiled and run by IREE on one thread."""
    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]
    if "arith.remf" in text:  # IREE's own linker has no fmod of f64
        flags.append("--iree-llvmcpu-link-embedded=false")
    code = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=flags)
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))

    def run(name: str, given: list[np.ndarray]) -> list[np.ndarray]:
        found = context.modules.module[name](*given)
        return [f.to_host() for f in (found if isinstance(found, (tuple, list)) else (found,))]

    return run


def joined(texts: Sequence[str]) -> str:
    """Modules of one function each as one."""
    bodies = (text.removeprefix("module {\n").rstrip().removesuffix("}") for text in texts)
    return "module {\n" + "\n".join(bodies) + "}\n"


RECORDED, TOGETHER = 300, 50  # cases of a dialect, and functions of a module
BINDINGS = 32  # the most arrays that IREE binds to one dispatch


@pytest.mark.slow
@pytest.mark.parametrize("part", range(RECORDED // TOGETHER))
@pytest.mark.parametrize("dialect", ["cog", "cvm", "dali", "theano"])
def test_recorded_cases(dialect: str, part: int) -> None:
    """Cases of a dialect in one module, against what was recorded: integers to the bit, floats
    within the larger of two bounds.
    """
    known = [(c, t) for c, t in lowered(dialect)[part * TOGETHER : (part + 1) * TOGETHER]]
    named = [(case, text.replace("@main(", f"@case{n}(")) for n, (case, text) in enumerate(known)]
    run = compiled_by_iree(joined([text for _, text in named]))
    recorded = arrays(dialect)
    wrong = []
    for n, (case, _) in enumerate(named):
        found = run(f"case{n}", [recorded[name] for name in case["inputs"]])
        wanted = [recorded[name] for name in case["outputs"]]
        for got, want in zip(found, wanted, strict=True):
            got = got.view(want.dtype) if got.dtype.itemsize == want.dtype.itemsize else got
            if (message := differs(got, want, within_bound(case, want))) is not None:
                wrong.append(f"{case['id']}: {message}\n{case['program']}")
    assert not wrong, f"{len(wrong)} of {len(named)} cases\n" + "\n".join(wrong)


@cache
def lowered(dialect: str) -> list[tuple[Case, str]]:
    """Recorded calls that are valid, drawn from all of a dialect, and their MLIR."""
    drawn = [c for op, several in cases().items() if op.startswith(f"{dialect}.") for c in several]
    random.Random(0).shuffle(drawn)
    found = []
    for case in drawn:
        alone = case["valid"] and "script" not in case and "after" not in case
        few = len(case["inputs"] + case["outputs"]) <= BINDINGS and len(found) < RECORDED
        if alone and few and (text := formula(case["program"])) is not None:
            found.append((case, text))
    assert len(found) > 0.8 * RECORDED, f"only {len(found)} cases have formulas"
    return found


def within_bound(case: Case, wanted: np.ndarray) -> Case:
    """The case with the larger of its bound and that of floats of another compiler, which sums in
    an order of its own.
    """
    if wanted.dtype.kind in "biu":
        return {**case, "tolerance": "exact"}
    recorded = case["tolerance"]
    if not isinstance(recorded, dict):
        recorded = {"rtol": 0.0 if recorded == "exact" else recorded, "atol": 0.0}
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
    other = {
        "rtol": 1e-5 if wanted.dtype == np.float32 else 1e-11,
        "atol": BOUND[wanted.dtype] * largest,
    }
    return {**case, "tolerance": {name: max(other[name], recorded[name]) for name in other}}


def formula(program: str | cvm.Module, name: str = "main") -> str | None:
    """A function as MLIR; None where it has no formula."""
    try:
        return cvm.compile(program, name, "reference").lower("linalg")
    except cvm.TargetError as e:
        assert any(r in str(e) for r in REFUSED), e
        return None


def assert_agrees(found: Sequence[np.ndarray], wanted: Any) -> None:
    for got, want in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        got = got.view(want.dtype) if got.dtype.itemsize == want.dtype.itemsize else got
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            largest = np.abs(want[np.isfinite(want)]).max(initial=1)
            np.testing.assert_allclose(got, want, rtol=0, atol=BOUND[want.dtype] * largest)


def functions() -> list[str]:
    """The operators whose page has an example that is a function, without those of one clocked
    graph.
    """
    return sorted(
        name for name, op in OPERATORS.items() if op.example and "graph @" not in op.example
    )


EXAMPLES = some(functions(), 24)


@cache
def example(name: str) -> tuple[cvm.Module, str, str] | None:
    """An operator's example, the name of its function and this in MLIR; None where there is no
    formula.
    """
    module = cvm.parse(dedent(OPERATORS[name].example).strip())
    function = "main" if "main" in module.functions else list(module.functions)[-1]
    text = None if isinstance(module.functions[function], Graph) else formula(module, function)
    return None if text is None else (module, function, text)


@cache
def examples_by_iree(part: int) -> Run:
    """The functions of some examples, by the names of the operators."""
    names = EXAMPLES[part * TOGETHER : (part + 1) * TOGETHER]
    known = [(name, found) for name in names if (found := example(name)) is not None]
    return compiled_by_iree(
        joined(
            [text.replace(f"@{function}(", f'@"{name}"(') for name, (_, function, text) in known]
        )
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_operator(name: str) -> None:
    if (known := example(name)) is None:
        pytest.skip("it has no formula, or complex numbers")
    module, function, _ = known
    given = arguments(module.functions[function], np.random.default_rng(0))
    try:
        wanted = cvm.compile(module, function)(*[a.copy() for a in given])
    except cvm.Error:
        pytest.skip("the sizes do not fit each other")
    assert_agrees(examples_by_iree(EXAMPLES.index(name) // TOGETHER)(name, given), wanted)


def test_the_digits_network() -> None:
    network = cvm.load(ROOT / "examples" / "digits" / "digits.cvm")
    x = np.load(ROOT / "examples" / "digits" / "test.npz")["images"][:4].astype(np.int32)
    text = cvm.compile(network).lower("linalg")
    (found,) = compiled_by_iree(text)("main", [x])
    np.testing.assert_array_equal(found, cvm.compile(network)(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1"])
def test_a_network_of_onnx(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(
        Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    )
    rng, shapes = (
        np.random.default_rng(0),
        {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer},
    )
    weights = [
        node for node in model.graph.node if node.op_type == "ConstantOfShape"
    ]  # all are equal there
    for node in weights:
        shape = shapes[node.input[0]]
        drawn = rng.normal(size=shape, scale=np.sqrt(2 / max(1, np.prod(shape[1:])))).astype(
            np.float32
        )
        model.graph.initializer.append(onnx.numpy_helper.from_array(drawn, node.output[0]))
        model.graph.node.remove(node)
    model.ir_version = 8  # from 4 on initializers need not be inputs
    network = cvm.from_onnx(model)
    x, text = rng.normal(size=(1, 3, 224, 224)).astype(np.float32), formula(network)
    assert text is not None
    assert_agrees(compiled_by_iree(text)("main", [x]), cvm.compile(network)(x))


@pytest.mark.parametrize("tool", ["iree-opt", "xdsl-opt"])
def test_tools_read_the_generic_form(tool: str) -> None:
    """Print every operator's example in the generic form, which reads back here, too."""
    path = Path(sys.executable).parent / tool
    if not path.exists():
        pytest.skip(f"needs {tool}")
    modules = [cvm.parse(dedent(op.example).strip()) for op in OPERATORS.values() if op.example]
    texts = [print_module(m, generic=True) for m in modules]
    command = [
        path,
        "--allow-unregistered-dialect",
        "--split-input-file",
        *(["-"] if tool == "iree-opt" else []),
    ]
    done = subprocess.run(command, input="\n// -----\n".join(texts), capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert len(texts) > 150
    for module, text in zip(modules, texts, strict=True):
        assert print_module(cvm.parse(text), generic=True) == text, str(module)


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """Those of docs/mlir.md, after the installation; the last prints what the program gives."""
    (block,) = re.findall(
        r"```sh\n(.*?)```", (ROOT / "docs" / "mlir.md").read_text("utf-8"), re.DOTALL
    )
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for command in block.splitlines()[1:]:
        tool, *rest = shlex.split(command)
        start = (
            [sys.executable, "-m", "cvm"]
            if tool == "cvm"
            else [str(Path(sys.executable).parent / tool)]
        )
        done = subprocess.run(
            [*start, *rest],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert not done.returncode, done.stderr
    x, layer = (
        np.array([[1, 2, 3], [-4, 5, 6]], np.int32),
        cvm.compile(ROOT / "examples" / "layer.cvm"),
    )
    rows = "".join(f"[{' '.join(map(str, row))}]" for row in layer(x))
    assert rows in done.stdout


def test_a_loop_without_a_formula_is_refused_by_name() -> None:
    program = dedent(OPERATORS["cvm.get_valid_count"].example).strip()
    with pytest.raises(
        cvm.TargetError, match="it is computed by loops, and has no formula"
    ) as found:
        cvm.compile(program).lower("linalg")
    assert "cvm.get_valid_count" in str(found.value)
