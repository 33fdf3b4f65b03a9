"""Images in a Dask array on two workers: `cvm.dask.apply` beside `map_blocks` with numba and NumPy.

    python benchmarks/dask_images.py [--gigabytes 8] [--workers 2]

Each image is sharpened by a stencil; what comes back is the largest pixel of each. The images are
made on the workers, which takes a part of each time. The peak of memory is that of a worker's
process, which is a new one for each contender. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import time
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import cvm
import cvm.dask

HEIGHT, WIDTH = 480, 640


def sharpened(images: Any) -> Any:
    """The images in f32, each pixel beside its neighbors."""
    x = images.astype(np.float32)
    inner = (
        5 * x[:, 1:-1, 1:-1] - x[:, :-2, 1:-1] - x[:, 2:, 1:-1] - x[:, 1:-1, :-2] - x[:, 1:-1, 2:]
    )
    return np.clip(inner, 0, 255)


def largest(images: Any) -> Any:
    return sharpened(images).max((1, 2))


def with_numba() -> Callable[[np.ndarray], np.ndarray]:
    import numba

    @numba.njit(nogil=True)
    def loop(x: np.ndarray) -> np.ndarray:
        found = np.zeros(x.shape[0], np.float32)
        for n in range(x.shape[0]):
            for i in range(1, x.shape[1] - 1):
                for j in range(1, x.shape[2] - 1):
                    near = (
                        np.float32(x[n, i - 1, j])
                        + x[n, i + 1, j]
                        + x[n, i, j - 1]
                        + x[n, i, j + 1]
                    )
                    found[n] = max(found[n], min(max(np.float32(5) * x[n, i, j] - near, 0), 255))
        return found

    return loop


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    count = max(8, int(given.gigabytes * 1e9 / (HEIGHT * WIDTH)))
    each = min(100, max(1, count // 8))
    f = cvm.compile(largest, rules="numpy")
    ways: dict[str, Callable[[da.Array], da.Array]] = {
        "cvm.dask.apply": lambda x: cvm.dask.apply(f, x),
        "map_blocks, NumPy": lambda x: x.map_blocks(largest, drop_axis=(1, 2), dtype=np.float32),
    }
    if importlib.util.find_spec("numba"):
        ways["map_blocks, numba"] = lambda x: x.map_blocks(
            with_numba(), drop_axis=(1, 2), dtype=np.float32
        )
    wanted: np.ndarray | None = None
    print(
        f"{count * HEIGHT * WIDTH / 1e9:.2g} GB, chunks of {each} images, {given.workers} "
        "workers of one thread:\n"
    )
    print(
        "| way | time | rate | tasks | describing them | peak of a worker |\n"
        "|---|---|---|---|---|---|"
    )
    for name, way in ways.items():
        options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
        with (
            LocalCluster(n_workers=given.workers, **options) as cluster,
            Client(cluster) as client,
        ):  # with memory of their own
            random = da.random.default_rng(0)
            images = random.integers(
                0, 256, (count, HEIGHT, WIDTH), np.uint8, chunks=(each, HEIGHT, WIDTH)
            )
            start = time.perf_counter()
            found = way(images)
            built = time.perf_counter() - start
            answer = found.compute()
            elapsed = time.perf_counter() - start
            memory = max(client.run(peak).values())
            tasks = len(dict(found.__dask_graph__()))
        wanted = answer if wanted is None else wanted
        assert np.array_equal(answer, wanted), name
        rate = images.nbytes / elapsed / 1e9
        row = f"`{name}`" if "," not in name else name.replace("map_blocks", "`map_blocks`")
        print(
            f"| {row} | {elapsed:.1f} s | {rate:.2f} GB/s | {tasks} | {built:.2f} s | "
            f"{memory / 1e6:.0f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
