"""The stages of a function as text, by name: those of lowering, and those of code generation for CPUs and GPUs."""

from __future__ import annotations

from ...dialect.ir.diagnostics import TargetError
from ...lowering.stages import STAGES, show
from .compiled_function import CompiledFunction

ALL_STAGES = (*STAGES, "llvm", "llvm-opt", "asm", "cuda", "ptx")


def text_at(f: CompiledFunction, stage: str) -> str:
    """The function at a stage of ALL_STAGES."""
    if stage in STAGES:
        return show(f.module, f.function, stage, f.options.optimize)
    if stage == "llvm":
        return f.native_text.module
    if stage in ("llvm-opt", "asm"):
        from ..llvm import native_code

        module = native_code.optimise(f.native_text.module, passes=f.options.optimize > 0)
        return str(module) if stage == "llvm-opt" else native_code.assembly(module)
    if stage in ("cuda", "ptx"):
        return f.gpu_source.text if stage == "cuda" else f.ptx
    raise TargetError(f"unknown stage {stage!r}; the stages are {', '.join(ALL_STAGES)}")
