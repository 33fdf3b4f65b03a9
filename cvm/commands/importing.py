"""`cvm import`: a model of another system to a program, with its constants beside it."""

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
from cvm.commands.files import write
from cvm.runtime_model import program_text, read_model


def importing(options: Namespace) -> int:
    path = Path(options.model)
    if path.suffix.lower() == ".onnx":
        raise cvm.Error("models of CVM-Runtime are read, ONNX is not")
    model = read_model(path)
    if options.output == "-":
        text = program_text(model, None)
        cvm.parse(text, options.model)
        write("-", text.encode())
        return 0
    output = Path(options.output)
    if output.suffix != ".cvm":
        raise Usage(f"-o is a program, .cvm; got {options.output}")
    archive = output.with_suffix(".npz")
    if model.constants:
        write(str(archive), _archive(model.constants))
    text = program_text(model, archive.name)
    write(str(output), text.encode())
    cvm.load(output)
    return 0


def _archive(constants: Mapping[str, np.ndarray]) -> bytes:
    """An .npz of the constants, each as narrow as it can be: the language widens what it reads."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, array in constants.items():
            narrow = array.astype(np.int8)
            with archive.open(f"{name}.npy", "w") as member:
                write_array(member, narrow if np.array_equal(narrow, array) else array, allow_pickle=False)
    return held.getvalue()
