"""Prove that two programs give the same results for all inputs, or find a counterexample.

A query asks z3 for inputs at which an element of a result, or whether the program fails, differs.
Where z3 answers in time that there are none, the programs are proved equal. Other questions end in
tests: products of wide integers, which are then proved in fewer bits, and functions that
stand for themselves, as those of floats do.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product, takewhile
from math import prod
from time import monotonic
from typing import Any

import numpy as np
import z3

import cvm
from cvm.dialect.ir.function import Function, Value
from cvm.dialect.ir.module import Module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.formulas import Formulas, LoopNest, Nest
from cvm.dialect.types.sizes import Size, key_of
from cvm.dialect.types.unify import agree, bind
from cvm.jit.compile import find, prepared
from cvm.jit.functions.formula_function import FormulaFunction, FormulaReference
from cvm.jit.options import DEFAULT
from cvm.jit.targets import find_target
from cvm.lowering.analysis.integer_ranges import declared_range
from cvm.lowering.passes import Pass, run_passes
from cvm.lowering.pipeline import UNOPTIMIZED_FORMULAS, context_of
from cvm.testing.differences import Arrays, distance, smallest

from .bit_vectors import Arithmetic, Term, Unsupported, nodes, simplified, symbols_of, variables
from .execution import Execution
from .meaning import OUTER, Symbols, Translation

SECONDS = 60.0  # to write the terms of a pair of programs, and for z3's answer
NARROW = (8, 16)  # bits in which products are proved that z3 has no time for (by hand)
TESTS = 300  # calls with random inputs, at most (by hand)
TEST_SECONDS = 10.0  # for the calls with random inputs (by hand)
MAX_LISTED = 64  # elements of a result that are proved one by one, at most (by hand)
MAX_NAMED = 3  # functions that a verdict lists (by hand)
MAX_SIZE = 5  # of random inputs along a size that is not known (by hand)
MAX_CASES = 6  # choices that are told apart before z3 searches, at most; bounds time (by hand)
MAX_ELEMENTS = 1 << 16  # of an argument of a counterexample (by hand)
EDGES = (0, 1, -1, 2)  # integers that random inputs hold often, beside the limits of the type


@dataclass(frozen=True)
class Program:
    """A program with its formulas and a function that computes it, slowly and obviously."""

    label: str
    function: Function
    formulas: Formulas | Plan
    evaluate: Callable[[Arrays], Sequence[np.ndarray]]

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.function.arguments

    @property
    def may_not_end(self) -> bool:
        """Test for a loop that runs as long as data says."""
        steps = self.formulas.steps if isinstance(self.formulas, Formulas) else ()
        return any(isinstance(s, LoopNest) and s.steps.trips is None for s in steps)


@dataclass(frozen=True)
class Verdict:
    """The outcome for two programs: proved, proved in fewer bits (`narrow`), tested by a number of
    calls, or wrong for some arguments. `reason` says why there is no proof.
    """

    proved: bool = False
    narrow: tuple[int, ...] = ()
    tests: int = 0
    reason: str = ""
    wrong: Arrays | None = None
    bits: int = 0  # of the integers whose products are too wide

    @property
    def kind(self) -> str:
        return (
            "wrong"
            if self.wrong is not None
            else "proved"
            if self.proved
            else "proved in fewer bits and tested"
            if self.narrow
            else "tested"
        )

    def __str__(self) -> str:
        if self.wrong is not None:
            return "wrong"
        if self.proved:
            return "proved for all inputs"
        if self.narrow:
            widths = " and ".join(map(str, self.narrow))
            return f"proved at {widths} bits, tested on {self.tests} inputs at {self.bits} bits"
        return f"{f'tested on {self.tests} inputs' if self.tests else 'not proved'} ({self.reason})"


def program_of(module: Module, name: str, compiled: bool = False) -> Program:
    """The program of a function of a module, which the reference computes, or, as kernels round
    functions and sums of floats, code without any optimization.
    """
    evaluate: object = (
        cvm.compile(module, name, "cpu", optimize=0)
        if compiled
        else cvm.compile(module, name, "reference")
    )
    module, function = prepared(module, name)
    formulas = run_passes(UNOPTIMIZED_FORMULAS, function, context_of(module, function))
    return Program(f"@{name}", module.functions[name], formulas, tuple_of(evaluate))


def program_after(module: Module, name: str, passes: Sequence[Pass[..., Any]]) -> Program:
    """The program that passes make of a function."""
    function = find(module, name)
    after = run_passes(passes, function, context_of(module, function))
    if isinstance(after, Function):
        return program_of(module.with_functions({**module.functions, name: after}), name)
    compiled: Any
    if isinstance(after, Plan):
        elements = [v.known_type.element for v in (*function.arguments, *function.results)]
        if elements != [t.element for t in (*after.arguments, *after.results)]:
            raise cvm.TargetError(
                "kernels of complex numbers or bf16 have other types than functions"
            )
        compiled = find_target("cpu").compile_kernels(after, DEFAULT)
    elif any(isinstance(s, Nest) for s in after.steps):  # which run as they are compiled
        compiled = FormulaFunction(after, DEFAULT)
    else:
        compiled = FormulaReference(after, DEFAULT)
    return Program(f"@{name} after passes", function, after, tuple_of(compiled))


def tuple_of(f: Callable[..., Any]) -> Callable[[Arrays], Sequence[np.ndarray]]:
    def evaluate(arrays: Arrays) -> Sequence[np.ndarray]:
        found = f(*(a.copy() for a in arrays))
        return found if isinstance(found, tuple) else (found,)

    return evaluate


def same_signature(left: Function, right: Function) -> bool:
    """Test whether two functions take and give the same types, up to the names of sizes."""
    pairs = ((left.arguments, right.arguments), (left.results, right.results))
    return all(
        len(a) == len(b)
        and all(agree(x.known_type, y.known_type) for x, y in zip(a, b, strict=True))
        for a, b in pairs
    )


def prove(left: Program, right: Program, seconds: float = SECONDS) -> Verdict:
    """Prove two programs of one signature equal, for the sizes and ranges that both declare."""
    try:
        query = _Query(left, right, Symbols(deadline=monotonic() + seconds))
        answer = query.answer(seconds)
    except (Unsupported, RecursionError) as e:
        nested = isinstance(e, RecursionError)
        return tested(left, right, f"no proof covers {'formulas so deep' if nested else e}")
    if answer == z3.unsat:
        return Verdict(proved=True)
    arithmetic = query.symbols.arithmetic
    arrays = query.arguments() if answer == z3.sat else None
    if arrays is not None and _differ(left, right, arrays):
        return Verdict(wrong=_smallest(left, right, arrays))
    if arithmetic.abstract:
        names = [*arithmetic.abstract]
        more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
        return tested(left, right, f"no proof covers {', '.join(names[:MAX_NAMED] + more)}")
    if answer == z3.sat:
        return tested(left, right, "the counterexample that z3 finds cannot be run, or is none")
    verdict = tested(left, right, f"z3 has no answer within {seconds:g} s")
    widths = [w for w in arithmetic.widths if w > max(NARROW)]
    if verdict.wrong is None and arithmetic.products and len(arithmetic.widths) == len(widths) == 1:
        narrow = (*takewhile(lambda n: proved_in(left, right, n, seconds), NARROW),)
        return replace(verdict, narrow=narrow, bits=widths[0])
    return verdict


def proved_in(left: Program, right: Program, bits: int, seconds: float) -> bool:
    try:
        query = _Query(left, right, Symbols(Arithmetic(bits)))
    except Unsupported:
        return False
    return query.answer(seconds) == z3.unsat


class _Query:
    """The question to z3: inputs for which an element of a result differs."""

    def __init__(self, left: Program, right: Program, symbols: Symbols) -> None:
        self.left, self.symbols = left, symbols
        types = [[a.known_type for a in p.arguments] for p in (right, left)]
        self.bound = bind(*types)
        limits = _limits(left, right)
        for stated, given in zip(*types, strict=True):
            for a, b in zip(stated.array_shape, given.array_shape, strict=True):
                symbols.facts.append(symbols.size(a, self.bound) == symbols.size(b, {}))
        assert isinstance(left.formulas, Formulas)
        one = Translation(left.formulas, symbols, {}, limits)
        like = [*left.formulas.arguments, *left.formulas.results]
        other: Translation = (
            Translation(right.formulas, symbols, self.bound, limits)
            if isinstance(right.formulas, Formulas)
            else Execution(right.formulas, symbols, limits, like)
        )
        self.has_tables = any(a.size > 1 for a in left.formulas.constants.values())
        # each with the facts about its own indices, which hold for no element of another result
        self.claims: list[tuple[Term, Sequence[Term]]] = []
        results = zip(left.formulas.results, right.formulas.results, strict=True)
        for n, (tensor, same) in enumerate(results):
            shape = one.shape(tensor)
            self.claims += [(a == b, ()) for a, b in zip(shape, other.shape(same), strict=True)]
            for at, facts in self.places(shape, n, each=isinstance(other, Execution)):
                a, b = one.result(n, at), other.result(n, at)
                equal = z3.Implies(a.defined, a.value == b.value)
                self.claims += [(a.defined == b.defined, facts), (equal, facts)]
        self.models: list[Any] = []

    def places(
        self, shape: Sequence[Term], result: int, each: bool
    ) -> Iterator[tuple[Sequence[Term], Sequence[Term]]]:
        """An element of a result at any indices, with the facts about these; or each of its
        elements, which kernels store; and each along the axes of few, where constants differ from
        one to the next.
        """
        sizes = [simplified(n) for n in shape]
        known = [n.as_long() if z3.is_int_value(n) else None for n in sizes]
        if each and None in known:
            raise Unsupported("kernels of arrays whose sizes are not known")
        few = self.has_tables and prod(n or 1 for n in known) <= MAX_LISTED
        ranges = [None if n is None or not (each or few) else range(n) for n in known]
        indices = [z3.FreshInt(f"{OUTER}{result}.{axis}") for axis in range(len(sizes))]
        open = [(i, n) for i, n, r in zip(indices, sizes, ranges, strict=True) if r is None]
        facts = [fact for i, n in open for fact in (i >= 0, i < n)]
        for point in product(*([None] if r is None else r for r in ranges)):
            at = [i if p is None else z3.IntVal(p) for p, i in zip(point, indices, strict=True)]
            yield at, facts

    def answer(self, seconds: float) -> Any:
        """z3's answer; sat where there are such inputs, which `arguments` gives then."""
        unknown, end = False, monotonic() + seconds
        for claim, own in self.claims:
            plain = z3.simplify(claim)
            if any(_by_cases(c, MAX_CASES) for c in (plain, _without_signs(plain))):
                continue
            near, far = self.relevant(claim, own)
            if (seconds := end - monotonic()) <= 0:
                return z3.unknown
            solver = _solver([z3.Not(claim), *near], seconds)
            if (answer := solver.check()) == z3.sat:
                self.models = [self.small(solver)]
                others = _solver(far, seconds)
                if (rest := others.check()) == z3.unsat:  # as for a result without elements
                    continue
                if rest == z3.sat:
                    self.models.append(self.small(others))
                return z3.sat
            unknown |= answer == z3.unknown
        return z3.unknown if unknown else z3.unsat

    def small(self, solver: Any) -> Any:
        """A model with small sizes, if there is one."""
        model = solver.model()
        names = {v for claim in solver.assertions() for v in variables(claim)}
        sizes = [s for s in self.symbols.sizes.values() if s.decl().name() in names]
        for most in (1, 2, 4, 8, 32):
            solver.push()
            solver.add(*(s <= most for s in sizes))
            if solver.check() == z3.sat:
                return solver.model()
            solver.pop()
        return model

    def relevant(self, claim: Term, own: Sequence[Term]) -> tuple[list[Term], list[Term]]:
        """The facts that share symbols with a claim, directly or by others, and the other facts."""
        names = variables(claim)
        far = [(f, variables(f)) for f in (*self.symbols.facts, *own)]
        near: list[Term] = []
        while any(of & names for _, of in far):
            near += [f for f, of in far if of & names]
            far, reached = [p for p in far if not p[1] & names], [p for p in far if p[1] & names]
            names.update(*(of for _, of in reached))
        return near, [f for f, _ in far]

    def value(self, term: Term) -> int:
        """The value of a term in the models, each of which has other symbols."""
        for model in self.models:
            term = model.eval(term)
        found = simplified(z3.substitute(term, *((c, _zero(c)) for c in symbols_of(term))))
        if z3.is_bool(found):
            return int(z3.is_true(found))
        return found.as_long()

    def arguments(self) -> Arrays | None:
        """The arguments of the models; None if they are too large to be shown."""
        arrays: Arrays = []
        limits = _limits(self.left, self.left)
        for n, argument in enumerate(self.left.arguments):
            type = argument.known_type
            shape = [self.value(self.symbols.size(d, {})) for d in type.array_shape]
            if np.prod(shape, dtype=float) > MAX_ELEMENTS:
                return None
            low, high = limits.get(n, (0, 0))
            arrays.append(np.full(shape, min(max(low, 0), high), type.element.dtype))
        for element in self.symbols.elements.values():
            if not isinstance(element.argument, int):
                continue
            array = arrays[element.argument]
            place = tuple(self.value(i) for i in element.indices)
            if all(0 <= i < n for i, n in zip(place, array.shape, strict=True)):
                bits, type = self.value(element.value), element.type
                raw = bits.to_bytes(type.bytes, "little")
                array[place] = np.frombuffer(raw, type.dtype)[0]
        return arrays


def _by_cases(claim: Term, choices: int) -> bool:
    """Test whether a claim holds by the laws of rings alone, whichever way its choices go."""
    if z3.is_true(claim) or z3.is_true(z3.simplify(claim, som=True)):
        return True
    test = next((t.arg(0) for t in nodes(claim) if z3.is_app_of(t, z3.Z3_OP_ITE)), None)
    if test is None or not choices:
        return False
    return all(
        _by_cases(z3.simplify(z3.substitute(claim, (test, z3.BoolVal(side)))), choices - 1)
        for side in (True, False)
    )


def _without_signs(term: Term) -> Term:
    """A simplified term over bit vectors that are extended by zeros alone: of a number x of 8
    bits, x ^ 128 is x + 128 without a sign.
    """
    pairs: list[tuple[Term, Term]] = []
    for node in nodes(term):
        if z3.is_app_of(node, z3.Z3_OP_CONCAT):
            *signs, inner = node.children()
            top = inner.size() - 1
            if all(s.eq(z3.simplify(z3.Extract(top, top, inner))) for s in signs):
                unsigned = z3.ZeroExt(len(signs), inner ^ (1 << top))
                pairs.append((node, unsigned - (1 << top)))
    return z3.simplify(z3.substitute(term, *pairs)) if pairs else term


def _zero(constant: Term) -> Term:
    if z3.is_bool(constant):
        return z3.BoolVal(False)
    return z3.IntVal(0) if z3.is_int(constant) else z3.BitVecVal(0, constant.size())


def _solver(claims: Sequence[Term], seconds: float) -> Any:
    goal = z3.Goal()
    goal.add(*claims)
    pure = z3.Probe("is-qfbv")(goal) != 0
    solver = z3.SolverFor("QF_BV") if pure else z3.Solver()
    solver.set("timeout", int(seconds * 1000))
    solver.add(*claims)
    return solver


def _limits(left: Program, right: Program) -> dict[int, tuple[int, int]]:
    """The ranges that both programs declare of their arguments."""
    limits: dict[int, tuple[int, int]] = {}
    for n, pair in enumerate(zip(left.arguments, right.arguments, strict=True)):
        if ranges := [r for r in map(declared_range, pair) if r is not None]:
            low, high = max(r.low for r in ranges), min(r.high for r in ranges)
            if low > high:
                name = pair[0].name
                raise cvm.Error(f"the ranges declared of %{name} have no number in common")
            limits[n] = low, high
    return limits


# Tests


def random_inputs(left: Program, right: Program, seed: int) -> Arrays:
    """Random arguments: numbers of all magnitudes, often at the edges of their type."""
    random = np.random.default_rng(seed)
    limits, sizes = _limits(left, right), dict[Any, int]()
    arrays: Arrays = []
    for n, argument in enumerate(left.arguments):
        type = argument.known_type
        shape = [
            sizes.setdefault(key_of(d), int(random.integers(MAX_SIZE + 1)))
            if isinstance(d, Size)
            else d
            for d in type.array_shape
        ]
        arrays.append(_elements(random, type.element, shape, limits.get(n)))
    return arrays


def _elements(random: Any, element: Any, shape: Sequence[int], limits: Any) -> np.ndarray:
    if element.is_discrete:
        low, high = limits or element.limits
        wide = random.integers(low, high, shape, np.uint64 if high >= 2**63 else np.int64, True)
        small = wide >> random.integers(0, max(element.bits, 1), shape).astype(wide.dtype)
        edges = [n for n in (*EDGES, low, high, low + 1, high - 1) if low <= n <= high]
        edge = np.array(edges, wide.dtype)[random.integers(len(edges), size=shape)]
        kind = random.integers(3, size=shape)
        found = np.where(kind == 0, edge, np.where((kind == 1) & (small >= low), small, wide))
        return found.astype(element.dtype)
    numbers = random.standard_normal(shape) * 10.0 ** random.integers(-6, 7, shape)
    edges = np.array([0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan])
    numbers = np.where(random.random(shape) < 0.2, edges[random.integers(8, size=shape)], numbers)
    if element.kind == "complex":
        numbers = numbers + 1j * random.standard_normal(shape)
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(element.dtype)


def _outcome(program: Program, arrays: Arrays) -> Sequence[np.ndarray] | None:
    """The results; None where the call fails. Raises VerifyError for sizes that are refused."""
    try:
        return program.evaluate(arrays)
    except cvm.VerifyError:
        raise
    except cvm.Error:
        return None


def _differ(left: Program, right: Program, arrays: Arrays) -> bool:
    """Test whether results differ, or one of the calls fails; sizes that one of the programs
    refuses are none of both.
    """
    try:
        a, b = _outcome(left, arrays), _outcome(right, arrays)
    except cvm.VerifyError:
        return False
    if a is None or b is None:
        return (a is None) != (b is None)
    return any(
        x.shape != y.shape or bool(np.any(distance(x, y) > 0)) for x, y in zip(a, b, strict=True)
    )


def _smallest(left: Program, right: Program, arrays: Arrays) -> Arrays:
    limits = _limits(left, right)

    def shows(tried: Arrays) -> bool | None:
        inside = all(
            limits[n][0] <= a.min(initial=limits[n][0])
            and a.max(initial=limits[n][1]) <= limits[n][1]
            for n, a in enumerate(tried)
            if n in limits
        )
        return True if inside and _differ(left, right, tried) else None

    return smallest(left.function, arrays, shows)


def tested(left: Program, right: Program, reason: str) -> Verdict:
    """The verdict of calls with random inputs; those that both programs refuse do not count."""
    began, tests = monotonic(), 0
    if left.may_not_end:
        return Verdict(reason=f"{reason}, and `while` need not end")
    for seed in range(TESTS):
        arrays = random_inputs(left, right, seed)
        if _differ(left, right, arrays):
            return Verdict(wrong=_smallest(left, right, arrays))
        with suppress(cvm.VerifyError):
            tests += _outcome(left, arrays) is not None
        if monotonic() - began > TEST_SECONDS:
            break
    return Verdict(tests=tests, reason=reason)
