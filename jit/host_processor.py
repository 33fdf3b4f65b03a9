"""The host's processor as LLVM and the operating system describe it, and the processors that have
names.
"""

import ctypes
import errno
import os
import platform
from collections.abc import Set
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import llvmlite.binding as llvm

from ..dialect.support.diagnostics import TargetError
from ..lowering.processor import (
    AMX,
    LEVELS,
    NAMED,
    Processor,
    named,
    processor,
    with_features,
)

# bytes: a virtual machine may report the caches of all its socket, most of which others use, or
# none
LIMITS = {
    "l1_bytes": (16 << 10, 128 << 10),
    "l2_bytes": (256 << 10, 2 << 20),
    "l3_bytes": (4 << 20, 32 << 20),
}
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS = {"K": 10, "M": 20}  # bits of the sizes that the system tells
NATIVE = "native"
# of Linux on x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
ASK_FOR_TILES = 158, 0x1023, 18
# what programs for this machine do without tiles, in loops, where that is asked for
EMULATED: dict[str, object] = (
    {"matrix_tiles": "loops"} if os.environ.get("CVM_EMULATE_TILES") == "1" else {}
)
PLAINEST = {  # processors, by the architecture of a triple
    "x86_64": "x86-64",
    "aarch64": "cortex-a53",
    "riscv64": "rv64gc",
    "riscv32": "rv32imac",
    "wasm32": "wasm32",
    "thumbv6m": "cortex-m0",
    "thumbv7m": "cortex-m3",
    "thumbv7em": "cortex-m4",
    "thumbv8m.base": "cortex-m23",
    "thumbv8m.main": "cortex-m33",
    "thumbv8.1m.main": "cortex-m55",
}


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """LLVM's names of what this machine's processor has, and the system lets this process use."""
    return frozenset(
        name
        for name, present in llvm.get_host_cpu_features().items()
        if present and not (name.startswith("amx") and tiles_refused())
    )


def features_at_hand() -> Set[str]:
    """LLVM's names of what the processor that is compiled for has."""
    return (
        {*LEVELS[own.cpu], *own.features} if (own := processor()).cpu in LEVELS else host_features()
    )


def host_name() -> str:
    """LLVM's name of this machine's processor."""
    return str(llvm.get_host_cpu_name())


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info))


@lru_cache(maxsize=1)
def host_processor() -> Processor:
    return with_features(
        host_features(), llvm.get_host_cpu_name(), "", (), {**cache_sizes(), **EMULATED}
    )


@lru_cache(maxsize=1)
def tiles_refused() -> str:
    """Ask the system for the use of matrix tiles, once in a process, for all of its threads and all
    that it forks; gives the reason why they are refused, or nothing.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return "no system but Linux is asked for them"
    if not ctypes.CDLL(None, use_errno=True).syscall(*ASK_FOR_TILES):
        return ""
    if (error := ctypes.get_errno()) == errno.ENOSPC:
        return "a thread's stack for signal handlers is too small for their registers"
    return f"the system refuses them: {os.strerror(error).lower()}"


def why_no_tiles() -> str:
    """The reason why programs for this machine use no matrix tiles."""
    has = llvm.get_host_cpu_features()
    return tiles_refused() if all(has.get(name) for name in AMX) else "the processor has no AMX"


def cache_sizes(folder: Path = CACHES) -> dict[str, int]:
    """The sizes of the host's data caches that the system reports, if plausible for one core."""
    sizes: dict[str, int] = {}
    for cache in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (cache / name).read_text().strip() for name in ("level", "type", "size")
            )
            held = int(size[:-1]) << UNITS[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
        name = f"l{level}_bytes"
        if kind != "Instruction" and name in LIMITS:
            low, high = LIMITS[name]
            sizes[name] = min(max(held, low), high)
    return sizes


def resolve(cpu: str | Processor | None, triple: str = "") -> Processor | None:
    """The processor of a name, or as described; None leaves the choice to the target. A triple
    implies the system.
    """
    if triple:
        return _of_triple(triple, resolve(cpu or PLAINEST.get(triple.partition("-")[0], triple)))
    if cpu is None or isinstance(cpu, Processor):
        return cpu
    if cpu == NATIVE:
        processor = host_processor()
    elif isinstance(cpu, str):
        processor = named(cpu)
    else:
        processor = None
    if processor is None:
        raise TargetError(f"unknown cpu {cpu!r}; those known are {NATIVE}, {', '.join(NAMED)}")
    return processor


def _of_triple(triple: str, described: Processor | None) -> Processor:
    assert described is not None
    given, wanted = (t.partition("-")[0] for t in (triple, described.triple or "x86_64"))
    if given != wanted:
        raise TargetError(f"the cpu is one of {wanted}, and the triple {triple!r} of {given}")
    if triple.endswith("hf") and not described.triple.endswith("hf"):
        raise TargetError(
            f"the triple {triple!r} passes floats in registers that {described.cpu} does not have; "
            f"{triple.removesuffix('hf')!r} passes them in others"
        )
    return replace(described, triple=triple)


def check_runs_here(described: Processor | None) -> None:
    """Raises TargetError where this machine lacks what code for the processor uses."""
    if described is None or described.cpu not in LEVELS:
        return
    if (made := described.triple.partition("-")[0]) not in ("", platform.machine()):
        raise TargetError(
            f"this machine is of {platform.machine()}, {described.cpu} of {made}; build "
            "and lower work for it"
        )
    if lacking := sorted({*LEVELS[described.cpu], *described.features} - host_features()):
        uses = f"which code for {described.cpu} uses"
        raise TargetError(
            f"this machine lacks {', '.join(lacking)}, {uses}; build and lower work for it"
        )
