"""The target of docs/targets.md can be registered as it stands, and gives what the reference
gives.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cvm.jit.targets import TARGETS, all_stages, register

import cvm
from cvm import cli

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
IN_C = (
    """func @main(%x: tensor<4x5xf32>, %w: tensor<3x5xf32>, %b: tensor<3xf32>) {
  %y = cvm.dense %x, %w, %b
  %z = dali.tanh %y
  return %z
}
""",
    """func @main(%a: tensor<2x3xi32>, %b: tensor<2x3xi32>) {
  %q = dali.floordiv %a, %b
  %s = cvm.sum %q {axes = [0]}
  return %s
}
""",
    """func @main(%x: tensor<1x2x7x6xi32>, %w: tensor<3x2x3x3xi32>) {
  %y = cvm.conv2d %x, %w {padding = [1, 1]}
  %r = cvm.relu %y
  %p = cvm.max_pool2d %r {pool_size = [2, 2], strides = [2, 2]}
  %c = cvm.cvm_right_shift %p {precision = 8, shift_bit = 2}
  return %c
}
""",
)
GRAPH = """graph @g {
  %n = cog.field "n" init dense<1.0> : !cog.field<[], f32>
  %m = cog.add %n, %n
  cog.feedback %n, %m
}
"""
NOT_IN_C = (
    (
        "func @main(%x: tensor<?xi32>) {\n  %y = cvm.abs %x\n  return %y\n}\n",
        "all sizes have to be known",
    ),
    (
        "func @main(%x: tensor<3xf64>) {\n  %y = dali.log %x\n  return %y\n}\n",
        "log_factor is not supported",
    ),
    ("func @main(%x: tensor<3xf16>) {\n  return %x\n}\n", "f16 is not supported"),
)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_target_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    exec(compile(block, "docs/targets.md", "exec"), {"__name__": "c_target"})
    try:
        for program in IN_C:
            reference, f = (cvm.compile(program, target=target) for target in ("reference", "c"))
            shapes = [
                (a.known_type.array_shape, a.known_type.element.dtype) for a in f.function.arguments
            ]
            given = [
                (np.arange(-9, np.prod(s) - 9) * 3 / 2).astype(t).reshape(s) for s, t in shapes
            ]
            np.testing.assert_array_equal(f(*given), reference(*given), strict=True)
            assert f.lower("c").startswith("#include") and f.plan.kernels
        with pytest.raises(cvm.CallError) as error:
            cvm.compile(IN_C[1], target="c")(np.ones((2, 3), np.int32), np.zeros((2, 3), np.int32))
        assert error.value.diagnostics[0].span.line == 2
        for program, message in NOT_IN_C:
            with pytest.raises(cvm.TargetError, match=message):
                cvm.compile(program, target="c")
        graph = cvm.compile(GRAPH, "g", "c")
        assert graph.step(3) == 3 and graph.read("n") == 8
        (tmp_path / "p.cvm").write_text(IN_C[0], "utf-8")
        assert (
            cli.main(["run", str(tmp_path / "p.cvm"), "--target", "c", "--random-inputs", "1"]) == 0
        )
        assert cli.main(["lower", str(tmp_path / "p.cvm"), "--to", "c"]) == 0
        assert "int run(void **arrays, char *workspace) {" in capsys.readouterr().out
        with pytest.raises(cvm.TargetError, match="target 'c' is registered already"):
            register(TARGETS["c"])
        with pytest.raises(cvm.TargetError, match="another target has the stage 'llvm'"):
            register(replace(TARGETS["cpu"], name="cpu2"))
    finally:
        TARGETS.pop("c", None)
    assert "c" not in all_stages()
