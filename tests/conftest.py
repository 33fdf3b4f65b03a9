"""The options of the tests, and the markers."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import guard_pages
import hypothesis
import pytest
import tiers
from cvm.lowering.processor import Processor, compiling_for
from tuning import described, tuned

QUICK = 10  # examples of a property test in the quick tier
# no verdict depends on how fast the machine is; other examples: --hypothesis-profile=default
ALIKE = hypothesis.settings(
    derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("repeated", ALIKE)
hypothesis.settings.register_profile("quick", ALIKE, max_examples=QUICK)
pytest_plugins = ["cvm.testing.pytest_plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    help = (
        "run all: every recorded case, more random examples, and the slow tests, such as those "
        "that install packages"
    )
    parser.addoption("--all", action="store_true", help=help)
    parser.addoption(
        "--every-case",
        action="store_true",
        help="with --all, every recorded case on every forced path too",
    )
    help = (
        "leave the sizes of every conformance case open, too, beside pages whose access ends "
        "the process"
    )
    parser.addoption("--guard-pages", action="store_true", help=help)


def pytest_configure(config: pytest.Config) -> None:
    tiers.everything = config.getoption("--all")
    guard_pages.enabled = config.getoption("--guard-pages")
    guard_pages.open_every = 1 if guard_pages.enabled else 2 * tiers.everything
    if not config.getoption("--hypothesis-profile"):
        hypothesis.settings.load_profile("repeated" if tiers.everything else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if tiers.everything:
        return
    sampled: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: needs --all"))
        elif (sample := item.get_closest_marker("sample")) is not None:
            sampled.setdefault((item.nodeid.partition("[")[0], sample.args[0]), []).append(item)
    for (_, count), found in sampled.items():
        for item in random.Random(0).sample(
            found, max(0, len(found) - count)
        ):  # alike in every process
            item.add_marker(pytest.mark.skip(reason="not of the sample: needs --all"))


def pytest_collection_finish() -> None:
    """Leave all that stays until the end out of garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers that are done take tests of those that are not: the longest tests stand together."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.option.cvm_bless)


@pytest.fixture(autouse=True)
def cache_of_its_own(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Give each test a cache of its own, since settings of the compiler that tests change are not
    part of keys.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in request.fixturenames:
            patch.setenv("CVM_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def tune() -> Iterator[Callable[..., None]]:
    """Sets tuning parameters of the processor that the rest of the test compiles for:
    `tune(packed_rows=1)`.
    """
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(tuned(**settings))


@pytest.fixture
def compile_for() -> Iterator[Callable[..., None]]:
    """Describes the processor that the rest of the test compiles for: `compile_for(l3_bytes=2)` has
    hardly any cache.
    """
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            compiling_for(described(Processor(), **settings))
        )
