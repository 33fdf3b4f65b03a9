"""Sources of CUDA C compiled together, since each compilation takes longer to begin than a small
kernel takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cvm.jit.cache import disk_cache
from cvm.jit.cuda import nvrtc

import cvm

MANY = 50  # of one compilation
ENTRY = re.compile(r"^\.visible \.entry s(\d+)_", re.M)
TABLE = re.compile(r"^\.global [^;]*? ([\w$]+)\[\d+\] = \{[^}]*\};\n", re.M)


def compile_together(sources: Iterable[str]) -> None:
    """Puts what NVRTC makes of each source into the cache, as if it had been compiled alone."""
    wanted = [
        s
        for s in dict.fromkeys(sources)
        if "__global__" in s and disk_cache.load(nvrtc.cached_as(s)) is None
    ]
    for n in range(0, len(wanted), MANY):
        some = wanted[n : n + MANY]
        try:
            code = nvrtc.compile_source("\n".join(map(_apart, range(len(some)), some))).decode()
        except cvm.TargetError:
            continue  # compiled alone, it will be said which
        if ".func" in code:
            continue
        starts = [m.start() for m in ENTRY.finditer(code)]
        for source, number in zip(some, range(len(some)), strict=True):
            ends = zip(starts, [*starts[1:], len(code)], strict=True)
            own = "".join(
                code[a:b] for a, b in ends if code.startswith(f".visible .entry s{number}_", a)
            )
            head = TABLE.sub(lambda m, own=own: m[0] if m[1] in own else "", code[: starts[0]])
            text = (head + own).replace(f"s{number}_kernel_", "kernel_")
            disk_cache.store(nvrtc.cached_as(source), text.encode())


def _apart(number: int, source: str) -> str:
    return f"namespace s{number} {{\n{source.replace(' kernel_', f' s{number}_kernel_')}}}\n"
