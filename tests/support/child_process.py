"""Scripts in a Python process of their own, which may crash without taking the tests with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(code: str, *arguments: str, timeout: float = 600, **environment: str) -> str:
    """The output of a script that ends well; an assertion fails where it crashes, raises or
    hangs.
    """
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout.strip()
