"""`cvm reduce` finds planted bugs: the operation, the size, the value or the statement that a
command fails on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import cvm
from cvm import cli
from cvm.terminal.read_program import read_level

PROGRAM = """// a network
func @main(%x: tensor<8x16xi32>, %w: tensor<32x16xi32>) -> (tensor<8x32xi32>, tensor<8x16xi32>) {
  %k = const dense<[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]> : tensor<16xi32>
  %a = cvm.broadcast_add %x, %k
  %h = cvm.dense %a, %w
  %c = cvm.clip %h {a_min = -50, a_max = 77}
  %y = cvm.relu %c
  %n = cvm.negative %x
  return %y, %n
}
func @other(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = cvm.relu %x
  return %y
}
"""
KERNELS = """kernel @a(%x: tensor<64xi32>) -> (%y: tensor<64xi32>) {
  for %i in 0..64 {
    %y[%i] = %x[%i]
  }
}
kernel @b(%x: tensor<64xi32>) -> (%z: tensor<64xi32>) {
  for %i in 0..64 {
    let %t: i32 = %x[%i] * 3
    if %t > 5 {
      %z[%i] = %t // 7
    }
  }
}
"""


def reduced(
    tmp_path: Path, program: str, fails: str, capsys: pytest.CaptureFixture[str], status: int = 0
) -> str:
    """The program shrunk while a text satisfies a condition, by a command that is a Python
    program.
    """
    (tmp_path / "p.cvm").write_text(program)
    (tmp_path / "test.py").write_text(
        f"import sys, re\nt = open(sys.argv[1]).read()\nsys.exit(3 if {fails} else 0)\n"
    )
    command = [
        "reduce",
        str(tmp_path / "p.cvm"),
        "--test",
        f"{sys.executable} {tmp_path / 'test.py'}",
    ]
    assert cli.main([*command, "-o", str(tmp_path / "small.cvm")]) == status
    assert not list(tmp_path.glob(".reduce-*"))
    return (tmp_path / "small.cvm").read_text() if status == 0 else capsys.readouterr().err


def test_an_operation_with_its_attribute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = reduced(tmp_path, PROGRAM, "re.search('cvm.clip.*77', t)", capsys)
    (function,) = cvm.parse(text).functions.values()
    assert len(function.operations) == 1 and len(text.splitlines()) == 4
    assert "tensor<1x1xi32>" in text and "a_max = 77" in text and "a_min = -50" not in text


def test_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = reduced(
        tmp_path,
        PROGRAM,
        "'cvm.dense' in t and max(map(int, re.findall(r'(\\d+)x', t))) > 12",
        capsys,
    )
    assert "cvm.relu" not in text and "13x" in text and "32x" not in text


def test_a_constant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = reduced(tmp_path, PROGRAM, "'dense<' in t", capsys)
    assert len(text.splitlines()) == 4 and "dense<0>" in text


def test_a_statement_of_a_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = reduced(tmp_path, KERNELS, "'//' in t", capsys)
    read_level("small", text.encode())
    assert "@a" not in text and "if " not in text and "tensor<1xi32>" in text


def test_a_command_that_does_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--test does not fail on" in reduced(tmp_path, PROGRAM, "'cvm.conv2d' in t", capsys, 2)
