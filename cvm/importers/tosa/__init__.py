"""TOSA graphs to programs: integer graphs, of which every result is what the specification says,
bit for bit.
"""

from os import PathLike

from cvm.dialect.support.compilation_context import USER_TRACEBACK
from cvm.dialect.types.tensor_types import TensorType
from cvm.importers import refuse, unreadable
from cvm.importers.exactness import Imported
from cvm.importers.flatbuffer import Damaged, contents
from cvm.importers.graph.importer import GraphNode, Importer

from .flatbuffer import read
from .rules import At
from .schema import ELEMENTS
from .text import read_text


@USER_TRACEBACK
def from_tosa(model: str | PathLike[str] | bytes) -> Imported:
    """Import a TOSA graph of integers as a verified module, whose function is `main`.

    Every result is that of the specification, bit for bit.

    Args:
        model: A path or a file's bytes: a flatbuffer, or the text of MLIR.

    Raises:
        ParseError: An operator cannot be imported; the message names every such operator.
    """
    filename, data = contents(model, "<tosa>")
    try:
        graph = read_text(data, filename) if b"func.func" in data else read(data)
    except Damaged as e:
        unreadable(filename, str(e))
    to = Importer("TOSA", "operator")
    values = {}
    for name in graph.inputs:
        if (t := graph.tensors.get(name)) is None or t.type not in ELEMENTS:
            kind = "no tensor" if t is None else f"of type {t.type}"
            refuse(filename, f"the model's input {name!r} is {kind}")
        values[name] = to.argument(name, TensorType(t.shape, ELEMENTS[t.type]))
    for number, o in enumerate(graph.operators):
        node = GraphNode(o.op, o.inputs, o.outputs)
        to.builder.span = o.span
        to.add(At(to, node, values, str(number), graph, o.attributes))
    to.check(filename)
    results = [to.result(filename, name, values.get(name)) for name in graph.outputs]
    to.names |= dict(zip(results, graph.outputs, strict=True))
    return to.imported(filename, results, "tosa")[0]
