"""Contenders for the same work: that their results agree, and their times, taken in turn, A B C B A
C ..., so that a machine that is slow for a while is slow for all of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from groups import is_ours

Contender = Callable[[], Any]
Times = dict[int, float]  # by round

SHORT = 1e-3  # seconds of a call that is made a few times before it is timed
WARM = 4  # times: what others have left in the caches is gone then
# seconds after JAX's turn: its threads go on for 18 ms, and keep others from the processor
REST = 0.025
LEAST, MOST = 5, 10_000  # rounds
FAR, SELDOM = 1.5, 8  # times as long, and one round of so many


@dataclass
class Case:
    """One piece of work. Contenders give their result, or leave it in `out`; those whose names
    begin with `cvm` are ours, and the first of them is what the others are compared with.

    `moved` bytes have to be read and written in all, `shares` of them of either, or `operations`
    done of a kind of limit; what bounds the work is measured by the side. `tolerance` is relative
    to the largest element, for floats, which are rounded in different places, but for contenders
    whose `bounds` are known, relative to each element; integers have to be equal but for contenders
    in `inexact`, of which is said how far off they are.
    """

    contenders: dict[str, Contender]
    moved: int = 0
    out: np.ndarray | None = None
    shares: tuple[int, int] = (1, 1)
    operations: float = 0
    kind: str = ""
    tolerance: float = 1e-5
    bounds: Mapping[str, float] = field(default_factory=dict)
    inexact: Mapping[str, str] = field(default_factory=dict)
    results: dict[str, Contender] = field(
        default_factory=dict
    )  # where comparing takes other calls than timing
    units: Mapping[str, float] = field(
        default_factory=dict
    )  # pieces of work in a call, where contenders differ
    before: dict[str, Callable[[], Any]] = field(
        default_factory=dict
    )  # what goes before a call and is not timed
    strategies: str = ""  # that our contractions and reductions are computed by


def strategies(f: Any) -> str:
    """The strategies that a compiled function takes, and how often each."""
    taken = Counter(re.findall(r"^  taken +(\w+)", f.lower("strategies"), re.MULTILINE))
    return ", ".join(
        f"{name} {count}" if count > 1 else name for name, count in taken.most_common()
    )


def installed(name: str) -> Any:
    """The module, or None where it is not installed."""
    try:
        return (
            importlib.import_module(name)
            if importlib.util.find_spec(name.partition(".")[0]) is not None
            else None
        )
    except ImportError:
        return None


def agreement(case: Case) -> dict[str, str]:
    """The agreement of each contender's result with ours: `exact`, or the largest difference.
    Raises AssertionError beyond the tolerance.
    """
    found: dict[str, str] = {}
    wanted: list[np.ndarray] | None = None
    for name, run in (case.results or case.contenders).items():
        got = _result(case, name, run)
        if wanted is None:
            wanted = got
            continue
        found[name] = _compared(case, name, got, wanted)
    return found


def _result(case: Case, name: str, run: Contender) -> list[np.ndarray]:
    if case.out is not None:
        case.out.fill(0)
    case.before.get(name, lambda: None)()
    got = run()
    if got is None:
        assert case.out is not None, f"{name} gives nothing"
        got = case.out
    return [np.array(a) for a in (got if isinstance(got, (tuple, list)) else (got,))]


def _compared(case: Case, name: str, got: list[np.ndarray], wanted: list[np.ndarray]) -> str:
    assert len(got) == len(wanted), f"{name} gives {len(got)} results"
    worst, exact = 0.0, True
    for a, b in zip(got, wanted, strict=True):
        assert a.size == b.size, f"{name} gives {a.shape}, not {b.shape}"
        a, b = a.reshape(b.shape), b
        if np.array_equal(a, b, equal_nan=b.dtype.kind == "f"):
            continue
        exact = False
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
        largest = np.abs(b.astype(np.float64)).max(initial=1e-300)
        if b.dtype.kind == "f" or a.dtype.kind == "f":
            allowed = (
                case.bounds[name] * np.abs(b) if name in case.bounds else case.tolerance * largest
            )
            assert (difference <= allowed).all(), (
                f"{name} is off by {difference.max() / largest:.3g}"
            )
            worst = max(worst, difference.max() / largest)
        else:
            assert name in case.inexact, f"{name} is off by {difference.max():.3g} of {largest:.3g}"
            share = float((difference > 0).mean())
            return (
                f"{case.inexact[name]}: {share:.1%} differ, by up to {difference.max():.0f} of "
                f"{largest:.0f}"
            )
    return "exact" if exact else f"within {worst:.1g}"


def timed(case: Case, beside: Mapping[str, Contender], seconds: float) -> dict[str, Times]:
    """The milliseconds of each contender, and of what is measured beside, in the rounds it took
    part in. Calls too short for the clock are made several at once; what fits the caches is brought
    there first, whoever had the turn before. Peers that are far from the best of them, and from us,
    sit out most rounds, so that there are more rounds for those that are near.
    """
    calls: dict[str, int] = {}
    short: set[str] = set()
    everyone = {**case.contenders, **beside}
    for name, run in everyone.items():
        case.before.get(name, lambda: None)()
        run()
        began = time.perf_counter()
        run()
        spent = time.perf_counter() - began
        if spent < SHORT and name not in case.before:
            short.add(name)
        calls[name] = 1 if spent > 1e-4 else min(2000, int(2e-4 / max(spent, 1e-7)) + 1)
    ours = next(iter(case.contenders))
    short = (
        short | set(beside) if ours in short else short - set(beside)
    )  # a limit of what is cold is cold
    times: dict[str, Times] = {name: {} for name in everyone}
    began, rounds = time.perf_counter(), 0
    turns, order = list(everyone.items()), random.Random(0)
    distant: set[str] = set()
    while ((spent := time.perf_counter() - began) < seconds or rounds < LEAST) and rounds < MOST:
        order.shuffle(turns)  # what one leaves in the caches is not always found by the same other
        for name, run in turns:
            if name in distant and rounds % SELDOM:
                continue
            case.before.get(name, lambda: None)()
            n = calls[name]
            for _ in range(WARM if name in short else 0):
                run()
            start = time.perf_counter()
            for _ in range(n):
                run()
            times[name][rounds] = (time.perf_counter() - start) * 1e3 / n / case.units.get(name, 1)
            if name.startswith("jax"):
                time.sleep(REST)
        rounds += 1
        if rounds >= LEAST:
            distant = far({name: min(times[name].values()) for name in case.contenders})
        if sys.stderr.isatty():
            print(f"\r{min(1.0, spent / seconds):4.0%}", end="\r", file=sys.stderr)
    return times


def far(least: dict[str, float]) -> set[str]:
    """The peers that took more than FAR times as long as the best of them, and of us."""
    peers = {name: ms for name, ms in least.items() if not is_ours(name)}
    enough = FAR * max(least["cvm"], min(peers.values(), default=0.0))
    return {name for name, ms in peers.items() if ms > enough}


def ratio(theirs: Times, ours: Times) -> list[float]:
    """The quartiles of their time over ours, both of the same round, so that what was slow for a
    while was so for both.
    """
    return statistics.quantiles((ms / ours[n] for n, ms in theirs.items()), method="inclusive")
