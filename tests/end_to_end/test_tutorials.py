"""The tutorials: each file, command and Python session runs, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from cvm.jit.cuda import nvrtc
from pages import run_page

TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorial").glob("*.md"))


QUICK = ("gpu",)
PAGES = [
    pytest.param(p, id=p.stem, marks=[] if p.stem in QUICK else [pytest.mark.slow])
    for p in TUTORIALS
]


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_shows_what_happens(page: Path, tmp_path: Path) -> None:
    if page.stem == "onnx_model":
        pytest.importorskip("onnx")
    if page.stem == "gpu" and nvrtc.missing():
        pytest.skip("needs nvidia-cuda-nvrtc")
    _, wrong = run_page(page.read_text("utf-8"), tmp_path)
    assert not wrong, f"python tests/support/pages.py {page} brings it up to date:\n" + "\n".join(
        wrong
    )
