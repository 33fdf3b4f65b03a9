"""Loops and branches of traced functions, in JAX's words: `scan`, `fori_loop` and `while_loop`,
whose bodies are compiled once, and `cond`.

A body is a Python function of tuples, lists and dictionaries of arrays. It is traced as a function
of the program, whose arguments are the carried values, slices of what is scanned, and the arrays of
the enclosing function that it uses.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from cvm.dialect.builtin.control_flow import If, Loop, Scan, While
from cvm.dialect.ir.function import Value, with_shared
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.tensor_types import TensorType

from ..numpy.axes import whole_number
from ..numpy.conversion import astype
from ..tracing.diagnose import caller, fail
from ..tracing.trace import PYTHON_NUMBERS, TracedArray, Tracer, running_tracer, tracer_of
from .traced_function import as_array, flatten_results, traced, unflatten

Arrays = Sequence[TracedArray]
Step = Callable[[Any, Arrays], tuple[Any, Any]]
MOST_TRACES = 5  # of a body, until the types of Python numbers that it carries are settled


def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """Run `carry, y = f(carry, x)` over the slices x of `xs`; return the last carry and the stacked
    ys.

    The body is compiled once. Inside a traced function, the loop becomes part of its program.

    Args:
        f: The step. It returns a pair: the next carry, of the same structure, shapes and element
            types, and the element of this step, or None.
        init: The first carry: an array, or a tuple, list or dictionary of arrays.
        xs: Arrays of one length along their first axes, in any structure; or None.
        length: The number of steps, required without `xs`.
        reverse: Begin at the last slice.
        unroll: Accepted for compatibility with JAX; it has no effect.

    Raises:
        TraceError: The number of steps is not determined, or the carry changes its type.
    """
    if (tracer := _tracer((init, xs))) is None:
        return traced(lambda init, xs: scan(f, init, xs, length, reverse))(init, xs)
    form, leaves = flatten_results(xs)
    slices = [_array(tracer, x) for x in leaves]
    if any(not x.ndim for x in slices):
        fail("cvm.scan takes slices of arrays along their first axes, got a number")
    sizes: list[Any] = list(dict.fromkeys(x.shape[0] for x in slices))
    if length is not None:
        sizes = list(dict.fromkeys([*sizes, whole_number(length, "length")]))
    if len(sizes) != 1:
        got = f"got {' and '.join(map(str, sizes))}" if sizes else "got neither xs nor length"
        fail(f"cvm.scan takes as many steps as xs have slices, or length, {got}")

    def step(carry: Any, taken: Sequence[TracedArray]) -> Any:
        if (
            not isinstance(returned := f(carry, unflatten(form, iter(taken))), tuple)
            or len(returned) != 2
        ):
            fail(
                "the function of cvm.scan returns a pair: the next carry, and the element "
                "of this step, or None"
            )
        return returned

    body = _Body(
        tracer, "cvm.scan", init, [TensorType(x.shape[1:], x.type.element) for x in slices], step
    )
    ys: Sequence[Any]
    if isinstance(sizes[0], int) and sizes[0] == 0:
        last, ys = (
            [copy(x) for x in body.carried],
            [np.zeros((0, *y.shape), y.dtype) for y in body.collected],
        )
    else:
        trips = None if slices else sizes[0]
        last, ys = body.loop(
            slices, lambda o, c: Scan(o, c, len(body.carried), len(slices), trips, reverse)
        )
    return unflatten(body.form, iter(last)), unflatten(body.collected_form, iter(ys))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """Run `for i in range(lower, upper): val = body_fun(i, val)` and return the last `val`.

    The loop has a derivative if both bounds are known while tracing.

    Args:
        lower: The first index: an integer, or an array of rank 0.
        upper: The index after the last.
        body_fun: The body. It returns a value of the same structure, shapes and element types.
        init_val: The first value: an array, or a tuple, list or dictionary of arrays.

    Raises:
        TraceError: The value changes its type.
    """
    if _tracer((lower, upper, init_val)) is None:
        return traced(lambda init: fori_loop(lower, upper, body_fun, init))(init_val)
    if isinstance(lower, TracedArray) or isinstance(upper, TracedArray):
        return while_loop(
            lambda c: c[0] < upper, lambda c: (c[0] + 1, body_fun(*c)), (lower, init_val)
        )[1]
    first, last = whole_number(lower, "lower"), whole_number(upper, "upper")

    def step(carry: Any, _: None) -> Any:
        i, value = carry
        return (i + 1, body_fun(i, value)), None

    return scan(step, (first, init_val), None, max(last - first, 0))[0][1]


def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """Run `while cond_fun(val): val = body_fun(val)` and return the last `val`.

    It has no derivative, since the number of steps is not known.

    Args:
        cond_fun: The condition, a bool of rank 0 that depends on `val`.
        body_fun: The body. It returns a value of the same structure, shapes and element types.
        init_val: The first value: an array, or a tuple, list or dictionary of arrays.

    Raises:
        TraceError: The condition is not a bool, or the value changes its type.
    """
    if (tracer := _tracer(init_val)) is None:
        return traced(lambda init: while_loop(cond_fun, body_fun, init))(init_val)

    def condition(value: Any) -> TracedArray:
        if (
            not isinstance(holds := cond_fun(value), TracedArray)
            or holds.ndim
            or holds.dtype != np.bool_
        ):
            got = holds.type if isinstance(holds, TracedArray) else repr(holds)
            fail(
                "the condition of cvm.while_loop is a bool of rank 0 that depends on "
                f"carried values, got {got}"
            )
        return holds

    body = _Body(
        tracer, "cvm.while_loop", init_val, [], lambda value, _: (body_fun(value), None), condition
    )
    if not body.carried:
        fail("cvm.while_loop carries at least one array")
    go = condition(unflatten(body.form, iter(body.carried)))
    last, _ = body.loop(
        [], lambda o, c: While((tracer.operand(go, "numpy", body.span), *o), c, len(body.carried))
    )
    return unflatten(body.form, iter(last))


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """Return `true_fun(*operands)` if `pred` holds, else `false_fun(*operands)`.

    Only the function that is taken runs, and the derivative is that of this function. Inside a
    traced function, both become part of its program.

    Args:
        pred: The condition: a bool, or an array of bool and rank 0.
        true_fun: A function of the operands.
        false_fun: A function whose results have the structure, shapes and element types of those
            of `true_fun`.
        operands: Any values; arrays of the enclosing function may also be used directly.

    Raises:
        TraceError: The condition is not a bool, or the results differ in their types.
    """
    if (tracer := _tracer((pred, operands))) is None:
        flag = np.asarray(pred)
        return traced(lambda flag, *given: cond(flag, true_fun, false_fun, *given))(flag, *operands)
    if not isinstance(pred, TracedArray):
        pred = np.asarray(pred)
    if pred.dtype != np.bool_ or pred.ndim:
        fail(f"the condition of cvm.cond is a bool of rank 0, got {pred.dtype} of rank {pred.ndim}")
    if not isinstance(pred, TracedArray):
        return true_fun(*operands) if pred else false_fun(*operands)
    span = caller()
    inners: list[Tracer] = []
    forms: list[Any] = []
    found: list[list[TracedArray]] = []
    for fun in (true_fun, false_fun):
        name = f"{tracer.name}.cond{len(tracer.functions) + len(inners)}"
        inners.append(inner := Tracer(name, tracer.rules, outer=tracer))
        inner.span = span
        with inner:
            form, leaves = flatten_results(fun(*operands))
            found.append([_array(inner, x) for x in leaves])
        forms.append(form)
    if forms[0] != forms[1]:
        fail("the functions of cvm.cond return values of one structure")
    for n, (a, b) in enumerate(zip(*found, strict=True)):
        common = a.dtype if b.weak and not a.weak else b.dtype
        if a.type.key[1] != b.type.key[1] or not all(_is_taken(x, common) for x in (a, b)):
            types = f"result {n} is {a.type} or {b.type}"
            fail(f"the functions of cvm.cond return arrays of one type, but {types}")
        for inner, results in zip(inners, found, strict=True):
            with inner:
                results[n] = astype(results[n], common)
    functions, captured = with_shared(
        [i.function(results) for i, results in zip(inners, found, strict=True)],
        [i.captured for i in inners],
    )
    tracer.functions.update({f.name: f for f in functions})
    names = [Symbol(f.name) for f in functions]
    branch = If((tracer.operand(pred, tracer.rules, span), *captured), *names)
    types = [[v.known_type for v in f.results] for f in functions]
    added = tracer.add(branch.with_signature([v.known_type for v in captured], *types), span)
    for result, *pair in zip(added, *found, strict=True):
        result.is_scalar = all(x.is_scalar for x in pair)
    return unflatten(forms[0], iter(added))


def _is_taken(array: TracedArray, dtype: Any) -> bool:
    return array.dtype == dtype or bool(array.weak and np.can_cast(array.dtype, dtype, "same_kind"))


def _tracer(values: Any) -> Tracer | None:
    """The tracer that records a loop over these values; None outside of a traced function."""
    return tracer_of(flatten_results(values)[1]) or running_tracer()


def _array(tracer: Tracer, given: Any) -> TracedArray:
    if isinstance(given, TracedArray):
        return given
    weak = type(given) if type(given) in PYTHON_NUMBERS and tracer.rules == "numpy" else None
    found = np.asarray(given) if weak or not isinstance(given, PYTHON_NUMBERS) else as_array(given)
    assert found is not None
    array = tracer.constant(found)
    array.weak = weak
    array.is_scalar = not isinstance(given, np.ndarray) and not array.ndim
    return array


class _Body:
    """A function of the program, from carried values and further arguments to the next carried
    values and what is collected.
    """

    def __init__(
        self,
        tracer: Tracer,
        loop: str,
        init: Any,
        types: Sequence[TensorType],
        step: Step,
        condition: Any = None,
    ) -> None:
        self.tracer, self.name, self.span = tracer, loop, caller()
        self.form, start = flatten_results(init)
        self.carried = [_array(tracer, x) for x in start]
        for _ in range(MOST_TRACES):
            inner = Tracer(
                f"{tracer.name}.{loop.partition('.')[2]}{len(tracer.functions)}",
                tracer.rules,
                outer=tracer,
            )
            inner.span = self.span
            given = [
                inner.argument(f"carry{n}", c.type, c.weak, c.is_scalar)  # type: ignore[arg-type]
                for n, c in enumerate(self.carried)
            ]
            taken = [inner.argument(f"x{n}", t, is_scalar=True) for n, t in enumerate(types)]
            with inner:
                carry, collected = step(unflatten(self.form, iter(given)), taken)
                form, leaves = flatten_results(carry)
                if form != self.form:
                    fail(f"the body of {loop} leaves the structure of what it carries as it is")
                passed = [_array(inner, x) for x in leaves]
            if not all([self._settled(n, x) for n, x in enumerate(passed)]):
                continue
            with inner:
                passed = [astype(x, c.dtype) for x, c in zip(passed, self.carried, strict=True)]
                go = [condition(unflatten(form, iter(passed)))] if condition is not None else []
                self.collected_form, leaves = flatten_results(collected)
                self.collected = [_array(inner, y) for y in leaves]
            break
        else:
            fail(
                f"the types that {loop} carries do not settle: give arrays of a dtype, "
                "where there are Python numbers"
            )
        self.inner, self.results = inner, [*go, *passed, *self.collected]

    def _settled(self, n: int, found: TracedArray) -> bool:
        """Test whether a carried value keeps its type; a Python number takes that of the next
        step's.
        """
        if found.type.key[1] != (carried := self.carried[n]).type.key[1]:
            which = f"the step's result {n} has shape {found.shape}"
            fail(f"{self.name} carries an array of shape {carried.shape}, {which}")
        if carried.is_scalar and not found.is_scalar:
            self.carried[n] = carried.as_array(carried.copied())
            return False
        if found.dtype == carried.dtype or (
            found.weak and np.can_cast(found.dtype, carried.dtype, "same_kind")
        ):
            return True
        if carried.weak is None:
            which = f"the step's result {n} is one of {found.dtype}"
            fail(f"{self.name} carries an array of {carried.dtype}, {which}: use astype")
        self.carried[n] = astype(carried, found.dtype)
        self.carried[n].weak, self.carried[n].is_scalar = found.weak, carried.is_scalar
        return False

    def loop(
        self, slices: Sequence[TracedArray], operator_of: Callable[..., Loop[Value]]
    ) -> tuple[Arrays, Arrays]:
        """The last carried values and what is collected, by the loop that `operator_of` gives for
        operands and the callee.
        """
        tracer, function = self.tracer, self.inner.function(self.results)
        tracer.functions[function.name] = function
        operands = [tracer.operand(x, tracer.rules, self.span) for x in (*self.carried, *slices)]
        operator = operator_of((*operands, *self.inner.captured), Symbol(function.name))
        types = [v.known_type for v in function.results]
        found = tracer.add(operator.with_signature(function.argument_types, types), self.span)
        for result, carried in zip(found, self.carried, strict=False):
            result.weak, result.is_scalar = carried.weak, carried.is_scalar
        return found[: len(self.carried)], found[len(self.carried) :]
