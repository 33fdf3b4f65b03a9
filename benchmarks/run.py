"""Measures groups of benchmarks beside the peers that are installed, and writes docs/performance.md
from all results there are.

    python benchmarks/run.py [GROUP ...] [--quick] [--report]

Each group runs in a process of its own, on one processor unless it is about threads, for a minute
at most. Its results are kept in benchmarks/results, so that groups can be measured again one by
one. `products` is all groups of contractions. `--report` only writes the document.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from cvm.jit.host_processor import host_processor
from groups import GROUPS, SETS
from report import write

HERE = Path(__file__).parent
ONE = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def measure(group: str, seconds: float) -> int:
    """Starts the group's process; its exit status."""
    threads = GROUPS[group].threads
    environment = {**os.environ, **dict.fromkeys(ONE, str(threads)), "TF_CPP_MIN_LOG_LEVEL": "3"}
    if (
        host_processor().fma_bytes == 64
    ):  # OpenBLAS has no kernels of that width for processors newer than itself
        environment.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
    before = None
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        last = max(os.sched_getaffinity(0))
        before = lambda: os.sched_setaffinity(0, {last})  # noqa: E731
    command = [
        sys.executable,
        str(HERE / "measure.py"),
        group,
        "--threads",
        str(threads),
        "--seconds",
        str(seconds),
    ]
    return subprocess.run(command, env=environment, preexec_fn=before).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all of them without"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few calls of each, to see that all of it works"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="for a group, about (default: %(default)s)"
    )
    options = parser.parse_args()
    options.groups = [g for name in options.groups for g in SETS.get(name, (name,))]
    if unknown := [g for g in options.groups if g not in GROUPS]:
        parser.error(f"there is no group {unknown[0]}; the groups are {', '.join(GROUPS)}")
    failed = []
    for group in () if options.report else options.groups or GROUPS:
        print(group, flush=True)
        if measure(group, 5 if options.quick else options.seconds):
            failed.append(group)
    write()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
