"""A compiled function: checks its arguments, runs on its target, and shows every stage of its lowering."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dialect.destroy import arguments_overwritten
from ..dialect.expansion import check_expansion
from ..dialect.program import Function, Module
from ..dialect.source import CallError, Diagnostic, TargetError, VerifyError
from ..dialect.types import Type, as_given, evaluate
from ..dialect.verify import callees_first, instantiate
from ..lowering.cost import Cost, cost
from ..lowering.inline import has_derivatives
from ..lowering.pipeline import lower, lower_for_gpu
from ..lowering.plan import Plan
from ..lowering.stages import STAGES, show
from . import fastcall
from .arguments import in_order, samples_of, size_place, take_arguments, take_outputs
from .call_table import CallTable, atoms_of, can_serve, leave
from .cuda import Source
from .cuda import emit as emit_cuda
from .llvm import Text, emit
from .reference import evaluate as evaluate_reference
from .threads import imports, is_parallel
from .within import all_within_text, declared

if TYPE_CHECKING:
    from .kept import Compiled

LARGEST_KEPT = 1 << 24  # bytes of workspace that a function with a direct entry keeps
LARGEST_RESULT = 1 << 32  # bytes of a result that a direct entry makes
WORTH_RELEASING = 50_000  # operations and bytes of a call from which on other threads run meanwhile
ENTRY = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)  # the entry's parameters: pointers, sizes, workspace
ALL_STAGES = (*STAGES, "llvm", "llvm-opt", "asm", "cuda", "ptx")


def compile_function(module: Module, entry: str = "main", target: str = "cpu") -> CompiledFunction:
    """Compiles one function of a verified module for a target of TARGETS."""
    function = find(module, entry, target)
    if too_much := check_expansion(module, callees_first(module)[0]):
        raise VerifyError(too_much)
    if has_derivatives(module, function):
        from ..lowering.differentiate import expand_derivatives  # and with it the theano dialect

        function = expand_derivatives(module, function)
        module = module.with_functions({**module.functions, entry: function})
    try:
        return TARGETS[target](module, function)
    except MemoryError as e:
        raise TargetError(Diagnostic(f"memory does not suffice to compile @{entry}: {e}", function.span)) from None


def find(module: Module, entry: str, target: str) -> Function:
    """The function or graph of this name; TargetError where it or the target is unknown."""
    if target not in TARGETS:
        raise TargetError(f"unknown target {target!r}; the targets are {', '.join(TARGETS)}")
    if entry not in module.functions:
        names = ", ".join(f"@{n}" for n in module.functions) or "none"
        raise TargetError(f"the program has no function @{entry}; it has {names}")
    return module.functions[entry]


class CompiledFunction:
    """One function of a program on one target: NumPy arrays in, NumPy arrays out, a tuple for several results."""

    target = ""

    def __init__(self, module: Module, function: Function) -> None:
        self.module = module
        self.function = function
        self._static = all(t.is_static for t in (*function.argument_types, *function.result_types))
        self._overwritten = arguments_overwritten(function)
        self._types: dict[tuple[tuple[int, ...], ...], list[Type]] = {}

    def __repr__(self) -> str:
        types = ", ".join(map(str, self.function.argument_types))
        return f"<cvm function @{self.function.name}({types}) on {self.target}>"

    def __call__(self, /, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """Runs the function. Arguments are checked, and may be named; `out` is an array, or a tuple of them, to write the results into."""
        arguments = in_order(self.function, arguments, named)
        try:
            return self._called(arguments, out)
        except MemoryError as e:
            raise CallError(Diagnostic(f"memory does not suffice: {e}", self.function.span, "run")) from None

    def _called(self, arguments: tuple[Any, ...], out: Any) -> Any:
        arrays = take_arguments(self.function, arguments)
        types = self._result_types(arrays)
        outputs, copies = take_outputs(out, types, arrays, self.function)
        results = self._in_storage(arguments, arrays, outputs)
        self._run(arrays, results)
        self._leave(arguments, arrays, outputs, results, out is None)
        for fresh, array in copies:
            array[...] = fresh
        if out is not None:
            return out
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def batch(self, *arguments: Sequence[Any]) -> list[Any]:
        """The function on each sample: one list per argument, arrays of one rank, their shapes as the program allows.

        An argument that is not a list is the same for every sample.
        """
        return [self(*sample) for sample in samples_of(arguments)]

    def _in_storage(
        self, given: Sequence[Any], arrays: list[np.ndarray], outputs: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Where to compute the results: an argument's array where the plan says that one takes its storage."""
        for k in self._overwritten.values():
            if isinstance(given[k], np.ndarray) and not given[k].flags.writeable:
                argument = self.function.arguments[k]
                raise CallError(
                    Diagnostic(
                        f"argument %{argument.name} is overwritten, but the array is read-only",
                        argument.span,
                        "call.argument",
                    )
                )
        found = list(outputs)
        for n in self._computed_in_place:
            k = self._overwritten[n]
            if _shares(arrays, k):
                arrays[k] = arrays[k].copy()
            found[n] = arrays[k]
        return found

    def _leave(
        self,
        given: Sequence[Any],
        arrays: list[np.ndarray],
        outputs: list[np.ndarray],
        results: list[np.ndarray],
        shared: bool,
    ) -> None:
        """Every overwritten argument holds its result; without `out`, it is the result."""
        for n, k in self._overwritten.items():
            if results[n] is not arrays[k]:
                arrays[k][...] = results[n]
            target = given[k] if isinstance(given[k], np.ndarray) and given[k].dtype == arrays[k].dtype else arrays[k]
            if target is not arrays[k]:
                target[...] = arrays[k]
            if shared:
                outputs[n] = target
            elif outputs[n] is not results[n]:
                outputs[n][...] = results[n]

    @property
    def _computed_in_place(self) -> frozenset[int]:
        """The results that are computed in the storage of the argument they overwrite."""
        return frozenset()

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        raise NotImplementedError

    def _result_types(self, arrays: list[np.ndarray]) -> list[Type]:
        """The result types for these arguments; what could not be checked before the sizes were known is checked here."""
        if self._static:
            return list(self.function.result_types)
        key = tuple(a.shape for a in arrays)
        if key not in self._types:
            given = [
                as_given(a.known_type, array.shape) for a, array in zip(self.function.arguments, arrays, strict=True)
            ]
            types = instantiate(self.module, self.function, given)
            if len(self._types) > 1000:
                self._types.clear()
            self._types[key] = [types.get(r) or r.known_type for r in self.function.results]
        return self._types[key]

    def lower(self, stage: str = "loops") -> str:
        """The program at a stage of its lowering: graph, formulas, loops, llvm, llvm-opt, asm, cuda or ptx."""
        if stage in STAGES:
            return show(self.module, self.function, stage)
        if stage == "llvm":
            return self.native_text.module
        if stage in ("llvm-opt", "asm"):
            from . import native

            text = self.native_text.module
            return str(native.optimise(text)) if stage == "llvm-opt" else native.assembly(text)
        if stage in ("cuda", "ptx"):
            return self.gpu_source.text if stage == "cuda" else self.ptx
        raise TargetError(f"unknown stage {stage!r}; the stages are {', '.join(ALL_STAGES)}")

    def cost(self) -> Cost:
        """Operations and bytes per call, counted from the kernels; each size not known while compiling counts as 1."""
        return cost(self.plan)

    def __reduce__(self) -> tuple[object, ...]:
        return compile_function, (self.module, self.function.name, self.target)

    @cached_property
    def plan(self) -> Plan:
        return lower(self.module, self.function)

    @cached_property
    def native_text(self) -> Text:
        return emit(self.plan)

    @cached_property
    def gpu_plan(self) -> Plan:
        return lower_for_gpu(self.module, self.function)

    @cached_property
    def gpu_source(self) -> Source:
        return emit_cuda(self.gpu_plan)

    @cached_property
    def ptx(self) -> str:
        """The kernels in NVIDIA's assembly language, by NVRTC."""
        from .nvrtc import compile_source

        return compile_source(self.gpu_source.text).decode()


def _shares(arrays: Sequence[np.ndarray], k: int) -> bool:
    """Whether another argument lies in the same memory."""
    return any(np.may_share_memory(arrays[k], a) for n, a in enumerate(arrays) if n != k)


class ReferenceFunction(CompiledFunction):
    """Evaluates each operation's formal definition."""

    target = "reference"

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        for output, result in zip(outputs, evaluate_reference(self.module, self.function, arrays), strict=True):
            assert output.shape == result.shape and output.dtype == result.dtype, (
                f"the reference gave {result.dtype}{list(result.shape)}, inferred was {output.dtype}{list(output.shape)}"
            )
            output[...] = result


class NativeFunction(CompiledFunction):
    """Runs native code made by LLVM. Thread-safe; the GIL is released while it runs."""

    target = "cpu"

    def __init__(self, module: Module, function: Function) -> None:
        super().__init__(module, function)
        from . import kept
        from .native import Library

        name = kept.name_of(module, function)
        made = kept.load(name, function) if name is not None else None
        if made is None:
            made = self._compile()
            if name is not None:
                kept.store(name, function, made)
        self._made = made
        self._constant_pointers = [c.ctypes.data for c in made.constants]
        within = ("within",) if made.within else ()
        self.library = Library(made.image, {"entry": ENTRY}, within, imports(made.parallel))
        self._atoms = atoms_of(function.argument_types, made.sizes)
        self._size_places = {atom: size_place(function, atom) for atom in self._atoms}
        self._scratch = threading.local()
        self._direct: CallTable | None = None
        if fastcall.usable() and isinstance(self, fastcall.direct_base()):
            self._call_directly()

    def _compile(self) -> Compiled:
        from .kept import Compiled
        from .native import fresh_object_code

        plan, text, work = self.plan, self.native_text, self.cost()
        within = self._ranges_text()
        return Compiled(
            fresh_object_code(text.module + within),
            tuple(np.ascontiguousarray(c) for c in plan.constants.values()),
            plan.workspace,
            text.sizes,
            text.requirements,
            frozenset(n for n, k in self._overwritten.items() if plan.results[n] is plan.arguments[k]),
            work.operations + work.bytes_read + work.bytes_written > WORTH_RELEASING,
            is_parallel(text.module),
            bool(within),
        )

    @property
    def _computed_in_place(self) -> frozenset[int]:
        return self._made.in_place

    @property
    def _is_direct(self) -> bool:
        """Whether calls need not pass through Python: arguments are only read, and looked at where that is easy."""
        function = self.function
        asked = {k for a in function.arguments for k in a.attributes}
        plain = not asked - ({"range"} if self._static else set()) and function.results
        return bool(plain and can_serve(function.argument_types) and self._results_are_had())

    def _results_are_had(self) -> bool:
        """Whether memory for results of known sizes is no question; where it is, the slow entry says so."""
        static = (t for t in self.function.result_types if t.is_static)
        return all(evaluate(t.size, {}) * t.element.bytes < LARGEST_RESULT for t in static)

    def _ranges_text(self) -> str:
        """The IR of a function that says whether arguments lie in their ranges, where a direct call asks it."""
        looked = declared(self.function) if self._is_direct else {}
        return all_within_text(looked) if looked else ""

    def _call_directly(self) -> None:
        """Calls of this object go to machine code, which leaves to `__call__` of this class what it does not take."""
        slow = MethodType(NativeFunction.__call__, weakref.proxy(self))
        if self._is_direct:
            self._direct = self.call_table(slow)
            self._direct.serve(self)
        else:
            self._kept = leave(self, slow)

    @property
    def knows_its_sizes(self) -> bool:
        """Whether all calls like one that was made are direct."""
        return self._direct is not None and self._static

    def call_table(self, slow: Callable[..., Any]) -> CallTable:
        """What the code that Python calls has to know of this function."""
        function, made = self.function, self._made
        addresses = self.library.addresses
        types = function.argument_types, function.result_types
        table = CallTable(slow, addresses["entry"], addresses.get("within", 0), *types, made.constants, self._atoms)
        if self._static:
            assert isinstance(made.workspace, int)
            shapes: list[Any] = [t.array_shape for t in (*types[0], *types[1])]
            if made.workspace < LARGEST_KEPT:
                table.know((), shapes, made.workspace, made.release)
        return table

    def _run(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        sizes = {atom: arrays[n].shape[axis] for atom, (n, axis) in self._size_places.items()}
        known = (ctypes.c_int64 * len(sizes))(*sizes.values())
        work = self.workspace(sizes)
        self.report(self.library.functions["entry"](self.pointers([*arrays, *outputs]), known, work))
        if self._direct is not None and not self._static:
            self._know(sizes, [*arrays, *outputs])

    def _know(self, sizes: Mapping[Any, int], arrays: list[np.ndarray]) -> None:
        """Later calls with sizes that were checked in this one are direct."""
        workspace = evaluate(self._made.workspace, sizes)
        moved = workspace + sum(a.nbytes for a in (*arrays, *self._made.constants))
        if self._direct is not None and workspace < LARGEST_KEPT:
            self._direct.know(
                tuple(sizes.values()), [a.shape for a in arrays], workspace, moved > WORTH_RELEASING // 10
            )

    def pointers(self, arrays: list[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
        """The table that the entry takes: arguments and results, then the constants."""
        addresses = [*(a.ctypes.data for a in arrays), *self._constant_pointers]
        return (ctypes.c_void_p * len(addresses))(*addresses)

    def report(self, status: int) -> None:
        """Raises CallError for the requirement that a status names."""
        if status:
            message, span = self._made.requirements[status - 1]
            raise CallError(Diagnostic(message, span, "run"))

    def workspace(self, sizes: Mapping[Any, int]) -> int:
        """The address of memory for intermediate arrays, kept for this thread's next call."""
        needed = evaluate(self._made.workspace, sizes)
        if not needed:
            return 0
        held: np.ndarray | None = getattr(self._scratch, "memory", None)
        if held is None or held.size < needed + 64:
            held = self._scratch.memory = np.empty(needed + 64, np.uint8)
        return (held.ctypes.data + 63) // 64 * 64


def _native(module: Module, function: Function) -> CompiledFunction:
    kind: type[NativeFunction] = fastcall.direct(NativeFunction) if fastcall.usable() else NativeFunction
    return kind(module, function)


def _simulated(module: Module, function: Function) -> CompiledFunction:
    from .gpu import SimulatedFunction  # the emulator, loaded when it is asked for

    return SimulatedFunction(module, function)


def _on_gpu(module: Module, function: Function) -> CompiledFunction:
    from .cuda_function import CudaFunction

    return CudaFunction(module, function)


TARGETS: dict[str, Callable[[Module, Function], CompiledFunction]] = {
    "cpu": _native,
    "reference": ReferenceFunction,
    "cuda": _on_gpu,
    "cuda-sim": _simulated,
}
