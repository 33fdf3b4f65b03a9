"""Mistakes of another package's passes: one diagnostic each, in every command and in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cvm.dialect.builtin import Call
from cvm.dialect.ir.function import Operation, Value
from cvm.dialect.kernel_ir.loops import blocks, statements
from cvm.dialect.support.entry_points import PLACED
from cvm.dialect.types.attributes import Symbol
from cvm.dialect.types.tensor_types import F32, I32, I64, TensorType
from cvm.lowering import pipeline
from cvm.lowering.passes import REGISTERED

import cvm
from cvm import cli
from cvm.extending import (
    Const,
    Context,
    For,
    Function,
    If,
    Kernel,
    Kernels,
    Read,
    Store,
    map_expressions,
    register_pass,
    rewrite,
    rewrite_block,
)

PACKAGE = __name__.partition(".")[0]
PROGRAM = """func @main(%x: tensor<4xi32>, %i: tensor<2xi32>) -> (tensor<4xi32>, tensor<2xi32>) {
  %h = cvm.clip %x {a_min = -3, a_max = 3}
  %y = cvm.negative %h
  %z = cvm.take %y, %i
  return %y, %z
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the program, and passes that are forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    Path("p.cvm").write_text(PROGRAM)
    known, placed = dict(REGISTERED), [*PLACED]
    yield
    REGISTERED.clear()
    REGISTERED.update(known)
    PLACED[:] = placed


# Passes over functions


def drops_a_definition(f: Function) -> Function:
    return replace(f, operations=f.operations[1:])


def moves_a_definition(f: Function) -> Function:
    a, b, *rest = f.operations
    return replace(f, operations=(b, a, *rest))


def defines_twice(f: Function) -> Function:
    return replace(f, operations=(f.operations[0], *f.operations))


def returns_another_value(f: Function) -> Function:
    return replace(f, results=(Value("w", f.results[0].type), f.results[1]))


def retyped(f: Function, type: TensorType | None) -> Function:
    first, *rest = f.operations
    old, new = first.results[0], Value("h", type)
    changed = [replace(o, operator=o.operator.map(lambda v: new if v is old else v)) for o in rest]
    return replace(f, operations=(replace(first, results=(new,)), *changed))


def states_a_type(f: Function) -> Function:
    return retyped(f, TensorType((5,), I32))


def states_no_type(f: Function) -> Function:
    return retyped(f, None)


def changes_a_type_in_place(f: Function) -> Function:
    f.operations[1].results[0].type = TensorType((4,), F32)
    return f


def breaks_a_constraint(f: Function) -> Function:
    first: Any = f.operations[0]
    wrong = replace(first, operator=replace(first.operator, a_min=5))
    return replace(f, operations=(wrong, *f.operations[1:]))


def calls_nothing(f: Function) -> Function:
    call = Operation(Call((f.arguments[0],), Symbol("nowhere")), (Value("c", f.arguments[0].type),))
    return replace(f, operations=(*f.operations, call))


def drops_a_result(f: Function) -> Function:
    return replace(f, results=f.results[:1], declared=None, return_spans=())


def swaps_arguments(f: Function) -> Function:
    return replace(f, arguments=f.arguments[::-1])


def renames(f: Function) -> Function:
    return replace(f, name="other")


def retypes_an_argument_in_place(f: Function) -> Function:
    dropped = f.arguments[1]
    dropped.type = TensorType((3,), I32)
    return replace(f, operations=f.operations[:2], results=(f.results[0], dropped), declared=None)


def raises(f: Function) -> Function:
    raise ValueError("planted")


def raises_not_implemented(f: Function) -> Function:
    raise NotImplementedError("planted")


def asserts(f: Function) -> Function:
    assert not f.operations, "planted"
    return f


def gives_text(f: Function) -> Any:
    return "text"


def gives_operations_of_nothing(f: Function) -> Function:
    return replace(f, operations=(None,))  # type: ignore[arg-type]


def reports(f: Function) -> Function:
    raise cvm.Error("planted")


# Passes over kernels


def unbound(k: Kernel) -> Kernel:
    return k.with_body(tuple(s for outer in k.body for b in blocks(outer) for s in b) or k.body)


def beyond(k: Kernel) -> Kernel:
    def moved(e: Any) -> Any:
        return Read(e.tensor, (*e.indices[:-1], e.indices[-1] + 1)) if isinstance(e, Read) else None

    return k.with_body(map_expressions(k.body, lambda e: rewrite(e, moved)))


def stores_a_float(k: Kernel) -> Kernel:
    def stored(s: Any) -> Any:
        return (replace(s, value=Const(1.0, F32)),) if isinstance(s, Store) else None

    return k.with_body(rewrite_block(k.body, stored))


def drops_an_array(k: Kernel) -> Kernel:
    body = tuple(s for s in k.body if not any(isinstance(t, Store) for t in statements((s,))))
    return replace(k, parameters=k.parameters[1:], body=body)


def drops_kernels(k: Kernel) -> Kernels:
    return Kernels(())


def drops_a_guard(k: Kernel) -> Kernel:
    def unguarded(s: Any) -> Any:
        return s.then if isinstance(s, If) else None

    def unclipped(e: Any) -> Any:
        taken = getattr(e, "function", "") in ("max", "min", "clip")
        return rewrite(e.operands[0], unclipped) if taken else None

    return k.with_body(
        map_expressions(rewrite_block(k.body, unguarded), lambda e: rewrite(e, unclipped))
    )


def stores_in_parallel(k: Kernel) -> Kernel:
    """Every iteration of a parallel loop stores to place 0."""

    def parallel(s: Any) -> Any:
        return (replace(s, kind="parallel"),) if isinstance(s, For) else None

    def pinned(s: Any) -> Any:
        at = tuple(Const(0, I64) for _ in s.indices) if isinstance(s, Store) else ()
        return (replace(s, indices=at),) if at else None

    return k.with_body(rewrite_block(rewrite_block(k.body, pinned), parallel))


def leaves_the_last_out(k: Kernel) -> Kernel:
    def shorter(s: Any) -> Any:
        return (replace(s, stop=s.end - 1),) if isinstance(s, For) else None

    return k.with_body(rewrite_block(k.body, shorter))


HERE = "%h is tensor<4xi32>, but the pass states"
GRAPH: dict[Callable[[Function], Any], tuple[str, str]] = {
    drops_a_definition: ("p.cvm:3:21", "pass.definition: %h is used, but nothing defines it"),
    moves_a_definition: ("p.cvm:3:21", "pass.definition: %h is used before its definition"),
    defines_twice: ("p.cvm:2:8", "pass.definition: %h is defined twice"),
    returns_another_value: (
        "p.cvm:5:10",
        "pass.definition: %w is returned, but nothing defines it",
    ),
    states_a_type: ("p.cvm:2:8", f"pass.type: {HERE} tensor<5xi32>"),
    states_no_type: ("p.cvm:2:8", f"pass.type: {HERE} no type"),
    changes_a_type_in_place: (
        "p.cvm:3:8",
        "pass.type: %y is tensor<4xi32>, but the pass states tensor<4xf32>",
    ),
    breaks_a_constraint: ("p.cvm:2:", "cvm.clip.C3: a_min < a_max, but a_min = 5, a_max = 3"),
    calls_nothing: (
        "",
        "pass.definition: @nowhere is called, but the program has no such function",
    ),
    drops_a_result: (
        "p.cvm:1:6",
        "pass.signature: the results of @main may not change from (tensor<4xi32>, tensor<2xi32>) "
        "to (tensor<4xi32>)",
    ),
    swaps_arguments: (
        "p.cvm:1:6",
        "pass.signature: the arguments of @main may not change from (tensor<4xi32>, "
        "tensor<2xi32>) to (tensor<2xi32>, tensor<4xi32>)",
    ),
    renames: ("p.cvm:1:6", "pass.signature: the name of @main may not change from @main to @other"),
    raises: ("test_verify_passes.py:", "pass.fails: it fails: ValueError: planted"),
    raises_not_implemented: (
        "test_verify_passes.py:",
        "pass.fails: it fails: NotImplementedError: planted",
    ),
    asserts: ("test_verify_passes.py:", "pass.fails: it fails: AssertionError: planted"),
    gives_text: ("test_verify_passes.py:", "pass.fails: it gives str, not a Function"),
    gives_operations_of_nothing: (
        "p.cvm:1:6",
        "pass.form: its result cannot be verified: AttributeError: 'NoneType'",
    ),
    reports: ("", "planted"),
}
LOOPS: dict[Callable[[Kernel], Any], tuple[str, str]] = {
    unbound: ("p.cvm:", "pass.kernel: kernel @main.0: "),
    beyond: ("p.cvm:", "pass.kernel: kernel @main.0: an index of %x may be beyond 4"),
    stores_a_float: ("p.cvm:", "pass.kernel: kernel @main.0: %"),
    drops_an_array: (
        "p.cvm:",
        "pass.signature: the arrays of kernel @main.0 may not change from (%x: 4xi32, ",
    ),
    drops_kernels: (
        "p.cvm:",
        "pass.signature: the arrays of kernel @main.0 may not change from (%",
    ),
    drops_a_guard: ("p.cvm:", "pass.kernel: kernel @main.1: an index of %"),
    stores_in_parallel: ("p.cvm:", "pass.kernel: kernel @main.0: %y is carried"),
    leaves_the_last_out: (
        "p.cvm:",
        "pass.kernel: kernel @main.0: %y is a result, and its element",
    ),
}
PLANTED = [(f, "graph", "inline", *said) for f, said in GRAPH.items()] + [
    (f, "loops", "collapse", *said) for f, said in LOOPS.items()
]


@pytest.mark.parametrize(
    ("change", "level", "after", "place", "text"), PLANTED, ids=[p[0].__name__ for p in PLANTED]
)
def test_a_mistake_is_one_message_everywhere(
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Any], Any],
    level: Any,
    after: str,
    place: str,
    text: str,
) -> None:
    register_pass(level, after)(change)
    name = change.__name__
    code, separator, message = text.rpartition(": ") if text == "planted" else text.partition(": ")
    code = f"[{code}]" if separator else ""
    wanted = f"error{code}: pass {name} of {PACKAGE}: {message}"

    def one_message(said: str) -> None:
        assert said.count("error") - said.count("errors") == 2, said  # with the count, `1 error`
        (line,) = (found for found in said.splitlines() if wanted in found)
        assert place in line.partition("error")[0] and "Traceback" not in said

    lines = [
        ("opt", "p.cvm", "--pipeline", name),
        ("opt", "p.cvm", "--target", "cpu", "--verify-each"),
        ("run", "p.cvm", "--random-inputs", "1"),
        ("lower", "p.cvm", "--to", "schedule"),
    ]
    for command in lines:
        status = cli.main(command)
        said = capsys.readouterr()
        assert status == 1, command
        one_message(said.err)
        if command[0] == "opt":
            assert f"the pass {name} fails; cvm opt --run-reproducer" in said.err
    with pytest.raises(cvm.Error) as raised:
        cvm.compile(cvm.load("p.cvm")).lower("schedule")
    assert wanted in str(raised.value) and len(raised.value.diagnostics) == 1
    Path("t.cvm").write_text(f"// test {name}\n{PROGRAM}")
    assert cli.main(["test", "t.cvm"]) == 1
    said = capsys.readouterr().out
    assert wanted in said and "1 failed" in said and "Traceback" not in said


def test_right_passes_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """Also with options, which verify the pass anew."""

    def unchanged(f: Function, context: Context, most: int = 2) -> Function:
        return f if most == 2 else drops_a_definition(f)

    register_pass("graph", "inline")(unchanged)
    assert cli.main(["run", "p.cvm", "--random-inputs", "1"]) == 0
    capsys.readouterr()
    assert cli.main(["opt", "p.cvm", "--pipeline", "unchanged{most=3}"]) == 1
    assert f"pass unchanged of {PACKAGE}: %h is used, but" in capsys.readouterr().err


def test_a_pass_may_be_declared_to_change_signatures(capsys: pytest.CaptureFixture[str]) -> None:
    register_pass("graph", changes_signature=True)(drops_a_result)
    assert cli.main(["opt", "p.cvm", "--pipeline", "drops_a_result"]) == 0
    assert "%i: tensor<2xi32>) -> tensor<4xi32> {" in capsys.readouterr().out
    for level, after in (("graph", "inline"), ("loops", "")):
        with pytest.raises(cvm.Error, match="only a pass of level graph, without a place, changes"):
            register_pass(level, after, changes_signature=True)(renames)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [drops_a_definition, states_a_type, drops_a_result])
def test_own_passes_are_verified_on_demand(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Function], Function],
) -> None:
    planted = replace(pipeline.PASSES["cse"], run=lambda f, context: change(f))
    monkeypatch.setitem(pipeline.PASSES, "cse", planted)
    assert cli.main(["opt", "p.cvm", "--pipeline", "cse", "--verify-each"]) == 1
    code, _, message = GRAPH[change][1].partition(": ")
    assert f"error[{code}]: pass cse of cvm: {message}" in capsys.readouterr().err


def test_formulas_are_verified(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_first(formulas: Any, context: Context) -> Any:
        return replace(formulas, steps=formulas.steps[1:])

    planted = replace(pipeline.PASSES["fuse"], run=without_first)
    monkeypatch.setitem(pipeline.PASSES, "fuse", planted)
    assert cli.main(["opt", "p.cvm", "--pipeline", "fuse", "--verify-each"]) == 1
    said = (
        "p.cvm:3:8: error[pass.definition]: pass fuse of cvm: %h is read, but nothing computes it"
    )
    assert said in capsys.readouterr().err
