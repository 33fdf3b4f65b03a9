"""The code of intrinsics that packages declare, as definitions that a module of ours may hold: from
LLVM IR, or from a function of a library of C.
"""

import ctypes
import re

import llvmlite.binding as llvm

from ...dialect.support.diagnostics import Error

# flags of LLVM's float instructions that permit other bits
INEXACT = re.compile(r"\b(fast|reassoc|nnan|ninf|nsz|arcp|contract|afn)\b")


def of_ir(name: str, text: str, types: list[str]) -> tuple[str, tuple[str, ...]]:
    """The definition of a function in LLVM IR by our name, and declarations of what it calls."""

    def wrong(why: str) -> Error:
        return Error(f"intrinsic {name}: {why}")

    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as e:
        lines = str(e).splitlines()
        said = next((line for line in lines if "error:" in line), lines[-1])
        raise wrong(f"its LLVM IR is not valid: {said}") from None
    defined = [f for f in module.functions if not f.is_declaration]
    if len(defined) != 1 or [*module.global_variables]:
        raise wrong("expected the definition of one function, and no global variables")
    (function,) = defined
    wanted = f"void ({', '.join(types)})"
    if (found := str(function.global_value_type)) != wanted:
        raise wrong(f"expected a function of type {wanted}, got {found}")
    lines = [re.sub(r" #\d+$|, !.*$", "", line) for line in str(function).strip().splitlines()]
    head = next(n for n, line in enumerate(lines) if line.startswith("define"))
    given = re.match(r"define [^@]*@[^(]*\((.*)\)[^()]*\{$", lines[head])
    body = "\n".join(lines[head + 1 :])
    calls = {f.name: f for f in module.functions if f.is_declaration}
    outside = [n for n in calls if not n.startswith("llvm.")]
    if given is None or outside or re.search(r"[#!]\w", body) or f"@{function.name}" in body:
        raise wrong("expected a function that calls LLVM's intrinsics alone, without metadata")
    if flags := INEXACT.search(body):
        raise wrong(f"the flag {flags[1]} changes the bits of results")
    head_text = f"define internal void @intrinsic.{name}({given[1]}) alwaysinline nounwind {{"
    declared = []
    for n, f in calls.items():
        result, _, parameters = str(f.global_value_type).partition(" (")
        declared.append(f"declare {result} @{n}({parameters}")
    return f"{head_text}\n{body}\n", tuple(declared)


def of_library(name: str, path: str, types: list[str]) -> tuple[str, tuple[str, ...]]:
    """A function that calls the one of this name in a library of C."""
    try:
        function = getattr(ctypes.CDLL(path), name)
    except (OSError, AttributeError) as e:
        raise Error(f"intrinsic {name}: {e}") from None
    address = ctypes.cast(function, ctypes.c_void_p).value
    given = ", ".join(f"{t} %a{n}" for n, t in enumerate(types))
    call = f"call void inttoptr (i64 {address} to ptr)({given})"
    head = f"define internal void @intrinsic.{name}({given}) nounwind {{"
    return f"{head}\n  {call}\n  ret void\n}}\n", ()
