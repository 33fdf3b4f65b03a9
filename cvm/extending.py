"""The interface for packages that extend cvm, version 2: what defines operators, patterns, passes,
targets and importers.

A name listed here keeps its meaning while API_VERSION stays; nothing else is promised
(docs/extending.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import Any, TypeVar

from cvm.dialect.builtin import Calling
from cvm.dialect.builtin.effects import effectful
from cvm.dialect.ir.function import Function, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.execution_plan import Kernels, Plan
from cvm.dialect.kernel_ir.expressions import (
    Apply,
    Cast,
    Const,
    Element,
    Expr,
    Index,
    Read,
    Tensor,
    Var,
    apply,
    constant,
    indices,
    reduce,
    total,
)
from cvm.dialect.kernel_ir.loops import (
    Alloc,
    For,
    If,
    Kernel,
    Let,
    Steps,
    Store,
    map_expressions,
    rewrite_block,
    rewrite_within,
)
from cvm.dialect.kernel_ir.traverse import rewrite, walk
from cvm.dialect.spec.declared_types import DeclaredElement, element_type
from cvm.dialect.spec.foreign_operators import (
    attributed,
    fault,
    guarded,
    source_place,
    source_span,
)
from cvm.dialect.spec.operator import OPERATORS, C, Operator, T, operator
from cvm.dialect.spec.unmet import Unmet
from cvm.dialect.support.diagnostics import CallError, Diagnostic, Error, TargetError
from cvm.dialect.support.entry_points import PLACED
from cvm.dialect.support.suggest import did_you_mean
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.tensor_types import (
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    UI8,
    UI16,
    UI32,
    UI64,
    TensorType,
    Type,
)
from cvm.importers import IMPORTERS
from cvm.jit.functions.compiled_function import CompiledFunction
from cvm.jit.targets import Target, register
from cvm.lowering.contraction.contraction_problem import Problem, Strategy
from cvm.lowering.contraction.match_contraction import LoweredContraction
from cvm.lowering.contraction.strategies import STRATEGIES
from cvm.lowering.graph.match_programs import declare_rewrite
from cvm.lowering.graph.patterns import declare_lowering, declare_nest, declare_pattern
from cvm.lowering.graph.rewrite import Builder
from cvm.lowering.pass_context import Context
from cvm.lowering.passes import REGISTERED, Level, Pass, declare
from cvm.lowering.pipeline import PASSES, lower, unscheduled
from cvm.lowering.processor import lowered_target
from cvm.lowering.verify_passes import illegal, less_certain, verified
from cvm.parser import read

API_VERSION = 2
F = TypeVar("F", bound=Callable[..., Any])
Op = TypeVar("Op", bound=Operator[Any])
UNITS: dict[Level, type] = {
    "graph": Function,
    "loops": Kernel,
    "gpu": Kernel,
}  # what passes of a level transform

__all__ = [
    "API_VERSION",
    "F32",
    "F64",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "OPERATORS",
    "UI8",
    "UI16",
    "UI32",
    "UI64",
    "Alloc",
    "Apply",
    "Builder",
    "C",
    "CallError",
    "Calling",
    "Cast",
    "CompiledFunction",
    "Const",
    "Context",
    "DeclaredElement",
    "Diagnostic",
    "Element",
    "Error",
    "Expr",
    "For",
    "Function",
    "If",
    "Index",
    "Kernel",
    "Kernels",
    "Let",
    "Module",
    "Operator",
    "Pass",
    "Plan",
    "Read",
    "Steps",
    "Store",
    "Symbol",
    "T",
    "Target",
    "TargetError",
    "Tensor",
    "TensorType",
    "Type",
    "Unmet",
    "Value",
    "Var",
    "apply",
    "constant",
    "effect",
    "element_type",
    "indices",
    "intrinsic",
    "lower",
    "lowering",
    "map_expressions",
    "operator",
    "pattern",
    "reduce",
    "register_importer",
    "register_pass",
    "register_rewrites",
    "register_strategy",
    "register_target",
    "rewrite",
    "rewrite_block",
    "rewrite_within",
    "total",
    "unscheduled",
    "walk",
]

register_target = register


def register_pass(
    level: Level = "loops", after: str = "", changes_signature: bool = False
) -> Callable[[F], F]:
    """Declare a function as the pass of its name.

    It gives a Kernel for a Kernel, or, of the level graph, a Function for a Function.

    A further parameter `context` gets the Context; others with a default are options of the pass.
    With `after` it runs in every compilation that has the pass of that name, after it. Its result
    is verified. A pass that `changes_signature` runs by `cvm opt` only, since callers rely on the
    types of arguments and results.
    """

    def declared(function: F) -> F:
        name = function.__name__
        if level not in UNITS:
            raise Error(
                f"pass {name}: expected one of the levels {', '.join(UNITS)}, got {level!r}"
            )
        if name in PASSES or name in REGISTERED:
            raise Error(f"pass {name}: there is a pass of this name already")
        if after and (
            after not in PASSES
            or PASSES[after].unit not in (UNITS[level], Plan)[: 1 + (level != "graph")]
        ):
            known = [n for n, p in PASSES.items() if p.unit is UNITS[level]]
            raise Error(
                f"pass {name}: there is no pass {after} that it could "
                f"follow{did_you_mean(after, known)}"
            )
        if changes_signature and (after or level != "graph"):
            raise Error(
                f"pass {name}: only a pass of level graph, without a place, changes signatures"
            )
        package = (function.__module__ or "__main__").partition(".")[0]
        paragraph = (function.__doc__ or "").strip().partition("\n\n")[0]
        summary = " ".join(paragraph.split()).rstrip(".")
        kind = ((UNITS[level], Kernels, NoneType), f"a {UNITS[level].__name__}")
        owner = SimpleNamespace(name=f"pass {name} of {package}")
        new = declare(level, UNITS[level])(guarded(owner, "it", function, kind, "pass.fails"))
        new = replace(new, summary=summary, after=after, package=package)
        new = replace(new, guard=verified, changes_signature=changes_signature)
        REGISTERED[name] = verified(new)
        PLACED.extend([name] * bool(after))
        return function

    return declared


def pattern(benefit: int = 1, into: str = "simplify") -> Callable[[F], F]:
    """Declare a function as a pattern, which rewrites operations in the pass `into`.

    It takes an operator over values and a `Builder`. The annotation of the first parameter names
    the operator, or several by a union; a base class stands for all that derive from it. It returns
    the value that replaces the operation's result, a tuple for several results, or None where it
    does not match. It may add operations by the builder, and changes nothing else. A value of
    another type than that of the result is no match, nor is an operation that may reject sizes
    that the program takes. Of the patterns that match, that of the largest `benefit` is applied,
    the first by name among equals. MLIR: RewritePattern.
    """

    def declared(function: F) -> F:
        declare_pattern(function, benefit, into)
        return function

    return declared


def lowering(
    root: type[Operator[object]],
    legal: Callable[[object], bool] | None = None,
    kernel: bool = False,
) -> Callable[[F], F]:
    """Declare a function as the lowering of an operator, which states it by other operators.

    It takes the operator over values and a `Builder`, and returns the values of the results, as a
    pattern does, of the same types; None is an error. An operator with a lowering needs no formula:
    it is converted before formulas are built, in every compilation. The pass `convert` converts
    operators that have one, too, except where `legal` holds for the operator. With `kernel`, the
    function takes the operator and the results over tensors, and gives statements, as the method
    `nest` does. MLIR: a conversion pattern, and dynamic legality.
    """

    def declared(function: F) -> F:
        if kernel:
            declare_nest(function, root)
        else:
            declare_lowering(function, root, legal)
        return function

    return declared


def effect(cls: type[Op]) -> type[Op]:
    """Declare that an operator, which has no formula, has an effect, which its reference does.

    Its results are its first operands, unchanged. Effects keep the order of the program, through
    calls and loops, and are neither left out nor shared. They run in Python on the targets `cpu`
    and `reference`; others, `cvm build`, graphs and `vmap` refuse them. The derivative is that of
    the identity, unless the operator has a `pullback`.
    """
    if not cls.is_expanded:
        raise fault(cls, "an operator with an effect has no formula, and is declared below @effect")
    effectful(cls)
    return cls


def register_rewrites(path: str | Path) -> None:
    """Add the rewrites of a program to the patterns of the pass `simplify`; its functions are
    not used.

    Raises ParseError or VerifyError with every mistake of the file, which is UTF-8.
    """
    for pair in read(path).rewrites.values():
        declare_rewrite(pair)


def register_strategy(
    name: str,
    match: Callable[[Kernel], str],
    cost: Callable[[Kernel], float],
    build: Callable[[Kernel], Kernel | None],
    target: str = "",
) -> None:
    """Add a way to compute reductions, such as products of matrices, by a kernel's nest: on the
    target of this name, or on every one whose functions are lowered as for a CPU.

    `match` gives the reason why it does not apply to a kernel, or "". The strategy of least `cost`,
    in vector instructions, is taken of those that apply; `build` gives its kernel, of the same
    arrays, or None. The kernel is verified. `cvm lower --to strategies` shows the choice. Code that
    is compiled from then on is not kept on disk. Raises Error where there is one of this name.
    """
    package = (build.__module__ or "__main__").partition(".")[0]
    owner = SimpleNamespace(name=f"strategy {name} of {package}")
    if any(s.name == name for s in STRATEGIES):
        raise Error(f"strategy {name}: there is a strategy of this name already")
    applies, costs, built = (
        guarded(owner, f"`{what}`", function, kind, "strategy.fails")
        for what, function, kind in (
            ("match", match, (str, "a reason")),
            ("cost", cost, ((int, float), "a number")),
            ("build", build, ((Kernel, NoneType), "a Kernel")),
        )
    )

    def lowered(problem: Problem) -> LoweredContraction | None:
        if (made := built(problem.kernel)) is None:
            return None
        if not isinstance(made, Kernel):  # a guarded function may give several results
            message = "`build` gives tuple, not a Kernel"
            raise fault(owner, message, source_place(build), "strategy.fails")
        changed = [p.key for p in map(_array, made.parameters)] != [
            p.key for p in map(_array, problem.kernel.parameters)
        ]
        found = [*illegal(made, problem.kernel)]
        if not found:
            found = [*less_certain(made, problem.kernel)]
        if changed:
            found = [Diagnostic("its kernel has other arrays", problem.kernel.span, "pass.kernel")]
        if found:
            place = source_span(*source_place(build))
            raise Error([attributed(d, owner.name, place) for d in found])
        return LoweredContraction((made,))

    def why_not(problem: Problem) -> str:
        if target and lowered_target() != target:
            return f"it is for the target {target}"
        return applies(problem.kernel)

    STRATEGIES.append(Strategy(name, why_not, lambda p: float(costs(p.kernel)), lowered))
    PLACED.append(name)


def _array(tensor: Tensor) -> TensorType:
    return TensorType(tensor.shape, tensor.element)


def intrinsic(
    meaning: str,
    *,
    llvm: str | None = None,
    library: str | None = None,
    requires: Sequence[str] = (),
) -> None:
    """Declare code for a nest of loops, which the step `replace` of schedules puts in its place,
    and which kernels name by `for %i in 0..8 intrinsic NAME`.

    Args:
        meaning: A kernel, in the form of `cvm lower --to loops`, of one nest of serial loops. It
            may read its results, too. Sizes are numbers or names.
        llvm: The code, as LLVM IR: a function without a result, whose name does not matter. Its
            parameters are a pointer to the first element of each parameter of the kernel, for
            those of two axes or more the distances between neighbors along all axes but the last,
            in elements, as i64, and the sizes in the order of their names.
        library: Or the path of a library of C, with a function of the kernel's name and these
            parameters. `cvm build` refuses it.
        requires: LLVM's names of the features of processors that have the instructions; on others
            the nest runs.

    The last axis of a parameter lies side by side in memory. Before its first use, the code is
    compared with the nest on random data, bit for bit, in a process of its own. Code that is
    compiled from then on is not kept on disk. Raises Error if the declaration is not one of these.
    """
    from cvm.kernels.intrinsics import declare as declared

    declared(meaning, llvm, library, requires, tested=True)


def register_importer(
    suffix: str,
) -> Callable[[Callable[[Path], Module]], Callable[[Path], Module]]:
    """Declare a function from the path of a model to a module, for files with this suffix, as in
    `cvm import model.suffix`.
    """

    def declared(function: Callable[[Path], Module]) -> Callable[[Path], Module]:
        IMPORTERS[suffix.removeprefix(".").lower()] = function
        return function

    return declared
