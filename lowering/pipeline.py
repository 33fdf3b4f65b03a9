"""The passes in their order: a verified module's function to kernels, each stage available by name."""

from __future__ import annotations

from ..dialect.notation.index import Tensor, axes
from ..dialect.notation.loops import Kernel
from ..dialect.program.module import Function, Module
from ..dialect.program.verify_inplace import arguments_overwritten
from .analysis.integer_ranges import declared_range, ranges_of
from .formulas.build import Formula, Formulas, Nest, View, formulas
from .formulas.fuse import fuse
from .formulas.rounding_shift import rounding_shift
from .gpu.map_to_grid import map_nests_to_grid, map_to_grid
from .graph.dce import dce
from .graph.inline import inline_calls
from .graph.pipeline import improve
from .loops.build import build_nest, sorted_tensors
from .loops.fuse_kernels import fuse_kernels
from .loops.split_complex import split_complex
from .processor import Processor
from .reductions.fuse_rows import fuse_rows
from .schedule import schedule
from .storage.inplace import in_place
from .storage.narrow_storage import narrow_storage
from .storage.plan import Plan, make_plan, viewed


def to_formulas(module: Module, function: Function, optimize: int = 2) -> Formulas:
    """The function's formulas, fused, or one for each operation that some result needs where nothing is optimized."""
    if not optimize:
        return formulas(dce(inline_calls(module, function)))
    return fuse(formulas(improve(inline_calls(module, function))))


def to_kernels(program: Formulas) -> tuple[list[Kernel], dict[Tensor, Tensor], tuple[Tensor, ...]]:
    """The kernels of the formulas, which tensors are views of which, and the results (copied where they are not computed)."""
    kernels: list[Kernel] = []
    views: dict[Tensor, Tensor] = {}
    for step in program.steps:
        name = f"{program.name}.{len(kernels)}"
        match step:
            case Formula():
                kernels.append(build_nest(step, name))
            case View(tensor, of, _):
                views[tensor] = of
            case Nest(tensors, operands, body, span):
                kernels.append(Kernel(name, (*sorted_tensors(set(operands)), *tensors), body, len(tensors), span))
    results: list[Tensor] = []
    owned = {*program.arguments, *program.constants}
    for result in program.results:
        root = viewed(result, views)
        if root in owned or result in results:  # an argument, a constant, or given back already: a copy
            copy = Tensor(f"{result.name}.copy{len(results)}", result.shape, result.element, "heap")
            at = axes(result.shape)
            kernels.append(build_nest(Formula(copy, at, result[at]), f"{program.name}.{len(kernels)}"))
            result = copy
        else:
            owned.add(root)
        results.append(result)
    return kernels, views, tuple(results)


def to_plan(program: Formulas, function: Function) -> Plan:
    """The formulas of the function as plain nests, before any pass that is for one kind of machine."""
    declared = zip(program.arguments, map(declared_range, function.arguments), strict=True)
    ranges = ranges_of(program, {t: found for t, found in declared if found is not None})
    kernels, views, results = to_kernels(rounding_shift(program, ranges))
    kernels = fuse_kernels(kernels, results, views)
    kernels, results = in_place(kernels, results, program.arguments, arguments_overwritten(function), views)
    known = {t: r for t, r in ranges.items() if t not in results}  # what is given back may stand in an argument
    sides = function.name, program.arguments, results, program.constants
    plan = make_plan(*sides, tuple(kernels), views, known, program.requirements)
    return split_complex(plan)


def unscheduled(module: Module, function: Function) -> Plan:
    """The function as plain nests."""
    return to_plan(to_formulas(module, function), function)


def nests(module: Module, function: Function) -> Plan:
    """The function as plain nests for a CPU."""
    return fuse_rows(narrow_storage(unscheduled(module, function)))


def unoptimized(module: Module, function: Function) -> Plan:
    """The function as one scalar nest for each operation."""
    program = to_formulas(module, function, optimize=0)
    kernels, views, results = to_kernels(program)
    sides = program.name, program.arguments, results, program.constants
    return split_complex(make_plan(*sides, tuple(kernels), views, requirements=program.requirements))


def lower(module: Module, function: Function, processor: Processor | None = None, optimize: int = 2) -> Plan:
    """Everything a back end needs to run the function on a CPU."""
    if not optimize:
        return unoptimized(module, function)
    return schedule(nests(module, function), processor=processor)


def lower_for_gpu(module: Module, function: Function, optimize: int = 2) -> Plan:
    """The same for a GPU."""
    if not optimize:
        return map_nests_to_grid(unoptimized(module, function))
    return map_to_grid(unscheduled(module, function))
