"""A compiled function: checks its arguments, runs on its target, and shows every stage of its
lowering.

What makes code is loaded where it is asked for: a function whose code was kept does without.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dialect.ir.function import Function
from ...dialect.ir.module import Module
from ...dialect.support.compilation_context import USER_TRACEBACK
from ...dialect.support.diagnostics import CallError, Diagnostic, Span
from ...dialect.support.fp_environment import DefaultFpEnvironment
from ...dialect.support.limits import LIMITS, excess
from ...dialect.support.python_errors import call_error
from ...dialect.support.suggest import did_you_mean
from ...dialect.types.sizes import Dim, Size, evaluate, product
from ...dialect.types.tensor_types import Type, as_given
from ...dialect.types.unify import bind, put, with_sizes
from ...lowering.processor import Processor, compiling_for
from ..calls.arguments import (
    has_internal_overlap,
    in_order,
    like_arguments,
    samples_of,
    take_arguments,
    take_outputs,
)
from ..options import DEFAULT, CompileOptions, Stage
from ..targets import find_target, target_of_stage

if TYPE_CHECKING:
    from inspect import Signature

    from ...dialect.ir.deferred_size_limits import DeferredChecks
    from ...dialect.kernel_ir.execution_plan import Plan
    from ...lowering.analysis.count_operations import Cost

MOST_CHECKS = 16  # kinds of calls of a function, by how their sizes compare, that are told apart


class CompiledFunction:
    """A function of a program, compiled for one target.

    It takes arrays and returns an array, or a tuple of arrays for several results. It may be called
    from several threads, releases the interpreter lock while it runs, and can be pickled.
    """

    target = ""
    _size_places: Mapping[object, tuple[int, int]] = MappingProxyType(
        {}
    )  # the argument and axis of each unknown size
    _workspace: Dim = 0  # bytes, as far as the target plans one
    _computed_in_place: Collection[
        int
    ] = ()  # the results computed in the storage of the argument they overwrite

    def __init__(
        self, module: Module, function: Function, options: CompileOptions = DEFAULT
    ) -> None:
        self.module = module
        self.function = self.computed = function
        self.options = options
        overwritten: dict[int, int] = {}
        if any("inplace" in a.attributes for a in function.arguments):
            from ...dialect.ir.overwritten_arguments import with_contents_returned

            self.computed, overwritten = with_contents_returned(module, function)
        self._called_as(self.computed, overwritten, len(function.results))

    def _called_as(self, head: Function, overwritten: dict[int, int], returned: int) -> None:
        """Set the signature: the function, results that overwrite arguments, and the number of
        visible results.
        """
        self.head = head
        # for `help`, beside its `repr`
        self.__doc__ = f"The function @{head.name}, compiled for {self.target}."
        self.limits = LIMITS.get()
        self.returned = returned
        self.is_static = all(t.is_static for t in (*head.argument_types, *head.result_types))
        self.overwritten = overwritten
        self._types: dict[tuple[tuple[int, ...], ...], list[Type]] = {}

    @cached_property
    def module(self) -> Module:
        """The program."""
        return self._program[0]

    @cached_property
    def function(self) -> Function:
        """The function of it."""
        return self._program[1]

    @cached_property
    def _program(self) -> tuple[Module, Function]:
        """The program of a function that was compiled before, and the function."""
        raise NotImplementedError

    @cached_property
    def computed(self) -> Function:
        """The function that is lowered: it has a further result for each argument that is
        overwritten by a value it does not return.
        """
        from ...dialect.ir.overwritten_arguments import with_contents_returned

        return with_contents_returned(self.module, self.function)[0]

    @cached_property
    def left_open(self) -> "DeferredChecks | None":
        """The checks deferred to calls with unknown sizes; None if a call needs the whole
        program.
        """
        from ...dialect.ir.find_deferred_checks import find_deferred_checks

        return find_deferred_checks(self.computed)

    @cached_property
    def size_checks(self) -> "list[DeferredChecks]":
        """The checks by which calls of new sizes do without verification: of all calls, or of such
        as there were, and of calls with large sizes that differ, unless they have to be equal.
        """
        if self.left_open is not None:
            return [self.left_open]
        from ...dialect.ir.find_deferred_checks import checks_as_in
        from ...lowering.analysis.equal_sizes import equal_sizes

        types = self.computed.argument_types
        atoms = bind(types, types)
        equal = equal_sizes(self.computed)
        known = {atom: 16 * n for n, atom in enumerate(atoms, 4)}  # halved without a rest, too
        sizes = {atom: evaluate(put(Size.of_atom(atom), equal), known) for atom in atoms}
        found = checks_as_in(self.module, self.computed, [with_sizes(t, sizes) for t in types])
        return [] if found is None else [found]

    def __repr__(self) -> str:
        types = ", ".join(map(str, self.head.argument_types))
        return f"<cvm function @{self.head.name}({types}) on {self.target}>"

    def _repr_html_(self) -> str:
        """The function in a notebook: signature and sizes, and the drawing."""
        from ...dialect.ir.diagram import caption, html

        return html(
            self.module, [self.function], f"{caption(self.function)}, compiled for {self.target}"
        )

    @property
    def __name__(self) -> str:
        return self.head.name

    @property
    def __signature__(self) -> "Signature":
        """The arguments by their names, for `inspect` and `help`."""
        from inspect import Parameter, Signature

        kind = Parameter.POSITIONAL_OR_KEYWORD
        names = [a.name for a in self.head.arguments]
        if not all(n.isidentifier() for n in names):
            kind = Parameter.POSITIONAL_ONLY
            names = [f"x{n}" for n in range(len(names))]
        parameters = [
            Parameter(n, kind, annotation=str(a.type))
            for n, a in zip(names, self.head.arguments, strict=True)
        ]
        return Signature([*parameters, Parameter("out", Parameter.KEYWORD_ONLY, default=None)])

    def __call__(self, /, *arguments: object, out: object = None, **named: object) -> Any:
        """Call the function.

        Args:
            arguments: Arrays of the declared element types and shapes: NumPy's, or any object with
                the
                buffer protocol, `__array_interface__` or DLPack.
            out: An array, or a tuple of arrays, to write the results into; it is also returned.
            named: Arguments by their names in the program.

        Raises:
            CallError: An argument has another type or shape, or is outside its declared range, or a
                check at run time fails.
        """
        with USER_TRACEBACK:
            arguments = in_order(self.head, arguments, named)
            try:
                with DefaultFpEnvironment():
                    return self._called(arguments, out)
            except MemoryError as e:
                raise CallError(
                    Diagnostic(f"memory does not suffice: {e}", self.head.span, "run")
                ) from None

    def _called(self, arguments: tuple[object, ...], out: object) -> Any:
        arrays = take_arguments(self.head, arguments, self.options.convert)
        types = self._result_types(arrays)
        if (needed := self._memory(types, arrays)) > self.limits.memory:
            raise CallError(
                Diagnostic(excess("memory", needed, self.limits), self.head.span, "limit.memory")
            )
        seen = self.returned
        outputs, copies = take_outputs(out, types[:seen], arrays, self.head)
        outputs += [np.empty(t.array_shape, t.element.dtype) for t in types[seen:]]
        results = self._in_storage(arguments, arrays, outputs)
        self._run(arrays, results)
        self._leave(arguments, arrays, outputs, results, out is None)
        for fresh, array in copies:
            array[...] = fresh
        if out is not None:
            return out
        if not all(isinstance(a, np.ndarray) for a in arguments):
            outputs = like_arguments(outputs[:seen], arguments, self.options.like)
        return outputs[0] if seen == 1 else tuple(outputs[:seen])

    def _memory(self, results: Sequence[Type], arrays: Sequence[np.ndarray]) -> int:
        """The bytes of the results and the workspace of a call."""
        sizes = [product(t.array_shape) * t.element.bytes for t in results]
        return sum(s for s in sizes if isinstance(s, int)) + evaluate(
            self._workspace, self.sizes_of(arrays)
        )

    def sizes_of(self, arrays: Sequence[Any]) -> dict[Any, int]:
        """The sizes that were unknown while compiling."""
        return {atom: arrays[n].shape[axis] for atom, (n, axis) in self._size_places.items()}

    def report(self, status: int, requirements: Sequence[tuple[str, Span]]) -> None:
        """Raises CallError for the requirement that a status names."""
        if status:
            raise call_error(*requirements[status - 1])

    def batch(self, *arguments: Sequence[object]) -> list[Any]:
        """Call the function on each sample; return the list of results.

        Args:
            arguments: For each argument a list of arrays of one rank, whose shapes may differ as
                far as
                the program allows; an argument that is not a list is the same for every sample.
        """
        return [self(*sample) for sample in samples_of(arguments)]

    def _in_storage(
        self, args: Sequence[object], arrays: list[np.ndarray], outputs: list[np.ndarray]
    ) -> list[np.ndarray]:
        """The arrays to compute results in: an argument's array if the plan stores the result
        there.
        """
        for k in self.overwritten.values():
            array = args[k]
            argument = self.head.arguments[k]
            if isinstance(array, np.ndarray) and (
                not array.flags.writeable or has_internal_overlap(array)
            ):
                why = "has elements that share memory" if array.flags.writeable else "is read-only"
                message = f"argument %{argument.name} is overwritten, but the array {why}"
                raise CallError(Diagnostic(message, argument.span, "call.argument"))
        results = list(outputs)
        for n in self._computed_in_place:
            k = self.overwritten[n]
            if any(np.may_share_memory(arrays[k], a) for i, a in enumerate(arrays) if i != k):
                arrays[k] = arrays[k].copy()
            results[n] = arrays[k]
        return results

    def _leave(
        self,
        given: Sequence[Any],
        arrays: list[np.ndarray],
        outputs: list[np.ndarray],
        results: list[np.ndarray],
        shared: bool,
    ) -> None:
        """Every overwritten argument holds its result; without `out`, it is the result."""
        for n, k in self.overwritten.items():
            if results[n] is not arrays[k]:
                arrays[k][...] = results[n]
            target = (
                given[k]
                if isinstance(given[k], np.ndarray) and given[k].dtype == arrays[k].dtype
                else arrays[k]
            )
            if target is not arrays[k]:
                target[...] = arrays[k]
            if shared:
                outputs[n] = target
            elif outputs[n] is not results[n]:
                outputs[n][...] = results[n]

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        raise NotImplementedError

    def _result_types(self, arrays: list[np.ndarray]) -> list[Type]:
        """The result types for these arguments; what could not be checked before the sizes were
        known is checked here.
        """
        if self.is_static:
            return list(self.head.result_types)
        if (key := tuple(a.shape for a in arrays)) not in self._types:
            given = [
                as_given(a.known_type, array.shape)
                for a, array in zip(self.head.arguments, arrays, strict=True)
            ]
            if len(self._types) > 1000:
                self._types.clear()
            found = (checks.result_types(given) for checks in self.size_checks)
            known = next((types for types in found if types is not None), None)
            self._types[key] = self._verified(given) if known is None else known
        return self._types[key]

    def _verified(self, given: Sequence[Type]) -> list[Type]:
        """The result types for these argument types, by verifying the program, and the checks by
        which later calls do without.
        """
        from ...dialect.ir.find_deferred_checks import checks_as_in
        from ...dialect.ir.verify import instantiate

        types = instantiate(self.module, self.computed, given)
        results = [types.get(r) or r.known_type for r in self.computed.results]
        if self.left_open is None and len(self.size_checks) < MOST_CHECKS:
            found = checks_as_in(self.module, self.computed, given)
            if found is not None and found.result_types(given) == results:
                self.size_checks.append(found)
        return results

    @DefaultFpEnvironment()
    def lower(self, stage: Stage = "loops") -> str:
        """Return the program at a stage of its lowering, as text.

        Args:
            stage: `"graph"`, `"formulas"`, `"loops"`, `"schedule"`, `"strategies"`, `"mlir"`,
                `"linalg"`, `"llvm"`, `"llvm-opt"`, `"asm"`, `"cuda"` or `"ptx"`.

        Raises:
            Error: There is no such stage.
        """
        from ...lowering.stages import STAGES, show

        with compiling_for(self.compiled_for):
            if stage in STAGES:
                return show(self.module, self.computed, stage, self.options.optimize)
            target = target_of_stage(stage)
            if target.name == self.target:
                return target.stages[stage](self.source, self.options)
            plan = target.plan(self.module, self.computed, self.options)
            return target.stages[stage](target.emit(plan, self.options), self.options)

    def cost(self, by: str = "kernel", **sizes: int) -> "Cost":
        """Count the operations and bytes of a call, exactly.

        Args:
            by: `"kernel"`, or `"operation"` for each operation by its formula.
            sizes: Sizes that are unknown while compiling, `f.cost(N=4)`; others count as 1.

        Raises:
            CallError: No argument has a size of that name.
        """
        from ...lowering.analysis.count_operations import cost
        from ...lowering.operation_costs import operation_costs

        open = {
            d.name for t in self.head.argument_types for d in t.array_shape if isinstance(d, Size)
        }
        for name in sizes:
            if name not in open:
                raise CallError(
                    f"no argument has a size ?{name}{did_you_mean(name, map(str, open))}"
                )
        if by not in ("kernel", "operation"):
            raise CallError(f"cost is counted by kernel or by operation, got {by!r}")
        atoms = {Size.named(name).terms[0][0]: n for name, n in sizes.items()}
        with compiling_for(self.compiled_for):
            if by == "operation":
                return operation_costs(self.module, self.computed, atoms)
            return cost(self.plan, atoms)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.module, self.function, self.options)

    @property
    def compiled_for(self) -> Processor | None:
        """The processor that the code is for; None where none was named, and any will do."""
        return self.options.cpu

    @cached_property
    def plan(self) -> "Plan":
        """The kernels, and where their arrays are."""
        with compiling_for(self.compiled_for):
            return find_target(self.target).plan(self.module, self.computed, self.options)

    @cached_property
    def source(self) -> Any:
        """The target's code for the plan."""
        with compiling_for(self.compiled_for):
            return find_target(self.target).emit(self.plan, self.options)
