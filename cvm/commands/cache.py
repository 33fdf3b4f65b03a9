"""`cvm cache info` and `cvm cache clear`: the disk cache of compiled code."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator

from cvm.jit.cache import disk_cache


def cache(options: Namespace) -> int:
    if options.action == "clear":
        print(f"removed {disk_cache.clear()} entries")
    print("\n".join(told()))
    return 0


def told() -> Iterator[str]:
    """Lines with the place of the cache and its entries."""
    where = disk_cache.folder()
    if where is None:
        yield "off: CVM_CACHE_DIR is empty"
        return
    sizes = [size for _, size, _ in disk_cache.entries(where)]
    by = " (CVM_CACHE_DIR)" if os.environ.get("CVM_CACHE_DIR") else ""
    yield f"{where}{by}"
    yield f"{len(sizes)} entries, {sum(sizes) / (1 << 20):.1f} of at most {disk_cache.LARGEST >> 20} MiB"
