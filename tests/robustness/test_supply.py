"""The package as it is delivered: the same wheel from the same sources, its bill of materials, and
the oldest libraries it may meet.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from example_projects import ROOT, said

DEPENDENCIES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "dependencies"
]
IGNORED = shutil.ignore_patterns(".git", "build", ".venv", "__pycache__", ".*_cache", "*.egg-info")
OLDEST = [
    "tests/filetests/cvm",
    "tests/filetests/passes",
    "tests/unit/parser",
    "tests/unit/jit/test_calls.py",
]


def lowest(requirement: str) -> str:
    """The oldest version of a library that its bound allows."""
    found = re.fullmatch(r"([\w.-]+)>=([\d.]+)", requirement)
    assert found is not None, f"{requirement} has no lower bound"
    return f"{found[1]}=={found[2]}"


def test_the_bill_of_materials(tmp_path: Path) -> None:
    bills = [tmp_path / "first.json", tmp_path / "second.json"]
    for path in bills:
        said([sys.executable, str(ROOT / ".ci" / "sbom.py"), str(path)], tmp_path, 0)
    assert bills[0].read_bytes() == bills[1].read_bytes()
    bill = json.loads(bills[0].read_text("utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert {c["properties"][0]["value"] for c in bill["components"]} == set(DEPENDENCIES)
    for part in bill["components"]:
        assert part["purl"] == f"pkg:pypi/{part['name']}@{version(part['name'])}"
        assert part["licenses"][0]["license"]["name"] != "unknown"
    assert bill["dependencies"][0]["dependsOn"] == [c["bom-ref"] for c in bill["components"]]


@pytest.mark.slow
def test_the_same_wheel_from_two_folders(tmp_path: Path) -> None:
    wheels = []
    for name in ("one", "another folder"):
        source, out = tmp_path / name / "source", tmp_path / name / "wheels"
        shutil.copytree(ROOT, source, ignore=IGNORED)
        made = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "-w",
            str(out),
            str(source),
        ]
        said(made, tmp_path, 0, None, SOURCE_DATE_EPOCH="1767225600")
        wheels += out.glob("*.whl")
    first, second = wheels
    assert first.name == second.name and first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_the_oldest_libraries(tmp_path: Path) -> None:
    """The bounds of pyproject.toml hold at their lowest; the newest are those that all other tests
    run with.
    """
    said([sys.executable, "-m", "venv", "old"], tmp_path, 0, None)
    python = str(tmp_path / "old" / "bin" / "python")
    libraries = [*map(lowest, DEPENDENCIES), "pytest", "hypothesis"]
    said(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *libraries],
        tmp_path,
        0,
        None,
    )
    said(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *OLDEST],
        ROOT,
        0,
        None,
        CVM_CACHE_DIR="",
    )
