"""Cache keys of compiled functions.

A key of machine code depends on the compiler, LLVM, the processor and the program. A key of a
program's text, before parsing, leads to the former.
"""

import os
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from ...dialect.ir.function import Function
from ...dialect.ir.module import Module
from ...dialect.support.entry_points import PLACED, SOURCES, patterns_key
from ...lowering.processor import requested
from ..host_processor import host_processor
from ..options import CompileOptions
from . import disk_cache
from .compiler_digest import compiler_digest
from .measured_costs import kept


@lru_cache(maxsize=1)
def _machine() -> tuple[str, ...]:
    features = llvm.get_host_cpu_features().flatten()
    return llvmlite.__version__, str(llvm.llvm_version_info), llvm.get_host_cpu_name(), features


def environment() -> tuple[str, ...]:
    """The inputs of machine code besides the program: the versions of the compiler, NumPy and LLVM,
    and the processor.
    """
    return (
        compiler_digest(),
        np.__version__,
        *_machine(),
        host_processor().matrix_tiles,
        repr(kept()),
        repr(requested()),
    )


def name_of_text(
    text: bytes, folder: Path | None, entry: str, options: CompileOptions
) -> str | None:
    """The key of a function of a program's text in a folder; None if it is not cached."""
    patterns = patterns_key()
    if disk_cache.folder() is None or PLACED or patterns is None:
        return None
    where = "" if folder is None else os.path.abspath(folder)
    return disk_cache.key(
        "text", entry, where, repr(options), *environment(), patterns, sha256(text).hexdigest()
    )


def name_of(module: Module, function: Function, options: CompileOptions) -> str | None:
    """The key of a function; None where operators or passes of other packages decide its code."""
    from ...dialect.spec.operator import OPERATORS

    functions = (
        function,
        *(f for f in module.functions.values() if f is not function),
    )  # it need not be the module's
    patterns = patterns_key()
    if (
        PLACED
        or patterns is None
        or any(v.known_type.element.kind == "declared" for f in functions for v in f.values())
        or any(o.operator.dialect in OPERATORS.modules for f in functions for o in f.operations)
        or (SOURCES and not _packages(OPERATORS.modules.values()) <= _packages(SOURCES))
    ):
        return None
    parts = [
        function.name,
        repr(options),
        *environment(),
        patterns,
        *{f.span.source.text: None for f in functions},
    ]
    if module.rewrites:
        parts.append(str(module.with_functions({})))
    for f in functions:
        stated = [str(o.declared) for o in f.operations]
        places = [f"{o.span.start} {o.span.end}" for o in f.operations]
        parts.append(
            "\n".join([*described(f), str(f.span.start), *stated, *places, str(f.declared)])
        )
    return disk_cache.key(*parts)


def _packages(modules: Iterable[str]) -> set[str]:
    """The packages of modules; patterns may use the operators of any that is loaded."""
    return {module.partition(".")[0] for module in modules}


def described(f: Function) -> list[str]:
    """The lines of a function, with the digests of its constants."""
    from ...dialect.ir.program_printer import Names, operation_text

    names = Names(f.arguments)
    heads = [f"{names.of(a)}: {a.type} {sorted(a.attributes.items())!r}" for a in f.arguments]
    body = [_constant(o.operator) or operation_text(o, names) for o in f.operations]
    made = [str([names.of(r) for r in o.results]) for o in f.operations]
    return [f.name, *heads, *body, *made, *(f"{names.of(r)}: {r.type}" for r in f.results)]


def _constant(operator: object) -> str:
    from ...dialect.builtin import Const

    if not isinstance(operator, Const):
        return ""
    whole = operator.data.array
    array = np.ascontiguousarray(whole.flat[:1] if operator.data.splat else whole)
    return (
        f"const {operator.type} {array.dtype.str} {whole.shape} "
        f"{sha256(array.view(np.uint8).data).hexdigest()}"
    )
