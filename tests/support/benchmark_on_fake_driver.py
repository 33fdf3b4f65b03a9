"""Runs the benchmark of GPUs, small, over the stand-in driver: what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parents[1] / part) for part in (".", "benchmarks"))]
os.environ["CVM_CUDA_CODE"] = "ptx"

import gpu  # noqa: E402

import cvm  # noqa: E402

gpu.SIDE, gpu.TICKS, gpu.IMAGES, gpu.CALLS, gpu.CHECKED = 64, 33, 20, 2, 1 << 12
MEGABYTES = 1 / 16


def compiled_before() -> None:
    """By another process: NVRTC looks for the driver, and does not survive finding the stand-in."""
    for work in gpu.WORK.values():
        for n in (int(MEGABYTES * (1 << 18)), gpu.CHECKED):
            cvm.compile(work.program(n), target="reference").lower("ptx")
    cvm.compile(gpu.centred(), target="reference").lower("ptx")
    cvm.compile(gpu.EXAMPLES / "digits" / "digits.cvm", target="reference").lower("ptx")
    text = (
        (gpu.EXAMPLES / "gray_scott" / "gray_scott.cvm")
        .read_text("utf-8")
        .replace("512", str(gpu.SIDE))
    )
    cvm.compile(text, entry="gray_scott", target="cuda-sim").step(1)  # type: ignore[union-attr]


if __name__ == "__main__":
    if sys.argv[1:] == ["before"]:
        compiled_before()
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CVM_CACHE_DIR"] = folder
        subprocess.run([sys.executable, __file__, "before"], check=True)
        import fake_cuda_driver as stand_in

        driver = stand_in.load()  # to be kept
        status = gpu.main(["--megabytes", str(MEGABYTES), "--rounds", "1"])
        print(f"{len(driver.launched)} launches", flush=True)
    os._exit(status)
