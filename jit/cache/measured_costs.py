"""Costs of this machine that `cvm doctor --measure` found, kept in the disk cache.

They change which of several ways to equal results is taken in this process, and nothing else:
builds, named processors and golden tests go by the tables of `lowering/processor.py`.
"""

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from ...lowering.processor import Processor
from ..host_processor import host_name, host_processor
from . import disk_cache


@dataclass(frozen=True)
class Costs:
    """Values for the fields of `Processor` of the same names, and factors of the costs of
    strategies for contractions.
    """

    fma_bytes: int
    wake_operations: int
    strategies: dict[str, float]

    def of(self, described: Processor) -> Processor:
        """The processor with these costs."""
        tuning = replace(described.tuning, strategy_costs=tuple(self.strategies.items()))
        return replace(
            described,
            fma_bytes=self.fma_bytes,
            wake_operations=self.wake_operations,
            tuning=tuning,
        )


def _entry() -> str:
    return disk_cache.key("costs 1", host_name(), repr(host_processor()))


def keep(costs: Costs) -> None:
    """Keep measured costs for later processes of this machine, and this one."""
    disk_cache.store(_entry(), json.dumps(asdict(costs)).encode())
    _kept.cache_clear()


def kept() -> Costs | None:
    """The costs that were measured on this machine; None where none were."""
    return _kept(disk_cache.folder())


@lru_cache(maxsize=4)
def _kept(folder: Path | None) -> Costs | None:
    stored = None if folder is None else disk_cache.load(_entry())
    return None if stored is None else Costs(**json.loads(stored))


def measured_host() -> Processor:
    """Describe the machine, with the costs that were measured on it."""
    return host_processor() if (costs := kept()) is None else costs.of(host_processor())
