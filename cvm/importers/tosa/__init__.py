"""TOSA graphs to programs: integer graphs, of which every result is what the specification says, bit for bit."""

from __future__ import annotations

from os import PathLike

import cvm
from cvm.dialect.ir.types import TensorType
from cvm.dialect.program.builder import Node
from cvm.dialect.program.function import Value
from cvm.dialect.program.module import Module
from cvm.dialect.program.verify import verify
from cvm.importers import Names, refuse, unreadable
from cvm.importers.exactness import EXACT, Imported, ImportedOperator, live
from cvm.importers.flatbuffer import Damaged, contents
from cvm.importers.onnx.importer import Importer

from .flatbuffer import read
from .graph import ELEMENTS, Graph, Operator
from .rules import EXACTNESS, RULES, At, Unsupported

CONSTANTS = ("CONST", "CONST_SHAPE")


def from_tosa(model: str | PathLike[str] | bytes) -> Imported:
    """See `cvm.from_tosa`."""
    filename, data = contents(model, "<tosa>")
    try:
        return program(read(data), filename)
    except Damaged as e:
        unreadable(filename, str(e))


def program(graph: Graph, filename: str = "<tosa>") -> Imported:
    """The program of a graph; raises ParseError with all operators that cannot be imported."""
    to, names = Importer(), Names()
    values: dict[str, Node | None] = {}
    refusals: list[str] = []
    for name in graph.inputs:
        t = graph.tensors.get(name)
        if t is None or t.type not in ELEMENTS:
            refuse(filename, f"the model's input {name!r} is {'no tensor' if t is None else f'of type {t.type}'}")
        to.arguments.append(to.builder.node(Value(names.of(name), TensorType(t.shape, ELEMENTS[t.type]))))
        values[name] = to.arguments[-1]
    imported: list[ImportedOperator] = []
    for number, operator in enumerate(graph.operators):
        before = len(to.builder.operations)
        try:
            made = _imported(At(to.builder, graph, operator), values)
        except Unsupported as e:
            refusals.append(f"{operator.op}: {e} is not supported")
            made = None
        except cvm.Error as e:
            refusals.append(f"{operator.op}: {e.diagnostics[0].message}")
            made = None
        except (LookupError, TypeError, ValueError, ArithmeticError, AssertionError) as e:
            refusals.append(f"{operator.op}: it is not as TOSA defines it: {e}")
            made = None
        if made is not None and operator.outputs and made.array_type.key != _declared(graph, operator):
            refusals.append(f"{operator.op}: its result is {made.array_type}, the model says otherwise")
        values.update(dict.fromkeys(operator.outputs, made))
        computed = frozenset(r for o in to.builder.operations[before:] for r in o.results)
        imported.append(ImportedOperator(operator.op, str(number), EXACTNESS.get(operator.op, EXACT), computed))
    results = [values.get(name) for name in graph.outputs]
    if refusals or not all(results):
        refusals = refusals or [f"the output {n!r} is nowhere computed" for n in graph.outputs]
        count = f"{len(refusals)} operator{'s' * (len(refusals) > 1)}"
        refuse(filename, f"{count} of the model cannot be imported", *dict.fromkeys(refusals))
    to.names |= {r.value: name for r, name in zip(results, graph.outputs, strict=True) if r is not None}
    function, _ = to.main([r.value for r in results if r is not None], names)
    main = verify(Module({"main": function}, filename)).functions
    return Imported(main, filename, {}, "tosa", live(imported, function))


def _imported(at: At, values: dict[str, Node | None]) -> Node | None:
    """The result of an operator; None where it needs one that was refused."""
    operator = at.operator
    if operator.op in CONSTANTS:
        t = at.graph.tensors[operator.outputs[0]]
        if t.type not in ELEMENTS or t.data is None:
            raise Unsupported(f"a constant of type {t.type}" if t.data is not None else "a constant without elements")
        return at.builder.constant(t.data)
    if operator.op not in RULES:
        raise Unsupported("the operator")
    types = {at.graph.tensors[n].type for n in (*operator.inputs, *operator.outputs)}
    if unknown := types - set(ELEMENTS) | types & {"FP32"}:
        raise Unsupported(f"a tensor of type {min(unknown)}")
    given = [values[n] for n in operator.inputs]
    return None if any(v is None for v in given) else RULES[operator.op](at, *given)


def _declared(graph: Graph, operator: Operator) -> tuple[object, ...]:
    t = graph.tensors[operator.outputs[0]]
    return TensorType(t.shape, ELEMENTS.get(t.type, ELEMENTS["INT32"])).key
