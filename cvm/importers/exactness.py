"""The exactness contract: how the result of each operator of an imported model compares with the
reference implementation's.

Every rule of an importer declares it: equal in every byte, equal under a condition, or within a
bound. A condition is decided while importing, shown by integer ranges, or checked in calls; where
sums overflow, the reference is undefined.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import cvm
from cvm.dialect.builtin import Calling
from cvm.dialect.ir.function import Function, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.support.diagnostics import Diagnostic, Note, Source, Span

# the program that the verdicts were tested against, and where, by tests/fuzz
REFERENCES = {
    "tflite-reference": "ai-edge-litert 2.3.0 on x86-64, znver4",
    "tosa": "tosa-tools 2026.8.0 on x86-64, znver4",
    "onnxruntime": "onnxruntime 1.32.0 on x86-64, znver4",
}
SHOWN = 5  # places of operators of which the same is said


@dataclass(frozen=True)
class Exactness:
    """Equal results, or those under a condition, or within a bound; `sums` are the operators whose
    overflow breaks the condition.
    """

    condition: str = ""
    bound: str = ""
    sums: tuple[str, ...] = ()

    def __str__(self) -> str:
        stated = f"exact if {self.condition}" if self.condition else "" if self.bound else "exact"
        return ", else ".join(p for p in (stated, self.bound) if p)


ANY = "*"  # of the operators of a program
EXACT = Exactness()
ROUNDED = Exactness(bound="within the rounding of sums and of elementary functions")
SUMS = Exactness(
    "no sum leaves its accumulator",
    sums=(
        "quant.conv2d",
        "quant.depthwise_conv2d",
        "quant.transpose_conv2d",
        "quant.dense",
        "quant.batch_matmul",
        "theano.sum",
    ),
)

HALF = Exactness("the reference rounds each result to f16, also between operators")
WITHIN = Exactness("every element, rounded toward zero, is within the type that it is cast to")


@dataclass(frozen=True, eq=False)
class ImportedOperator:
    """An operator of a model: its name, its place, how exact it is, and the values of the program
    that compute it.
    """

    op: str
    where: str
    exactness: Exactness
    values: frozenset[Value] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """The contract's statement on an operator of one program: `exact`, `exact if` or `bounded`, and
    the condition or the bound.
    """

    operator: str
    where: str
    verdict: str
    said: str = ""


@dataclass(frozen=True, eq=False)
class Imported(Module):
    """The program of a model, with the implementation that it equals, its operators, the state
    that its calls begin with, and the labels whose indices are results.
    """

    reference: str = ""
    operators: Sequence[ImportedOperator] = ()
    state: Mapping[str, np.ndarray] = field(default_factory=dict)  # by the name of the argument
    labels: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by the name of the model's output

    def verdicts(self) -> list[Verdict]:
        """The verdict on each operator, its condition decided by the ranges of integers where it
        can be.
        """
        from cvm.lowering.formulas.overflow_warnings import Analysis

        analysis, main = Analysis(self), frozenset(self.functions["main"].operations)
        for function in self.functions.values():
            analysis.function(function)
        inside = {o.operator.name for o in analysis.overflowing if o not in main}  # of loops
        beyond = {
            r.name: {o.operator.name} for o in analysis.overflowing if o in main for r in o.results
        }
        beyond |= {
            r.name: inside for o in main if isinstance(o.operator, Calling) for r in o.results
        }
        return [
            self._verdict(o, {n for v in o.values for n in beyond.get(v.name, ())})
            for o in self.operators
        ]

    def _verdict(self, operator: ImportedOperator, overflowing: Iterable[str]) -> Verdict:
        exactness = operator.exactness
        if not exactness.condition:
            return Verdict(
                operator.op,
                operator.where,
                "bounded" if exactness.bound else "exact",
                exactness.bound,
            )
        if exactness.sums and not any(
            name in exactness.sums or ANY in exactness.sums for name in overflowing
        ):
            return Verdict(
                operator.op, operator.where, "exact", f"ranges show that {exactness.condition}"
            )
        return Verdict(operator.op, operator.where, "exact if", exactness.condition)


def live(operators: Sequence[ImportedOperator], function: Function) -> list[ImportedOperator]:
    """The operators on which the results of a function depend, with those of their values that it
    has.
    """
    live_values = frozenset(function.values())
    return [
        replace(o, values=o.values & live_values)
        for o in operators
        if not o.values or o.values & live_values
    ]


def verdicts(program: object, reference: str) -> list[Verdict]:
    """The verdicts on the operators of a program; raises where the program was not imported to
    equal this reference.
    """
    if reference not in REFERENCES:
        raise cvm.Error(f"a reference is one of {', '.join(REFERENCES)}, got {reference!r}")
    if not isinstance(program, Imported):
        raise cvm.Error(
            f"exactness as {reference} is a property of an imported model, such as "
            "cvm.from_tflite gives"
        )
    if program.reference != reference:
        imported_as = program.reference or "kernels of another rounding"
        raise cvm.Error(
            f"nothing is known of exactness as {reference}: the model was imported to "
            f"equal {imported_as}"
        )
    return program.verdicts()


def require(program: object, reference: str) -> None:
    """Raises VerifyError with all operators of an imported program that are only within a bound of
    the reference.
    """
    bounded = [v for v in verdicts(program, reference) if v.verdict == "bounded"]
    if bounded and isinstance(program, Imported):
        message = (
            f"{len(bounded)} operator{'s' * (len(bounded) > 1)} of the model cannot be exact "
            f"as {reference}"
        )
        where = Span(Source(program.filename, ""), 0, 0)
        raise cvm.VerifyError(
            Diagnostic(message, where, "exactness", tuple(Note(line) for line in summary(bounded)))
        )


def summary(entries: Sequence[Verdict]) -> list[str]:
    """A line for all operators of which the same is said."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for v in entries:
        alike.setdefault((v.operator, v.verdict, v.said), []).append(v.where)
    shown = {"exact": "exact: {}", "exact if": "exact if {}", "bounded": "{}"}
    return [
        f"{len(places)} x {operator}: {shown[verdict].format(said).removesuffix(': ')}"
        f" ({', '.join(places[:SHOWN])}{', ...' * (len(places) > SHOWN)})"
        for (operator, verdict, said), places in alike.items()
    ]
