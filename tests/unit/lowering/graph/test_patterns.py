"""Patterns: order, what they read and add, what is no match, and mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cvm.dialect.builtin import Const as Constant
from cvm.dialect.ir.function import Function
from cvm.dialect.ir.module import Module
from cvm.dialect.support import entry_points
from cvm.dialect.theano.elemwise import Broadcasting, Elemwise
from cvm.lowering.graph import patterns
from cvm.lowering.graph.rewrite import rewritten
from cvm.lowering.graph.simplify import simplify
from cvm.lowering.pass_context import Context
from own_patterns import own_patterns

import cvm
from cvm.extending import I8, OPERATORS, Builder, Operator, pattern

BroadcastMul: Any = OPERATORS["cvm.broadcast_mul"]
Relu: Any = OPERATORS["cvm.relu"]
PACKAGE = __name__.partition(".")[0]
HEAD = "func @main(%x: tensor<?N x i32> {range = [-9, 5]}, %y: tensor<?N x i32>) {\n"


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with own_patterns():
        yield


def after(body: str, head: str = HEAD) -> str:
    """The text of a program's body after `simplify`; the program computes the same as before."""
    module = cvm.parse(f"{head}{body}\n}}\n")
    new = module.with_functions({"main": simplified(module)})
    cvm.parse(str(new))
    arrays = [
        np.arange(-3, 3, dtype=a.known_type.element.dtype).reshape((-1, *a.known_type.shape[1:]))
        for a in module.functions["main"].arguments
    ]
    expected = cvm.compile(module, target="reference")(*arrays)
    for target in ("reference", "cpu"):
        found = cvm.compile(new if target == "reference" else module, target=target)(*arrays)
        np.testing.assert_array_equal(found, expected)
    return "\n".join(line.strip() for line in str(new).partition("{\n")[2].splitlines()[:-1])


def simplified(module: Module) -> Function:
    function = module.functions["main"]
    return simplify(function, Context(module, function))


def once(body: str, head: str = HEAD) -> str:
    """The text of a program's body after `simplify`."""
    module = cvm.parse(f"{head}{body}\n}}\n")
    text = str(module.with_functions({"main": simplified(module)}))
    return "\n".join(line.strip() for line in text.partition("{\n")[2].splitlines()[:-1])


def diagnostic(body: str, head: str = HEAD) -> str:
    with pytest.raises(cvm.Error) as caught:
        after(body, head)
    assert len(caught.value.diagnostics) == 1
    return str(caught.value)


RELU_TWICE = "%a = cvm.relu %x\n%b = cvm.relu %a\nreturn %b"


def test_a_match_replaces_the_root_and_what_only_it_used() -> None:
    @pattern()
    def relu_twice(op: Relu, b: Builder) -> Any:
        return op.x if isinstance(b.owner(op.x), Relu) else None

    assert after(RELU_TWICE) == "%a = cvm.relu %x\nreturn %a"
    assert after("%a = cvm.relu %x\n%b = cvm.relu %a\nreturn %a, %b".replace("%a, %b", "%b")) == (
        "%a = cvm.relu %x\nreturn %a"
    )


def test_the_largest_benefit_is_first_then_the_name() -> None:
    applied: list[str] = []

    def declare(name: str, benefit: int) -> None:
        def match(op: Relu, b: Builder) -> None:
            applied.append(name)

        match.__name__ = name
        pattern(benefit=benefit)(match)

    for name, benefit in (("c", 1), ("a", 1), ("z", 2), ("b", 1), ("last", -1)):
        declare(name, benefit)
    once("%a = cvm.relu %x\nreturn %a")
    assert applied == ["z", "a", "b", "c", "last"]


def test_roots_may_be_a_base_class_or_a_union() -> None:
    seen: list[str] = []

    @pattern()
    def family(op: Broadcasting, b: Builder) -> None:
        seen.append(f"family {op.name}")

    @pattern()
    def several(op: Relu | Elemwise, b: Builder) -> None:
        seen.append(f"several {op.name}")

    @pattern()
    def any_operator(op: Operator, b: Builder) -> None:
        seen.append(f"any {op.name}")

    once('%a = cvm.relu %x\n%b = theano.elemwise %a, %y {scalar_op = "add"}\nreturn %b')
    assert seen == [
        "any cvm.relu",
        "several cvm.relu",
        "any theano.elemwise",
        "family theano.elemwise",
        "several theano.elemwise",
    ]


def test_a_pattern_reads_owners_uses_ranges_and_constants() -> None:
    seen: dict[str, Any] = {}

    @pattern()
    def read(op: BroadcastMul, b: Builder) -> None:
        seen["owner"] = (type(b.owner(op.a)), b.owner(op.b))
        seen["uses"] = [None if u is None else u.name for u in b.uses(op.a)]
        seen["ranges"] = b.range(op.a), b.range(op.b)
        constant = b.constant(np.array([7, 9], np.int8))
        seen["constant"] = b.range(constant), b.array(constant), type(b.owner(constant))
        seen["arrays"] = b.array(op.a)

    after(
        "%a = cvm.elemwise_add %x, %x\n%b = cvm.relu %a\n%c = cvm.broadcast_mul %a, %y\n"
        "%d = cvm.elemwise_add %b, %c\n%e = cvm.elemwise_add %a, %d\nreturn %e"
    )
    assert seen["owner"][0].__name__ == "ElemwiseAdd" and seen["owner"][1] is None
    assert seen["uses"] == ["cvm.relu", "cvm.broadcast_mul", "cvm.elemwise_add"]
    assert seen["ranges"] == ((-18, 10), (-(2**31), 2**31 - 1))
    assert seen["constant"][0] == (-128, 127) and seen["constant"][1].tolist() == [7, 9]
    assert seen["constant"][2] is Constant and seen["arrays"] is None


def test_results_of_the_function_are_uses() -> None:
    seen: list[Any] = []

    @pattern()
    def read(op: Relu, b: Builder) -> None:
        seen.append((b.uses(op.x), b.range(op.x)))

    once("%a = cvm.clip %x {a_min = 2, a_max = 3}\n%b = cvm.relu %a\nreturn %a, %a, %b")
    ((uses, bounds),) = seen
    assert [u and u.name for u in uses] == ["cvm.relu", None, None] and bounds == (2, 3)


def test_added_operations_stand_before_the_root_with_its_location_and_name() -> None:
    @pattern()
    def lower(op: BroadcastMul, b: Builder) -> Any:
        return b.theano.elemwise(op.a, b.cvm.relu(op.b), scalar_op="mul")

    text = "%a = cvm.relu %x\n%b = cvm.broadcast_mul %a, %y\n%c = cvm.relu %b\nreturn %c"
    module = cvm.parse(f"{HEAD}{text}\n}}\n", "f.cvm")
    new = simplified(module)
    assert [(o.results[0].name, o.operator.name, str(o.span)) for o in new.operations] == [
        ("a", "cvm.relu", "f.cvm:2:6"),
        ("b.0", "cvm.relu", "f.cvm:3:6"),
        ("b", "theano.elemwise", "f.cvm:3:6"),
        ("c", "cvm.relu", "f.cvm:4:6"),
    ]


def test_numbers_are_literals() -> None:
    @pattern()
    def literal(op: Relu, b: Builder) -> Any:
        return b.theano.elemwise(op.x, np.int32(0), scalar_op="maximum")

    assert after("%a = cvm.relu %x\nreturn %a") == (
        '%a = theano.elemwise %x, 0 : i32 {scalar_op = "maximum"}\nreturn %a'
    )


@pytest.mark.parametrize("count", [1, 700])
def test_operations_are_inserted_at_one_place_again_and_again(count: int) -> None:
    """A multiplication moves before `count` operations, one at a time."""

    @pattern()
    def hoist(op: BroadcastMul, b: Builder) -> Any:
        inner = b.owner(op.a)
        if isinstance(inner, Elemwise) and inner.scalar_op == "neg":
            return b.theano.elemwise(b.cvm.broadcast_mul(inner.xs[0], op.b), scalar_op="neg")
        return None

    lines = [f'%v{n + 1} = theano.elemwise %v{n} {{scalar_op = "neg"}}' for n in range(count)]
    text = "\n".join(["%v0 = cvm.relu %x", *lines, f"%m = cvm.broadcast_mul %v{count}, %y"])
    module = cvm.parse(f"{HEAD}{text}\n%k = cvm.relu %m\nreturn %k\n}}\n")
    own = patterns.of_simplified(Elemwise)
    with pytest.MonkeyPatch.context() as patch:  # or else the negations cancel
        patch.setattr("cvm.lowering.graph.rewrite.of_simplified", lambda kind: None)
        new = rewritten(module.functions["main"], [*patterns.PATTERNS.values()])
    names = [o.operator.name for o in new.operations]
    assert own is not None and names == [
        "cvm.relu", "cvm.broadcast_mul", *["theano.elemwise"] * count, "cvm.relu",
    ]  # fmt: skip
    cvm.parse(str(module.with_functions({"main": new})))


def test_a_match_far_from_a_change_is_found() -> None:
    """The root of the second pattern is two operations below the one that the first rewrites."""

    @pattern()
    def narrow(op: BroadcastMul, b: Builder) -> Any:
        return op.a if len(b.uses(op.b)) == 1 else None

    @pattern(benefit=-1)
    def drop(op: Elemwise, b: Builder) -> Any:
        inner = b.owner(op.xs[0])
        if isinstance(inner, Relu) and isinstance(b.owner(inner.x), Relu):
            return inner.x
        return None

    assert (
        once(
            "%a = cvm.relu %x\n%m = cvm.broadcast_mul %a, %y\n%r = cvm.relu %m\n"
            '%n = theano.elemwise %r {scalar_op = "neg"}\nreturn %n'
        )
        == "%a = cvm.relu %x\nreturn %a"
    )


# no match


def test_another_type_is_no_match() -> None:
    @pattern()
    def other(op: Relu, b: Builder) -> Any:
        return b.theano.elemwise(op.x, scalar_op="cast", dtype=I8)

    assert after("%a = cvm.relu %x\nreturn %a") == "%a = cvm.relu %x\nreturn %a"


OPEN = "func @main(%x: tensor<?N x i32>, %y: tensor<?M x i32>) {\n"


def test_what_may_reject_sizes_is_no_match() -> None:
    """The program takes any two sizes, the addition would take equal ones only."""

    @pattern()
    def add(op: Relu, b: Builder) -> Any:
        y = next(iter(b._rewriting.function.arguments[1:]))
        b.cvm.elemwise_add(op.x, y)
        return op.x

    text = "%a = cvm.relu %x\nreturn %a, %y"
    assert once(text, OPEN) == text
    text = "%a = cvm.relu %x\n%b = cvm.elemwise_add %a, %y\nreturn %b"  # which calls check
    assert once(text, OPEN) == "%b = cvm.elemwise_add %x, %y\nreturn %b"


def test_operations_in_place_are_left_alone() -> None:
    @pattern()
    def never(op: Elemwise, b: Builder) -> Any:
        return op.xs[0]

    head = "func @main(%x: tensor<?N x i32> {inplace}) {\n"
    text = '%a = theano.elemwise %x, 1 {scalar_op = "add", inplace_pattern = {0 = 0}}\nreturn %a'
    module = cvm.parse(f"{head}{text}\n}}\n")
    assert simplified(module) is module.functions["main"]


def test_an_operation_that_may_fail_stays() -> None:
    """Its error is that of the program, whatever replaces its result."""

    @pattern()
    def drop(op: Elemwise, b: Builder) -> Any:
        return op.xs[0]

    text = '%a = theano.elemwise %x, %y {scalar_op = "int_div"}\nreturn %a'
    assert once(text) == ('%a = theano.elemwise %x, %y {scalar_op = "int_div"}\nreturn %x')
    text = '%a = theano.elemwise %x, 3 {scalar_op = "int_div"}\nreturn %a'
    assert once(text) == "return %x"


def test_bodies_of_loops_are_rewritten_without_their_declared_ranges() -> None:
    """Loops do not check them."""
    seen: list[Any] = []

    @pattern()
    def see(op: Relu, b: Builder) -> None:
        seen.append(b.range(op.x))

    text = """
        func @step(%s: tensor<i32> {range = [0, 1]}, %x: tensor<i32>) {
          %t = cvm.relu %s
          return %t, %x
        }
        func @main(%s: tensor<i32> {range = [2, 3]}, %x: tensor<3xi32>) {
          %r = cvm.relu %s
          %t, %y = builtin.scan @step(%r, %x) {carry = 1, scan = 1}
          return %t, %y
        }
    """
    cvm.compile(cvm.parse(text)).lower("formulas")
    assert set(seen) == {(2, 3), (-(2**31), 2**31 - 1)}


# mistakes


def test_patterns_that_undo_each_other_are_named() -> None:
    @pattern()
    def swap(op: BroadcastMul, b: Builder) -> Any:
        return b.cvm.broadcast_mul(op.b, op.a)

    said = diagnostic("%a = cvm.broadcast_mul %x, %y\n%b = cvm.relu %a\nreturn %b")
    assert (
        f"<text>:2:6: error[pattern.match]: pattern swap of {PACKAGE}: more than 64 "
        "rewrites for each of 2 operations\n" in said
    )
    assert re.search(r"test_patterns.py:\d+:5: note: the pattern is declared here", said)


def fails(op: Relu, b: Builder) -> Any:
    return b.owner(op.x).x  # type: ignore[union-attr]


def gives_a_number(op: Relu, b: Builder) -> Any:
    return 1


def gives_too_many(op: Relu, b: Builder) -> Any:
    return op.x, op.x


def takes_what_comes_later(op: Relu, b: Builder) -> Any:
    return next(u.a for u in b.uses(op.x) if isinstance(u, BroadcastMul))


def adds_after(op: Relu, b: Builder) -> Any:
    later = next(u.a for u in b.uses(op.x) if isinstance(u, BroadcastMul))
    return b.cvm.relu(later)


def adds_illegally(op: Relu, b: Builder) -> Any:
    return b.cvm.dense(op.x, op.x)


def misspells(op: Relu, b: Builder) -> Any:
    return b.cvm.rellu(op.x)


def misspells_an_attribute(op: Relu, b: Builder) -> Any:
    return b.cvm.clip(op.x, a_mim=1, a_max=2)


def misses_an_operand(op: Relu, b: Builder) -> Any:
    return b.cvm.elemwise_add(op.x)


def calls(op: Relu, b: Builder) -> Any:
    return b.builtin.map(op.x, callee="main")


def destroys(op: Relu, b: Builder) -> Any:
    return b.theano.elemwise(op.x, scalar_op="neg", inplace_pattern={0: 0})


@pytest.mark.parametrize(
    ("match", "said"),
    [
        (fails, "it fails: AttributeError: 'NoneType' object has no attribute 'x'"),
        (gives_a_number, "it gives int, not a value"),
        (gives_too_many, "expected 1 value or None, got (%x, %x)"),
        (takes_what_comes_later, "%b is not computed before it"),
        (adds_after, "it fails: ValueError: %b is not computed before it"),
        (adds_illegally, "rank(x) = rank(w) = 2, but rank(x) = 1, rank(w) = 1"),
        (misspells, "there is no operator cvm.rellu; did you mean cvm.relu"),
        (misspells_an_attribute, "cvm.clip has no attribute a_mim; did you mean a_min"),
        (misses_an_operand, "cvm.elemwise_add: expected 2 operands, got 1"),
        (destroys, "a pattern adds no theano.elemwise in place"),
    ],
)
def test_a_mistake_names_pattern_and_location(match: Any, said: str) -> None:
    pattern()(match)
    text = "%a = cvm.relu %x\n%b = cvm.relu %y\n%c = cvm.broadcast_mul %b, %x\n"
    found = diagnostic(text + "%d = cvm.elemwise_add %a, %c\nreturn %d")
    assert f"pattern {match.__name__} of {PACKAGE}: " in found and said in found
    assert "<text>:2:6" in found and "test_patterns.py:" in found


def without_root(op, b):  # type: ignore[no-untyped-def]
    return None


def with_another_root(op: int, b: Builder) -> None:
    return None


def with_an_unknown_root(op: Nothing, b: Builder) -> None:  # type: ignore[name-defined] # noqa: F821
    return None


@pytest.mark.parametrize("match", [without_root, with_another_root, with_an_unknown_root])
def test_the_root_is_an_operator(match: Any) -> None:
    with pytest.raises(cvm.Error, match="the annotation of its first parameter is the operator"):
        pattern()(match)


def test_the_pass_is_one_that_runs_patterns() -> None:
    with pytest.raises(
        cvm.Error, match="no pass simplfy that runs patterns; did you mean simplify"
    ):
        pattern(into="simplfy")(without_root)


def test_the_source_is_part_of_the_key() -> None:
    assert entry_points.patterns_key() == "[]"
    pattern()(fails)
    key = entry_points.patterns_key()
    assert key is not None and f"{__name__}.fails" in key
    made: dict[str, Any] = {"Relu": Relu, "__name__": "typed_by_hand"}
    exec("def match(op: Relu, b):\n  return None\n", made)
    pattern()(made["match"])
    assert entry_points.patterns_key() is None
