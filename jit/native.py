"""LLVM IR to native code: optimised for this machine's processor, linked in memory, called through a pointer."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from . import cache
from .identity import environment
from .llvm import instructions, powers, rows, tables

if TYPE_CHECKING:
    from ..lowering.processor import Processor

LAST_LLVM = 22  # known to have the options that are set here

_numbers = itertools.count(1)  # of libraries; any thread may make one


@lru_cache(maxsize=2)
def target_machine(jit: bool = True) -> Any:
    """The code generator for this machine's processor and all its features, for code in memory or for files."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="default",
        jit=jit,
    )


@lru_cache(maxsize=1)
def _linker() -> Any:
    target_machine()
    return llvm.create_lljit_compiler(target_machine(), use_jit_link=False, suppress_errors=False)


def optimise(text: str, slp: bool = False) -> Any:
    """The parsed module after LLVM's passes. Loops come with vectors and unrolled where that helps, with their tests at the end
    and what they share before them, so a few passes will do; with `slp`, which costs time, equal scalars side by side become
    vectors.
    """
    module = llvm.parse_assembly(_complete(text))
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = options.loop_interleaving = False
    builder = llvm.create_pass_builder(target_machine(), options)
    passes = builder.getModulePassManager() if slp else _passes()
    passes.run(module, builder)
    return module


def _complete(text: str) -> str:
    """The module with what emitted IR calls and no processor has, or not each: it is declared before all functions."""
    start = text.find("\ndefine ") + 1
    declared, features = text[:start], _features()
    declared = tables.complete(instructions.complete(declared, features), features)
    return f"{rows.complete(powers.complete(declared))}\n{text[start:]}"


@lru_cache(maxsize=1)
def _features() -> frozenset[str]:
    """What this machine's processor has."""
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


def processor() -> Processor:
    """This machine's, for the loops."""
    from ..lowering.processor import Processor

    features = _features()
    return Processor(instructions.has_quads(features), 32 if "avx512vl" in features else 16)


@lru_cache(maxsize=1)
def _passes() -> Any:
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_new_gvn_pass()
    passes.add_loop_unroll_pass()
    passes.add_instruction_combine_pass()
    return passes


@contextmanager
def _addresses_kept() -> Iterator[None]:
    """LLVM's strength reduction of loops is left out: half of the time it takes to make code, for addresses that are by parts
    already. There is but one switch for the process; what others compile at that moment is right, too."""
    if llvm.llvm_version_info[0] > LAST_LLVM:
        yield
        return
    llvm.set_option("cvm", "--disable-lsr=true")
    try:
        yield
    finally:
        llvm.set_option("cvm", "--disable-lsr=false")


def assembly(module: Any) -> str:
    """The machine code of a module, as text."""
    with _addresses_kept():
        return target_machine().emit_assembly(module)


def emitted(module: Any, jit: bool = True) -> bytes:
    """The machine code of a module as an object file, for code in memory or for files."""
    with _addresses_kept():
        return bytes(target_machine(jit).emit_object(module))


def object_code(text: str, slp: bool = False) -> bytes:
    """The machine code as an object file, from the cache where it is there."""
    name = cache.key(text, str(slp), *environment())
    image = cache.load(name)
    if image is None:
        image = fresh_object_code(text, slp)
        cache.store(name, image)
    return image


def fresh_object_code(text: str, slp: bool = False) -> bytes:
    """The machine code as an object file."""
    return emitted(optimise(text, slp))


class Library:
    """Native code in memory, from IR or object files that belong together, and the functions it exports, which give an i32
    status; freed with the object."""

    def __init__(
        self,
        code: str | Sequence[bytes],
        exports: Mapping[str, tuple[Any, ...]],
        data: Sequence[str] = (),
        imports: Mapping[str, int] | None = None,
        slp: bool = False,
    ) -> None:
        builder = llvm.JITLibraryBuilder()
        for image in [object_code(code, slp)] if isinstance(code, str) else code:
            builder = builder.add_object_img(image)
        builder = builder.add_current_process()
        for name in (*exports, *data):
            builder = builder.export_symbol(name)
        for name, address in (imports or {}).items():
            builder = builder.import_symbol(name, address)
        self._tracker = builder.link(_linker(), f"cvm{next(_numbers)}")
        self.addresses: dict[str, int] = {name: self._tracker[name] for name in (*exports, *data)}
        self.functions: dict[str, Callable[..., int]] = {
            name: ctypes.CFUNCTYPE(ctypes.c_int32, *types)(self.addresses[name]) for name, types in exports.items()
        }
