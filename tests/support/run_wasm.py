"""Programs for WASI under wasmtime."""

from __future__ import annotations

from pathlib import Path


def in_wasmtime(path: Path) -> int:
    """The exit status of a program for WASI."""
    import wasmtime

    engine, configuration = wasmtime.Engine(), wasmtime.WasiConfig()
    linker, store = wasmtime.Linker(engine), wasmtime.Store(engine)
    linker.define_wasi()
    store.set_wasi(configuration)
    start = linker.instantiate(store, wasmtime.Module.from_file(engine, str(path))).exports(store)[
        "_start"
    ]
    assert isinstance(start, wasmtime.Func)
    try:
        start(store)
    except wasmtime.ExitTrap as ended:
        return int(ended.code)
    return 0
