"""Compare the examples of operators on all targets: where a formula and a reference differ, both are named with their lines."""

import re
from collections.abc import Sequence
from textwrap import dedent
from typing import Any

import cvm
from cvm.commands.inputs import random_arrays
from cvm.commands.run import named
from cvm.dialect.program.function import Graph
from cvm.dialect.spec.extensions import source_place
from cvm.dialect.spec.op import Operator
from cvm.jit.targets import TARGETS

from .lines import difference

SEEDS = 8


def check_operators(operators: Sequence[type[Operator[Any]]]) -> int:
    """Print a line for each operator that is wrong, and how many were compared; 1 if some are wrong."""
    wrong, targets = 0, [t for t in TARGETS if not TARGETS[t].missing()]
    for op in operators:
        try:
            said = _checked(op, targets)
        except cvm.Error as e:
            said = str(e)
        if said:
            wrong += 1
            print(f"{op.name}: {said}")
    print(f"{len(operators)} operators compared on {', '.join(targets)}, {wrong} wrong")
    return 1 if wrong else 0


def _checked(op: type[Operator[Any]], targets: Sequence[Any]) -> str:
    """The first difference between two targets on the operator's example; empty where there is none."""
    if not dedent(op.example).strip():
        return f"it has no example ({place(op)})"
    module = cvm.parse(dedent(op.example), f"example of {op.name}")
    if any(isinstance(f, Graph) for f in module.functions.values()):
        return ""
    entry = [*module.functions][-1]
    functions: dict[str, Any] = {t: cvm.compile(module, entry, t) for t in targets}
    for seed in range(SEEDS):
        arrays = random_arrays(module.functions[entry], seed)
        results = {t: named(f, f(*[a.copy() for a in arrays])) for t, f in functions.items()}
        reference = results.pop("reference")
        for target, arrays_of_target in results.items():
            for actual, expected in zip(arrays_of_target.values(), reference.values(), strict=True):
                if said := difference(
                    actual, expected, "==" if actual.dtype.kind in "iub" else "~="
                ):
                    formula = getattr(op, "nest" if op.has_nest() else "element")
                    arguments = ", ".join(str(a.tolist()) for a in arrays)
                    at = re.sub(r" it is (.*), not (.*)", r" \1 and \2", said.partition(";")[0])
                    return (
                        f"its formula ({place(formula)}), on {target}, and its reference ({place(op.reference)}) differ: "
                        f"{at}; the arguments are {arguments}"
                    )
    return ""


def place(item: Any) -> str:
    return ":".join(map(str, source_place(item)))
