"""A function with effects on a CPU: machine code for what lies between them.

Effects run in Python in the order of the program, and with them the calls and loops that have some.
Operations between two effects are one compiled function, for the sizes of the call.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from ...dialect.builtin import Calling
from ...dialect.ir.function import Function, Literal, Operation, Value
from ...dialect.ir.module import Module
from ...dialect.ir.verify import instantiated
from ...dialect.support.diagnostics import Diagnostic, TargetError
from ...dialect.types.cast_arrays import with_plain_truths
from ...dialect.types.tensor_types import as_given
from ...lowering.graph.dce import live_operations
from ..options import DEFAULT, CompileOptions
from .compiled_function import CompiledFunction
from .native_function import native_function
from .reference_function import performed

Known: TypeAlias = dict[Value, np.ndarray]
Step: TypeAlias = Callable[[Known], None]  # adds the results of operations


class EffectFunction(CompiledFunction):
    """Runs machine code, and effects in Python between. Code of the parts is kept on disk, effects
    are not part of it.
    """

    target = "cpu"

    def __init__(
        self, module: Module, function: Function, options: CompileOptions = DEFAULT
    ) -> None:
        super().__init__(module, function, options)
        if self.overwritten:
            message = f"@{function.name} has an effect and overwrites an argument"
            raise TargetError(Diagnostic(message, function.span))
        self._compiled: dict[object, tuple[Function, list[Step]]] = {}
        if self.is_static:  # so that what cannot be compiled is not found by a call only
            self._steps(self.computed, [t.array_shape for t in self.computed.argument_types])

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        for output, result in zip(outputs, self._evaluated(self.computed, arrays), strict=True):
            output[...] = result

    def _evaluated(self, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        typed, steps = self._steps(function, [np.shape(a) for a in arrays])
        known = dict(zip(typed.arguments, map(with_plain_truths, arrays), strict=True))
        for step in steps:
            step(known)
        return [v.array if isinstance(v, Literal) else known[v] for v in typed.results]

    def _steps(
        self, function: Function, shapes: Sequence[tuple[Any, ...]]
    ) -> tuple[Function, list[Step]]:
        """The function for arguments of these shapes, and its steps."""
        key = function.name, tuple(shapes)
        if key not in self._compiled:
            types = [
                as_given(a.known_type, shape)
                for a, shape in zip(function.arguments, shapes, strict=True)
            ]
            typed = instantiated(self.module, function, types)
            self._compiled[key] = typed, [*self._built(typed)]
        return self._compiled[key]

    def _built(self, function: Function) -> Iterator[Step]:
        effects = self.module.effects
        live = live_operations(function.operations, function.results, effects=effects)
        groups = [(acts, [*g]) for acts, g in groupby(live, lambda o: o.acts(effects))]
        for n, (acts, operations) in enumerate(groups):
            if acts:
                yield from map(self._acting, operations)
                continue
            later = {v for _, g in groups[n + 1 :] for o in g for _, v in o.operator.operands()}
            results = [r for o in operations for r in o.results]
            wanted = [r for r in results if r in later or r in function.results]
            yield self._compiled_part(f"{function.name}.{n}", operations, wanted)

    def _compiled_part(
        self, name: str, operations: Sequence[Operation], wanted: Sequence[Value]
    ) -> Step:
        """The step that runs operations without effects as machine code."""
        inner = {r for o in operations for r in o.results}
        operands = dict.fromkeys(v for o in operations for _, v in o.operator.operands())
        taken = [v for v in operands if v not in inner and not isinstance(v, Literal)]
        part = Function(name, tuple(taken), tuple(operations), tuple(wanted))
        compiled = native_function(self.module, part, self.options)

        def run(known: Known) -> None:
            results = compiled(*(known[v] for v in taken))
            several = results if isinstance(results, tuple) else (results,)
            known.update(zip(wanted, map(np.asarray, several), strict=True))

        return run

    def _acting(self, operation: Operation) -> Step:
        """The step that performs an effect, or runs a call or a loop that has some."""
        operator = operation.operator
        if not isinstance(operator, Calling):
            return lambda known: known.update(
                zip(operation.results, performed(operation, _in(known)), strict=True)
            )
        callees = [self.module.functions[name] for _, name in operator.callees]

        def run(known: Known) -> None:
            given: Any = operator.map(_in(known))
            results = given.run(*(lambda arrays, f=f: self._evaluated(f, arrays) for f in callees))
            known.update(zip(operation.results, results, strict=True))

        return run


def _in(known: Known) -> Callable[[Value], np.ndarray]:
    return lambda v: v.array if isinstance(v, Literal) else known[v]
