"""Run attacks: each in a process of its own, so that a crash or a hang is found, too, with the
input that led to it.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
KEPT = ROOT / "build" / "fuzz"
PATIENCE = 60, 600  # seconds for one input, of the processor and of the clock
LARGEST = 4 << 30  # bytes of a process
CHILD = 600  # seconds after which an attack goes on in a new process
SEEDS = 1_000_000  # apart are the seeds of processes at once


def main() -> int:
    options = parsed()
    import cvm

    from .attacks import ATTACKS

    names = options.attack or [n for n, a in ATTACKS.items() if a.corpus()]
    for name in names:
        if not (found := ATTACKS[name]).corpus():
            print(f"{name}: it needs {found.needs or 'the onnx package'}")
            return 2
    if "certificates" in names and not options.inside:
        from certificates import missing

        for package in missing():
            print(f"certificates: without {package}, which is not installed")
    if options.input:
        with suppress(cvm.Error):
            ATTACKS[names[0]].run(Path(options.input).read_bytes())
        return 0
    if options.inside:
        return inside(names[0], options)
    share = (options.hours * 3600 if options.hours else options.seconds * len(names)) / len(names)
    with ThreadPoolExecutor(options.jobs) as pool:
        return max(
            [
                max(pool.map(partial(attack, name, share, options), range(options.jobs)))
                for name in names
            ],
            default=0,
        )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--attack", action="append", help="which (default: all), may be repeated")
    parser.add_argument(
        "--seconds", type=float, default=60, help="for each attack (default: %(default)s)"
    )
    parser.add_argument("--hours", type=float, help="for all attacks together")
    parser.add_argument("--times", type=int, default=1 << 60, help="inputs of each attack, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="processes at once, with seeds of their own (default: %(default)s)",
    )
    parser.add_argument("--input", help="run one kept input again")
    parser.add_argument(
        "--coverage", action="store_true", help="let atheris guide the mutations by coverage"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # the file that holds the input at work
    return parser.parse_args()


def attack(name: str, seconds: float, options: argparse.Namespace, job: int = 0) -> int:
    """Runs an attack in processes until its time is over; 1 if something was found."""
    KEPT.mkdir(parents=True, exist_ok=True)
    first, times = options.seed + job * SEEDS, -(-options.times // options.jobs)
    end, done, seed = time.monotonic() + seconds, 0, first
    while (left := end - time.monotonic()) > 0 and done < times:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "input"
            command = [
                sys.executable,
                "-m",
                "tests.fuzz",
                "--attack",
                name,
                "--inside",
                str(work),
                "--seed",
                str(seed),
            ]
            command += ["--seconds", str(min(left, CHILD)), "--times", str(times - done)]
            command += ["--coverage"] * options.coverage
            known = {
                **os.environ,
                "CVM_CACHE_DIR": str(Path(folder) / "cache") if name == "cache" else "",
            }
            work.write_bytes(bytes(8))
            ended = subprocess.run(command, cwd=ROOT, env=known)
            found = work.read_bytes()
            done += int.from_bytes(found[:8], "little")
            if ended.returncode:
                kept = KEPT / f"{name}-{seed}-{done}"
                kept.write_bytes(found[8:])
                print(
                    f"{name}: found after {done} inputs; again by: python -m tests.fuzz "
                    f"--attack {name} --input {kept}"
                )
                return 1
        seed += 1
    print(f"{name}: {done} inputs from seed {first}, nothing found", flush=True)
    return 0


def inside(name: str, options: argparse.Namespace) -> int:
    """Mutates and runs inputs. How many, and the input at work, stand in a file, for the case that
    the process dies.
    """
    import cvm

    from .attacks import ATTACKS

    found = ATTACKS[name]
    faulthandler.enable()
    for hung in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(hung, signal.SIG_DFL)
    chance, corpus, work = (
        random.Random(f"{name} {options.seed}"),
        list(found.corpus()),
        open(options.inside, "wb", 0),  # noqa: SIM115
    )
    end, count = time.monotonic() + options.seconds, 0

    def one(data: bytes) -> None:
        nonlocal count
        count += found.size
        work.seek(0)
        work.truncate()
        work.write(count.to_bytes(8, "little") + data)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE[0])
        signal.alarm(PATIENCE[1])
        try:
            found.run(data)
        except cvm.Error as e:
            assert e.diagnostics and all(d.message for d in e.diagnostics)
            str(e)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 < LARGEST, (
            "an input takes much memory"
        )

    if options.coverage:
        guided(one, found.mutate, corpus, end)
    while time.monotonic() < end and count < options.times:
        one(found.mutate(chance.choice(corpus), chance))
    return 0


def guided(
    one: Callable[[bytes], None],
    mutate: Callable[[bytes, random.Random], bytes],
    corpus: list[bytes],
    end: float,
) -> None:
    """Lets atheris choose the inputs until the time is over."""
    import atheris  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as folder:
        for n, data in enumerate(corpus):
            (Path(folder) / str(n)).write_bytes(data)
        atheris.instrument_all()
        flags = [
            sys.argv[0],
            f"-max_total_time={max(1, int(end - time.monotonic()))}",
            "-verbosity=0",
            folder,
        ]
        atheris.Setup(
            flags,
            one,
            custom_mutator=lambda data, size, seed: mutate(bytes(data), random.Random(seed))[:size],
        )
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
