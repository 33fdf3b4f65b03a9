"""CUDA C to PTX or machine code by NVRTC, NVIDIA's compiler as a library. It needs no GPU and no
driver.
"""

import ctypes
import ctypes.util
import importlib.util
import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...dialect.support.diagnostics import TargetError
from ..cache import disk_cache

if TYPE_CHECKING:
    from .emit import Source

OPTIONS = (
    "--fmad=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ftz=false",
    "--std=c++17",
    "--minimal",
)
HOW = "pip install 'cvm-lang[cuda-sim]'"
_PATTERNS = ("libnvrtc.so*", "nvrtc64*.dll", "libnvrtc*.dylib")
_lock = threading.Lock()  # NVRTC compiles one program at a time


def compile_source(source: str, architecture: str = "compute_80") -> bytes:
    """The code of a source: PTX for an architecture compute_XX, machine code for sm_XX; from the
    cache where it is there.
    """
    name = cached_as(source, architecture)
    if (code := disk_cache.load(name)) is None:
        kind = "PTX" if "compute" in architecture else "CUBIN"
        with _lock:
            code = _compile(_load(), source, [*OPTIONS, f"--gpu-architecture={architecture}"], kind)
        disk_cache.store(name, code)
    return code


def cached_as(source: str, architecture: str = "compute_80") -> str:
    """The name in the cache of what the library makes of a source; TargetError where there is no
    library.
    """
    if (path := _library_path()) is None:
        raise TargetError(missing())
    return disk_cache.key(
        "nvrtc", source, architecture, *OPTIONS, path.name, str(path.stat().st_size)
    )


def missing() -> str:
    """The missing requirements of compiling CUDA C, with the remedy; empty if there are none."""
    return "" if _library_path() else f"NVRTC, which compiles CUDA C, is not installed: {HOW}"


def ptx(source: "Source", _options: object = None) -> str:
    """The kernels in NVIDIA's assembly language."""
    return compile_source(source.text).decode()


def named() -> str:
    """The compiler of CUDA C that is used, with its version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_load().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"NVRTC {major.value}.{minor.value}"


@lru_cache(maxsize=1)
def _library_path() -> Path | None:
    """The library: from NVIDIA's wheels, a toolkit that the environment names, or the system."""
    folders: list[Path] = []
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folders += sorted(Path(place).glob("cu[0-9]*/*"), reverse=True)
        folders += [Path(place) / "cuda_nvrtc" / part for part in ("lib", "bin")]
    for variable in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        if os.environ.get(variable):
            folders += [Path(os.environ[variable]) / part for part in ("lib64", "lib", "bin")]
    folders.append(Path("/usr/local/cuda/lib64"))
    for folder in folders:
        for pattern in _PATTERNS:
            paths = [
                p
                for p in sorted(folder.glob(pattern))
                if "builtins" not in p.name and "alt" not in p.name
            ]
            if paths:
                return paths[0].resolve()
    named = ctypes.util.find_library("nvrtc")
    return Path(named) if named and Path(named).exists() else None


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL:
    path = _library_path()
    assert path is not None
    for builtins in sorted(
        path.parent.glob("*nvrtc-builtins*")
    ):  # found by name only once it is loaded
        try:
            ctypes.CDLL(str(builtins), getattr(ctypes, "RTLD_GLOBAL", 0))
            break
        except OSError:
            continue
    return ctypes.CDLL(str(path))


def _compile(library: ctypes.CDLL, source: str, options: list[str], kind: str) -> bytes:
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"program.cu", 0, None, None
        )
    )
    try:
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        if library.nvrtcCompileProgram(program, len(options), given):
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            library.nvrtcGetProgramLog(program, log)
            text = log.value.decode(errors="replace").strip()
            if "gpu-architecture" in text:
                text = f"{named()} does not compile for this GPU: {text}; install one that does"
                raise TargetError(
                    f"{text}: pip install nvidia-cuda-nvrtc, of its last version or of an older one"
                )
            raise TargetError(f"NVRTC rejects the emitted source: {text}")
        _check(getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
        code = ctypes.create_string_buffer(size.value)
        _check(getattr(library, f"nvrtcGet{kind}")(program, code))
        return code.raw if kind == "CUBIN" else code.value
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _check(status: int) -> None:
    if status:
        raise TargetError(f"NVRTC failed with status {status}")
