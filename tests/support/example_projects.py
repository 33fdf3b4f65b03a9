"""Commands in the folders of example projects, and an environment that has the wheel and nothing of
the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def said(
    command: Sequence[str], folder: Path, status: int, path: Path | None = ROOT, **more: str
) -> str:
    """The output of a command, which has this exit status."""
    known = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONPATH", "PYTEST_ADDOPTS", "CVM_BLESS")
    }
    env = {**known, **({"PYTHONPATH": str(path)} if path else {}), **more}
    done = subprocess.run(
        [*command], cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    source, venv = folder / "source", folder / "venv"
    ignored = shutil.ignore_patterns(".git", "build", ".venv", "__pycache__", "tests", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=ignored)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, source, "pytest", "pytest-xdist", "setuptools>=77"], check=True)
    return venv
