"""Every pass has a filetest. The files themselves are collected by the plugin; `--cvm-bless` writes
their golden lines.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cvm.lowering.pipeline import PIPELINES

from cvm.terminal.run_pipeline import all_passes
from cvm.testing.filetest import Filetest

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", [*all_passes(), *PIPELINES])
def test_every_pass_has_a_golden(name: str) -> None:
    """A pass of `cvm opt --list` has a filetest of its name in passes/, whose golden lines show the
    rewrite.
    """
    path = FOLDER / "passes" / f"{name}.cvm"
    assert path.exists(), (
        f"{path} is missing: a small input and `// test {name}`; --cvm-bless writes the rest"
    )
    commands = Filetest.load(path).commands
    words = [[w for w in c.split() if "=" not in w] for c in commands]
    last = {w[-1].split(",")[-1] for w in words}
    assert name in last, f"{path} has no line `// test {name}`"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.cvm")), ids=lambda p: p.stem)
def test_every_file_has_a_test(path: Path) -> None:
    assert Filetest.load(path).commands
