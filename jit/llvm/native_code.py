"""LLVM IR to native code: optimized for the host's processor, linked in memory, called through a
pointer.
"""

import ctypes
import itertools
import mmap
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from ...dialect.support.compilation_context import check_time
from ...dialect.support.diagnostics import TargetError
from ...lowering.processor import normalized, processor
from ..cache import disk_cache
from ..cache.keys import environment
from ..host_processor import features_at_hand
from . import float_functions, integer_powers, lookup_tables, select_to_table, target_intrinsics
from .ir_builder import Declaration, Module
from .llvm_context import options_set, target_machine, toolchain

if TYPE_CHECKING:
    from ..options import CompileOptions
    from .emit import Text


# by the part of a name before the dot; each gives a definition, and adds what this calls or reads
# to a set of lines
def _intrinsic(declared: Declaration, features: Collection[str], called: set[str]) -> str:
    """The code of an intrinsic that a package declares, and what it calls."""
    from ...lowering.analysis.intrinsics import INTRINSICS

    found = INTRINSICS[declared.name.partition(".")[2]]
    called.update(found.calls)
    return found.code


DEFINITIONS: dict[str, Callable[[Declaration, Collection[str], set[str]], str]] = {
    **dict.fromkeys(target_intrinsics.NAMES, target_intrinsics.define),
    **dict.fromkeys(lookup_tables.NAMES, lookup_tables.define),
    select_to_table.NAME: select_to_table.define,
    integer_powers.NAME: integer_powers.define,
    **dict.fromkeys(float_functions.NAMES, float_functions.define),
    "intrinsic": _intrinsic,
}
LIBRARIES_PER_LINKER = 256  # libraries of one linker, at most; tuned by hand (Zen 4, Zen 5)
POINTERS_OF_4_BYTES = ("thumb", "wasm32", "riscv32")
ABI_OF_RISCV = '!llvm.module.flags = !{{!1000000}}\n!1000000 = !{{i32 1, !"target-abi", !"{}"}}\n'
INSTEAD = 'target="reference" needs no machine code'
PROT_EXECUTE = 5  # PROT_READ | PROT_EXEC
_numbers = itertools.count(1)  # of libraries; any thread may make one


@lru_cache(maxsize=1)
def _linker(generation: int) -> Any:
    """A linker of some libraries, as which it goes: LLVM keeps some KB of each library until
    then.
    """
    return llvm.create_lljit_compiler(target_machine(), use_jit_link=False, suppress_errors=True)


def optimise(module: Module | str, pipeline: str = "few", passes: bool = True) -> Any:
    """The module after LLVM's passes, or before any."""
    with toolchain() as tools:
        return (
            tools.optimised(complete(module), pipeline)
            if passes
            else tools.parsed(complete(module))
        )


def complete(module: Module | str, features: Collection[str] | None = None) -> str:
    """The text of a module, with definitions of functions that not every processor has, for these
    features.
    """
    if isinstance(module, str):
        return module
    lines, called = list[str](), set[str]()
    definitions = module.definitions
    features = features_at_hand() if features is None else features
    for declared in module.declarations:
        line = str(declared)
        has_it = "fma" in features and declared.name.startswith("llvm.")  # as all of x86 with FMA
        if not has_it and (define := DEFINITIONS.get(declared.stem)) is not None:
            line = define(declared, features, called)
            if line.startswith("define"):
                name = float_functions.own_name(declared)
                definitions = definitions.replace(f"@{declared.name}(", f"@{name}(")
        lines.append(line)
    return "\n".join([*lines, *sorted(called.difference(lines)), definitions])


def optimised_text(source: "Text", options: "CompileOptions") -> str:
    return str(optimise(source.module, source.pipeline, options.optimize > 0))


def assembly(source: "Text", options: "CompileOptions") -> str:
    with options_set():
        machine = target_machine(described=processor())
        return machine.emit_assembly(optimise(source.module, source.pipeline, options.optimize > 0))


def object_file(module: Module, passes: bool = True) -> bytes:
    """The machine code as an object file for other programs."""
    with options_set():
        machine = target_machine(jit=False, described=processor())
        return bytes(
            machine.emit_object(optimise(_for_system(complete(module), machine), passes=passes))
        )


def _for_system(text: str, machine: Any) -> str:
    """A module with its target system, which decides the size of pointers, and how RISC-V passes
    floats.
    """
    if not (triple := processor().triple):
        return text
    abi = ""
    if triple.startswith("riscv"):
        words = "lp64" if triple.startswith("riscv64") else "ilp32"
        abi = ABI_OF_RISCV.format(words + "d" * ("d" in processor().features))
    return (
        f'target triple = "{normalized(triple)}"\ntarget datalayout = "{machine.target_data}"\n'
        f"{text}\n{abi}"
    )


def object_code(module: Module | str, pipeline: str = "few", passes: bool = True) -> bytes:
    """The machine code as an object file, from the cache where it is there."""
    name = disk_cache.key(str(module), pipeline, str(passes), *environment())
    if (image := disk_cache.load(name)) is None:
        image = fresh_object_code(module, pipeline, passes)
        disk_cache.store(name, image)
    return image


def fresh_object_code(module: Module | str, pipeline: str = "few", passes: bool = True) -> bytes:
    """The machine code as an object file."""
    text = complete(module)
    check_time()
    with toolchain() as tools:
        return tools.object_code(tools.optimised(text, pipeline) if passes else tools.parsed(text))


def _cause() -> str:
    """The reason that this process loads no machine code, if memory that was written to may not
    become executable.
    """
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as page:
        held = ctypes.c_char.from_buffer(page)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        failed = protect(
            ctypes.c_void_p(ctypes.addressof(held)), ctypes.c_size_t(len(page)), PROT_EXECUTE
        )
        reason = os.strerror(ctypes.get_errno()).lower()
        del held  # or the page cannot be closed
    return (
        f"this process may not make memory executable, as by PR_SET_MDWE or SELinux: {reason}"
        if failed
        else ""
    )


class Library:
    """Native code in memory, from IR or object files, and its exported functions, which give an i32
    status.
    """

    def __init__(
        self,
        code: Module | str | Sequence[bytes],
        exports: Mapping[str, tuple[Any, ...]],
        data: Sequence[str] = (),
        imports: Mapping[str, int] | None = None,
        pipeline: str = "few",
    ) -> None:
        builder = llvm.JITLibraryBuilder()
        for image in [object_code(code, pipeline)] if isinstance(code, (str, Module)) else code:
            builder = builder.add_object_img(image)
        builder = builder.add_current_process()
        for name in (*exports, *data):
            builder = builder.export_symbol(name)
        for name, address in (imports or {}).items():
            builder = builder.import_symbol(name, address)
        number = next(_numbers)
        linker = _linker(number // LIBRARIES_PER_LINKER)
        try:
            self._tracker = builder.link(linker, f"cvm{number}")
        except RuntimeError as e:
            raise TargetError(
                f"machine code cannot be loaded: {_cause() or e}; {INSTEAD}"
            ) from None
        vars(self._tracker)["linker"] = linker  # freed after the library
        self.addresses: dict[str, int] = {name: self._tracker[name] for name in (*exports, *data)}
        self.functions: dict[str, Callable[..., int]] = {
            name: ctypes.CFUNCTYPE(ctypes.c_int32, *types)(self.addresses[name])
            for name, types in exports.items()
        }
