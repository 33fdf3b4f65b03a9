"""Calls inside calls, and memory that does not suffice: limits that are errors, on every target."""

from __future__ import annotations

import numpy as np
import pytest
from cvm.dialect.ir.inline_limits import DEEPEST

import cvm

X = np.array([1, -2], np.int32)


def chain(calls: int, times: int = 1) -> str:
    """@f0 calls @f1, which calls @f2, and so on, each as often."""
    text = ""
    for n in range(calls):
        names = [f"%y{k}" for k in range(times)]
        body = "".join(
            f"  {y} = call @f{n + 1}({x})\n" for x, y in zip(["%x", *names], names, strict=False)
        )
        text += f"func @f{n}(%x: tensor<2xi32>) {{\n{body}  return {names[-1]}\n}}\n"
    return text + f"func @f{calls}(%x: tensor<2xi32>) {{\n  %y = cvm.negative %x\n  return %y\n}}\n"


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_the_deepest_calls(target: str) -> None:
    f = cvm.compile(chain(DEEPEST), entry="f0", target=target)
    assert f(X).tolist() == [-1, 2]


@pytest.mark.parametrize("calls", [DEEPEST + 1, 3 * DEEPEST])
def test_calls_that_are_too_deep(calls: int) -> None:
    with pytest.raises(
        cvm.VerifyError, match=rf"calls are at most {DEEPEST} deep, but this one is {DEEPEST + 1}"
    ) as e:
        cvm.parse(chain(calls))
    (diagnostic,) = e.value.diagnostics
    assert (diagnostic.code, diagnostic.line) == ("call.depth", 4 * (calls - DEEPEST - 1) + 2)


def test_calls_that_amount_to_too_much() -> None:
    assert cvm.compile(chain(8, times=2), entry="f0")(X).tolist() == [1, -2]
    with pytest.raises(cvm.VerifyError, match="the limit operations is 100000") as e:
        cvm.parse(chain(40, times=2))
    (diagnostic,) = e.value.diagnostics
    assert diagnostic.code == "limit.operations"


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("size", ["200000", "?"])
def test_memory_that_does_not_suffice(target: str, size: str) -> None:
    text = f"""func @main(%a: tensor<{size}x1xi32>, %b: tensor<1x{size}xi32>) {{
      %y = cvm.broadcast_add %a, %b
      %z = cvm.repeat %y {{axis = 0, repeats = 20}}
      return %z
    }}"""
    f = cvm.compile(text, target=target)
    a = np.zeros((200000, 1), np.int32)
    with pytest.raises(
        cvm.CallError,
        match=r"\d{13} bytes are needed for results and workspace, or state, but the limit "
        r"memory is",
    ):
        f(a, a.T)
    with cvm.limits(memory=1 << 60):
        f = cvm.compile(text, target=target)
    with pytest.raises(cvm.CallError, match=r"memory does not suffice: Unable to allocate .* TiB"):
        f(a, a.T)


def located(text: str, **limits: int) -> list[tuple[str, str, str, list[tuple[str, str]]]]:
    """The code, place, marked text and notes of each mistake of a program."""
    with cvm.limits(**limits), pytest.raises(cvm.VerifyError) as e:
        cvm.parse(text, "p.cvm")
    return [
        (d.code, str(d.span), d.span.text, [(n.message, str(n.span)) for n in d.notes])
        for d in e.value.diagnostics
    ]


TWO = """func @two(%x: tensor<2xi32>) {
  %a = cvm.negative %x
  %b = cvm.negative %a
  return %b
}
func @main(%x: tensor<2xi32>) {
  %a = call @two(%x)
  %b = call @two(%a)
  %c = call @two(%b)
  return %c
}
func @outer(%x: tensor<2xi32>) {
  %a = call @main(%x)
  return %a
}
"""


def test_the_place_of_a_call_that_is_too_deep() -> None:
    """At the callee's name, without a note: every function of the chain is one call."""
    assert located(chain(DEEPEST + 1)) == [("call.depth", "p.cvm:2:14", "@f1", [])]


@pytest.mark.parametrize("limit", [4, 5, 6, 7, 8])
def test_the_place_of_a_call_that_exceeds_the_operations(limit: int) -> None:
    """The first call that exceeds the limit, with the size of its callee, and no callers.

    @main is three calls, in the place of each of which come two operations: 5, 7 and 9.
    """
    line = 7 if limit < 5 else 8 if limit < 7 else 9
    note = [("@two has 2", "p.cvm:1:6")]
    assert located(TWO, operations=limit) == [
        ("limit.operations", f"p.cvm:{line}:13", "@two", note)
    ]


def test_the_place_of_a_function_of_too_many_operations() -> None:
    """Its name, once and without a note; its own calls and calls of it are not reported."""
    assert located(TWO, operations=2) == [("limit.operations", "p.cvm:6:6", "@main", [])]
    assert located(TWO, operations=1)[:1] == [("limit.operations", "p.cvm:1:6", "@two", [])]
    exceeds = [("limit.operations", "p.cvm:13:13", "@main", [("@main has 9", "p.cvm:6:6")])]
    assert located(TWO, operations=9) == exceeds  # of a callee that is just within the limit
    with cvm.limits(operations=9):
        inside = TWO.partition("func @outer")[0]
        assert [*cvm.parse(inside).functions] == ["two", "main"]
