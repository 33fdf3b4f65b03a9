"""Pipelines of passes by name, for people and tests: a module goes down the levels graph, formulas and loops, and every pass
of a level takes it and gives it back. What runs in a compiled program is in `pipeline`; here it is taken apart.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..dialect.notation.loops import Kernel
from ..dialect.program.module import Function, Graph, Module
from ..dialect.program.printer import print_module
from .formulas.build import Formulas, formulas
from .formulas.fuse import fuse
from .graph.differentiate import expand_derivatives
from .graph.inline import inline_calls
from .graph.pipeline import GRAPH_PASSES
from .pipeline import to_plan
from .schedule import PASSES, schedule
from .stepping.split_state import split_state
from .storage.narrow_storage import narrow_storage
from .storage.plan import Plan, make_plan
from .text.printer import formulas_text, kernels_text

LEVELS = ("graph", "formulas", "loops")
CANONICAL = ("simplify", "fold_constants", "simplify")


@dataclass(frozen=True)
class State:
    """A program at one level: the functions of a module, their formulas, or their kernels in plans."""

    module: Module
    formulas: tuple[Formulas, ...] | None = None
    plans: tuple[Plan, ...] | None = None

    @property
    def level(self) -> str:
        return "loops" if self.plans is not None else "formulas" if self.formulas is not None else "graph"

    def text(self, generic: bool = False) -> str:
        """The program as it prints at its level. `generic` is for the graph: MLIR's generic form."""
        if self.plans is not None:
            return "\n".join(kernels_text(plan.kernels) for plan in self.plans)
        if self.formulas is not None:
            return "\n".join(map(formulas_text, self.formulas))
        return print_module(self.module, generic)


@dataclass(frozen=True)
class Pass:
    """A step of a pipeline: the level on which it works, what it does, and a line about it."""

    level: str
    run: Callable[[State], State]
    does: str


def _on_functions(change: Callable[[Module, Function], Function]) -> Callable[[State], State]:
    """A change of each function; graphs, whose operations stand for their whole clock, stay as they are."""

    def run(state: State) -> State:
        functions = {
            name: f if isinstance(f, Graph) else change(state.module, f) for name, f in state.module.functions.items()
        }
        return State(state.module.with_functions(functions))

    return run


def _canonical(_: Module, function: Function) -> Function:
    for name in CANONICAL:
        function = GRAPH_PASSES[name](function)
    return function


def _to_formulas(state: State) -> State:
    module = _unclocked(state.module)
    whole = [inline_calls(module, expand_derivatives(module, f)) for f in module.functions.values()]
    return State(module, tuple(map(formulas, whole)))


def _unclocked(module: Module) -> Module:
    """The module with functions in the place of its graphs: what moves a graph by a tick, and what computes its probes."""
    functions: dict[str, Function] = {}
    for function in module.functions.values():
        if isinstance(function, Graph):
            clocked = split_state(module, function)
            functions |= {f.name: f for f in (clocked.advance, clocked.observe) if f.results}
        else:
            functions[function.name] = function
    return module.with_functions(functions)


def _to_loops(state: State) -> State:
    made = zip(state.formulas or (), state.module.functions.values(), strict=True)
    return replace(state, plans=tuple(to_plan(program, function) for program, function in made))


def _on_plans(change: Callable[[Plan], Plan]) -> Callable[[State], State]:
    return lambda state: replace(state, plans=tuple(map(change, state.plans or ())))


def _does(change: Callable[..., object]) -> str:
    """What a pass says of itself: the start of its module's text."""
    text = " ".join((sys.modules[change.__module__].__doc__ or "").split())
    return re.split(r": |\.(?: |$)", text, maxsplit=1)[0]


STEPS: dict[str, Pass] = {
    "inline": Pass("graph", _on_functions(inline_calls), _does(inline_calls)),
    "differentiate": Pass("graph", _on_functions(expand_derivatives), _does(expand_derivatives)),
    "canonicalize": Pass("graph", _on_functions(_canonical), f"{', '.join(CANONICAL)}, in this order"),
    **{
        name: Pass("graph", _on_functions(lambda _, f, change=change: change(f)), _does(change))
        for name, change in GRAPH_PASSES.items()
    },
    "fuse": Pass(
        "formulas",
        lambda state: replace(state, formulas=tuple(map(fuse, state.formulas or ()))),
        _does(fuse),
    ),
    "narrow_storage": Pass("loops", _on_plans(narrow_storage), _does(narrow_storage)),
    **{
        name: Pass("loops", _on_plans(lambda plan, name=name: schedule(plan, lambda _: (name,))), _does(change))
        for name, change in PASSES.items()
    },
    "schedule": Pass(
        "loops", _on_plans(lambda plan: schedule(narrow_storage(plan))), "All of them, as a compiled program has them"
    ),
}

DOWN: dict[str, Callable[[State], State]] = {"formulas": _to_formulas, "loops": _to_loops}


def lowered(state: State, level: str) -> State:
    """The program on this level, which is not above its own."""
    for below in LEVELS[LEVELS.index(state.level) + 1 : LEVELS.index(level) + 1]:
        state = DOWN[below](state)
    return state


def of_kernels(kernels: Sequence[Kernel]) -> State:
    """Kernels that were read as text, as a program."""
    parameters = dict.fromkeys(t for k in kernels for t in k.parameters)
    return State(Module({}), (), (make_plan("kernels", tuple(parameters), (), {}, tuple(kernels), {}),))
