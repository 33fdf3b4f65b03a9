"""MLIR text to programs, by the importer of its dialects: `tosa`, `stablehlo`, or `linalg` and
its kin.
"""

import re
from os import PathLike

from cvm.dialect.support.compilation_context import USER_TRACEBACK
from cvm.importers.exactness import Imported
from cvm.importers.flatbuffer import contents
from cvm.importers.mlir import imported
from cvm.importers.tosa import from_tosa

HLO = re.compile(rb"\b(stablehlo|chlo)\.\w|^ML\xefR")  # its text, or bytecode


@USER_TRACEBACK
def from_mlir(model: str | PathLike[str] | bytes) -> Imported:
    """Import the function @main of an MLIR module, or its public one, as a verified module.

    Functions that it calls become part of it. Text with operators of `tosa` goes to `from_tosa`,
    with those of `stablehlo` to `from_stablehlo`.
    Needs the package xdsl.

    Args:
        model: A path, or the text in bytes.

    Raises:
        ParseError: An operation cannot be imported; the message names every such operation.
    """
    filename, data = contents(model, "<mlir>")
    if b"tosa." in data:
        return from_tosa(model)
    if HLO.search(data):
        from cvm.importers.stablehlo import from_stablehlo

        return from_stablehlo(model)
    return imported(data.decode("utf-8", "replace"), filename)
