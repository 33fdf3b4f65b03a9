"""`cvm import`: convert a model of another system to a program, with its constants in an archive."""

from __future__ import annotations

import io
import zipfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.lib.format import write_array

import cvm
from cvm.cli import Usage
from cvm.commands.io import write
from cvm.dialect.program.printer import print_module
from cvm.importers.cvm_runtime import program_text, read_model


def importing(options: Namespace) -> int:
    path = Path(options.model)
    inline = options.output == "-"
    output = Path(options.output)
    if not inline and output.suffix != ".cvm":
        raise Usage(f"-o is a program, .cvm; got {options.output}")
    archive = output.with_suffix(".npz")
    text, constants = _program(path, None if inline else archive.name)
    if not inline and constants:
        write(str(archive), _archive(constants))
    write(options.output, text.encode())
    cvm.parse(text, options.model) if inline else cvm.load(output)
    return 0


def _program(path: Path, archive: str | None) -> tuple[str, Mapping[str, np.ndarray]]:
    """The text, and the constants that it reads from the archive."""
    if path.suffix.lower() == ".onnx":
        from cvm.importers.onnx_model import import_onnx

        module, constants = import_onnx(path, archive)
        return print_module(module), constants
    model = read_model(path)
    return program_text(model, archive), model.constants


def _archive(constants: Mapping[str, np.ndarray]) -> bytes:
    """An .npz of the constants, each in its narrowest type: the language widens what it reads."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, array in constants.items():
            narrow = array.astype(np.int8) if array.dtype == np.int32 else array
            with archive.open(f"{name}.npy", "w") as member:
                write_array(member, narrow if np.array_equal(narrow, array) else array, allow_pickle=False)
    return held.getvalue()
