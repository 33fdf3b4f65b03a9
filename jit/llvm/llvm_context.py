"""LLVM contexts: a context, a code generator and passes, used by one thread at a time."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from ...dialect.support.fork_safety import held_at_fork, no_fork
from ...dialect.support.process_setting import ScopedSetting
from ...lowering.processor import GENERIC, Processor, freestanding, normalized, processor

LAST_LLVM = 22  # known to have the options that are set here
OPTIONS = {"disable-lsr": True, "enable-phi-of-ops": False}
# the levels of LLVM's own pipelines: one makes vectors of equal scalars side by side, the other
# optimizes loops that people wrote, and makes vectors of them
PIPELINES = {"slp": 3, "loops": 1}


def target_machine(jit: bool = True, described: Processor = GENERIC) -> Any:
    """A code generator for a processor, by default this machine's with all its features; for code
    in memory or for files.
    """
    if described.triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(normalized(described.triple))
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
    cpu = llvm.get_host_cpu_name()
    features = llvm.get_host_cpu_features().flatten()
    if described.cpu:
        beyond = [f"+{f}" for f in described.features]  # the cpu's own
        beyond += ["-fpregs"] * described.triple.endswith(
            "eabi"
        )  # nor are there registers for floats
        cpu = described.cpu
        features = ",".join(beyond)
    is_bare = freestanding(described.triple)
    reloc = "static" if is_bare else "pic"
    anywhere = is_bare and described.triple.startswith("riscv")  # boards have memory beyond 2 GB
    how = {"opt": 3, "reloc": reloc, "codemodel": "medium" if anywhere else "default", "jit": jit}
    return target.create_target_machine(cpu=cpu, features=features, **how)


def _set_options(ours: bool, process: int) -> None:
    if llvm.llvm_version_info[0] <= LAST_LLVM and os.getpid() == process:
        for name, value in OPTIONS.items():
            llvm.set_option("cvm", f"--{name}={value == ours}".lower())


options_set = ScopedSetting(
    lambda: _set_options(True, os.getpid()), lambda: partial(_set_options, False, os.getpid())
)
"""LLVM options during a compilation: no loop strength reduction, no NewGVN on phis of operations.

Strength reduction takes half of the time of code generation, for addresses that are already
computed by parts. NewGVN may not terminate on operations of phis, and then aborts. The options hold
for the whole process; code that other threads compile meanwhile is correct with them.
"""


class Toolchain:
    """The machinery of one thread for one processor."""

    def __init__(self, described: Processor) -> None:
        self.machine = target_machine(described=described)
        self._passes = llvm.create_new_module_pass_manager()
        for name in ("always_inliner", "sroa", "new_gvn", "loop_unroll", "instruction_combine"):
            getattr(self._passes, f"add_{name}_pass")()

    def parsed(self, text: str) -> Any:
        """The module as it stands."""
        context = llvm.create_context()
        error = (
            ffi.OutputString()
        )  # freed with the object: an interrupt inside of its `close` would free it twice
        if not (parsed := _unlocked("LLVMPY_ParseAssembly")(context, text.encode(), error)):
            raise RuntimeError(f"LLVM IR parsing error\n{error}")
        return llvm.ModuleRef(parsed, context)

    def optimised(self, text: str, pipeline: str = "few") -> Any:
        """The parsed module after LLVM's passes. Loops of programs come with vectors and unrolled
        where that helps, with their tests at the end and what they share before them, so a few
        passes will do; those of PIPELINES cost time.
        """
        module = self.parsed(text)
        options = llvm.create_pipeline_tuning_options(PIPELINES.get(pipeline, 3))
        options.loop_vectorization = options.loop_interleaving = pipeline == "loops"
        builder = llvm.create_pass_builder(
            self.machine, options
        )  # one a run: a run leaves it callbacks into its stack
        passes = builder.getModulePassManager() if pipeline in PIPELINES else self._passes
        with options_set():
            _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
        if passes is not self._passes:
            llvm.newpassmanagers.NewPassManager._dispose(passes)  # which its `close` does not do
            passes.detach()
        return module

    def object_code(self, module: object) -> bytes:
        """A module's machine code as an object file."""
        error = ffi.OutputString()
        with options_set():
            buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(self.machine, module, 1, error)
            if not buffer:
                raise RuntimeError(str(error))
        try:
            return ctypes.string_at(
                ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
            )
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


if (
    _lock := getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
) is not None:  # llvmlite's, around all it calls
    held_at_fork(_lock, inner=True)
_spare: dict[
    tuple[object, ...], list[Toolchain]
] = {}  # those that no thread uses, by LLVM's name of the processor


@contextmanager
def toolchain() -> Iterator[Toolchain]:
    """One that is this thread's until it is given back."""
    described = processor()
    spare = _spare.setdefault((described.cpu, described.triple, described.features), [])
    with no_fork():
        try:
            own = spare.pop()
        except IndexError:
            own = Toolchain(described)
        yield own
        spare.append(own)


@cache
def _unlocked(name: str) -> Callable[..., Any]:
    """A function of LLVM's library without the lock, where llvmlite is one whose library can be
    reached; otherwise with it.
    """
    locked = getattr(ffi.lib, name)
    try:
        function = getattr(ctypes.CDLL(ffi.lib._name, handle=ffi.lib._handle), name)
    except AttributeError:
        return locked
    function.argtypes, function.restype = locked.argtypes, locked.restype
    return function
