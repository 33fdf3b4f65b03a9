"""`cvm doctor`: versions, the processor, targets, the cache and extras of this installation, and
how to get what is missing.

`cvm cache info` and `cvm cache clear`: the disk cache of compiled code.
"""

import importlib.util
import os
import platform
from argparse import Namespace
from collections.abc import Iterator
from importlib import metadata

import cvm
from cvm.jit.cache import disk_cache
from cvm.jit.cache.measured_costs import kept
from cvm.jit.cuda import nvrtc
from cvm.jit.cuda.device import described
from cvm.jit.host_processor import (
    host_name,
    host_processor,
    llvm_version,
    why_no_tiles,
)
from cvm.jit.targets import TARGETS, all_targets

REQUIRED = ("llvmlite", "numpy", "lark")
EXTRAS = {  # what each is for, and the modules that it needs
    "onnx": ("models of ONNX", ("onnx",)),
    "torch": ("modules of PyTorch", ("torch", "onnxscript", "onnx")),
    "cuda": ("NVIDIA GPUs", ("pycuda",)),
    "cuda-sim": ("kernels for GPUs, emulated", ("nvidia.cu13",)),
    "bfloat16": ("arrays of bf16", ("ml_dtypes",)),
    "dask": (
        "arrays in chunks, on several machines",
        ("dask", "distributed", "joblib", "tqdm", "zarr"),
    ),
    "interop": (
        "MLIR, compilers of others",
        ("xdsl", "iree.compiler", "iree.runtime", "ziglang", "wasmtime"),
    ),
    "prove": ("cvm prove", ("z3",)),
    "images": ("pictures as inputs and outputs", ("PIL",)),
    "plot": ("run --plot", ("matplotlib",)),
    "progress": ("bars of progress", ("tqdm",)),
    "completion": ("completion in a shell", ("shtab",)),
    "editor": ("cvm lsp", ("pygls",)),
}


def doctor(options: Namespace) -> int:
    if options.measure:
        from cvm.commands.measure import measure

        print("\n".join(measure()))
        return 0
    for section in (versions, processor, costs, targets, cache_lines, extras):
        print("\n  ".join([section.__name__.removesuffix("_lines"), *section()]))
    return 0


def cache(options: Namespace) -> int:
    if options.action == "clear":
        print(f"removed {disk_cache.clear()} entries")
    print("\n".join(cache_lines()))
    return 0


def cache_lines() -> Iterator[str]:
    if (folder := disk_cache.folder()) is None:
        yield "off: CVM_CACHE_DIR is empty"
        return
    sizes = [size for _, size, _ in disk_cache.entries(folder)]
    yield f"{folder}{' (CVM_CACHE_DIR)' if os.environ.get('CVM_CACHE_DIR') else ''}"
    yield (
        f"{len(sizes)} entries, {sum(sizes) / (1 << 20):.1f} MiB; above "
        f"{disk_cache.LARGEST >> 20} MiB the least recently used are evicted"
    )


def versions() -> Iterator[str]:
    yield f"cvm {cvm.__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield (
        f"{', '.join(f'{name} {metadata.version(name)}' for name in REQUIRED)}, LLVM "
        f"{llvm_version()}"
    )


def processor() -> Iterator[str]:
    here = host_processor()
    yield f"{host_name()}: vectors of {here.vector_bytes} bytes, {here.vector_registers} registers"
    yield (
        f"caches of {here.l1_bytes >> 10} KiB, {here.l2_bytes >> 10} KiB and "
        f"{here.l3_bytes >> 10} KiB"
    )
    tiles = {"instructions": "by instructions", "loops": "emulated (CVM_EMULATE_TILES)"}
    yield f"matrix tiles: {tiles.get(here.matrix_tiles) or f'none, {why_no_tiles()}'}"
    threads = os.environ.get("CVM_NUM_THREADS")
    yield f"{cvm.get_num_threads()} threads" + (f" (CVM_NUM_THREADS={threads})" if threads else "")


def costs() -> Iterator[str]:
    from cvm.commands.measure import described

    if (found := kept()) is None:
        yield "by tables; cvm doctor --measure measures them in a minute"
    else:
        yield from described(found)


def targets() -> Iterator[str]:
    for name, target in all_targets().items():
        yield f"{name}: {target.missing() or 'ready'}"
    if not nvrtc.missing():
        yield f"kernels for GPUs by {nvrtc.named()}"
    if not TARGETS["cuda"].missing():
        yield from described()


def extras() -> Iterator[str]:
    for name, (purpose, modules) in EXTRAS.items():
        ready = all(_is_there(m) for m in modules)
        yield f"{name}: {purpose}: " + ("ready" if ready else f"pip install 'cvm-lang[{name}]'")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
