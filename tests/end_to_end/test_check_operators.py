"""`cvm ops DIALECT --check`: one message for each planted mistake, with a small input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "tests" / "support" / "planted_operators.py"
FORMULA = r"its formula \(\S+\) "
ILLEGAL = r".*: planted.\w+: `element` is not legal: kernel @planted.\w+: "
SOURCE = r"\n.*\n.*"  # the line and its caret
SIMPLIFIED = r"its `simplified` \(\S+\) changes the result at \[\d\] from "
ZEROS = r"\[(-?0\.0, )*-?0\.0(, -?0\.0)*\]"
MESSAGES = {
    "square": r"its `pullback` \(\S+:\d+\) gives 1 as the derivative by %x\[\d\] of the sum of its "
    r"results, finite differences 2; the arguments are \[(0\.0, )*1\.0(, 0\.0)*\]",
    "forward": r"its `pushforward` \(\S+\) gives -3 as the derivative by %x\[0\] of the sum of its "
    rf"results, finite differences 3; the arguments are {ZEROS}",
    "halve": SIMPLIFIED + r"0.25 to 1.0; the arguments are \[[01., ]*\], of the program\n"
    r"  func @main.*\n    %y = planted.halve %x\n    %y_1 = planted.halve %y\n    return %y_1\n  }",
    "add_zero": SIMPLIFIED + rf"0.0 to -0.0; the arguments are {ZEROS}, of the program\n"
    r"  func @main.*\n    %y = planted.add_zero %x\n    return %y\n  }",
    "negate": r"pattern positive of planted_operators \(\S+:\d+\) changes the result at \[0\] from "
    rf"-0.0 to 0.0; the arguments are {ZEROS}, of the program\n"
    r"  func @main.*\n    %y = planted.negate %x\n    return %y\n  }",
    "shift": ILLEGAL + r"an index of %x may be beyond 5, in `%y\[%i\] = %x\[%i \+ 1\]`" + SOURCE,
    "far": ILLEGAL + r"an index of %x may be beyond 5, in .*" + SOURCE,
    "take": FORMULA + r"fails on cpu: .*index i64\(%z\[%i\]\) of %x is outside of axis 0, "
    rf"whose size is 5 .*; the arguments are {ZEROS}, \[(0, )*5(, 0)*\]",
    "divide": r"its formula \(\S+\), on cpu, and its reference \(\S+\) differ: at \[\d\] 1 and 0; the "
    r"arguments are \[[01, ]*\], \[0, 0, 0, 0, 0\]",
    "wide_formula": ILLEGAL + r"%y is f32, the value f64, in .*" + SOURCE,
    "wide_reference": r".*error\[operator\]: `reference` gives float64\[5\], and `infer` "
    r"float32\[5\]\n.*\n.*",
    "failing": r".*planted_operators.py:\d+:\d+: error\[operator\]: planted.failing: `pullback` "
    r"fails: IndexError: .*\n.*\n.*",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="operators are checked in child processes")
def test_each_planted_mistake_has_one_message() -> None:
    known = {"PYTHONPATH": f"{ROOT}:{PLANTED.parent}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "cvm", "ops", "planted", "--check", "--load", PLANTED.stem]
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=300)
    said = done.stdout
    assert done.returncode == 1 and not done.stderr, said + done.stderr
    *messages, last = re.split(r"^(?=planted\.|\d+ operators)", said, flags=re.M)[1:]
    assert re.fullmatch(
        rf"{len(MESSAGES) + 1} operators compared on .*, {len(MESSAGES)} wrong\n", last
    )
    found = dict(m.removeprefix("planted.").rstrip("\n").split(": ", 1) for m in messages)
    assert found.keys() == MESSAGES.keys() and len(messages) == len(MESSAGES)
    for name, message in found.items():
        assert re.fullmatch(MESSAGES[name], message), message


REWRITTEN = '''
from pathlib import Path
from cvm.extending import *

@operator
class Double(Operator[T]):
    """Y = X + X."""
    x: T
    dialect, name = "texts", "texts.double"
    example = """
        func @main(%x: tensor<3xi32>) -> tensor<3xi32> {
          %y = texts.double %x
          return %y
        }
    """
    def infer(self): return self.x
    def reference(self): return self.x + self.x
    def element(self, y):
        (i,) = indices("i", y.shape)
        return Element((i,), self.x[i] + self.x[i])

register_rewrites(Path(__file__).with_name("texts.cvm"))
'''


@pytest.mark.skipif(not hasattr(os, "fork"), reason="operators are checked in child processes")
def test_rewrites_as_text_are_checked(tmp_path: Path) -> None:
    """On their own programs, whose other operators no example of the dialect has."""
    (tmp_path / "texts.py").write_text(REWRITTEN)
    (tmp_path / "texts.cvm").write_text(
        "rewrite @positive(%x: tensor<?N x i32>) {\n  %a = cvm.relu %x\n  %y = texts.double %a\n"
        "  return %y\n} => {\n  %y = texts.double %x\n  return %y\n}\n"
    )
    known = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "cvm", "ops", "texts", "--check", "--load", "texts"]
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    said = r"texts\.double: rewrite @positive \(\S+texts\.cvm:1\) changes the result at \[\d\] "
    assert re.match(said, done.stdout), done.stdout
    assert "%a = cvm.relu %x\n    %y = texts.double %a" in done.stdout, done.stdout + done.stderr
