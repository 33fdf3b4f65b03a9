"""Modules of PyTorch as programs, through `torch.export` and torch's ONNX exporter."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cvm

from .. import printable
from . import Imported, imported

NEEDED = ("torch", "onnxscript", "onnx")


def from_torch(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Imported:
    """Import a module of PyTorch as a verified module, whose function is `main`.

    Arguments have the names of the parameters of `forward`, and open sizes the names of torch's
    dimensions. A module in training mode is exported as in evaluation mode. Weights are written to
    a temporary file and read from it once. Needs the packages torch, onnxscript and onnx.

    Args:
        module: A `torch.nn.Module`, or an `ExportedProgram` of `torch.export`.
        args: Example arguments of `forward`; of an exported program they may be left out.
        kwargs: Example arguments by name.
        dynamic_shapes: Sizes that are open, as `torch.export.export` takes them:
            `{"x": {0: "batch"}}`. All other sizes are those of the example arguments.
        input_names: Names of the program's arguments, in place of those of `forward`.
        output_names: Names of its results.

    Raises:
        Error: A package is missing, or torch cannot export the module.
        ParseError: An operation cannot be imported; the message names every such operation.
    """
    try:
        torch, *_ = map(import_module, NEEDED)
    except ImportError as e:
        raise cvm.Error(
            f"cvm.from_torch needs the package {e.name}: pip install 'cvm-lang[torch]'"
        ) from None
    is_exported = isinstance(module, torch.export.ExportedProgram)
    if not is_exported and not isinstance(module, torch.nn.Module):
        raise cvm.Error(
            "cvm.from_torch takes a torch.nn.Module or an ExportedProgram, "
            f"got {type(module).__name__}"
        )
    trained = [] if is_exported else [m for m in module.modules() if m.training]
    try:
        if trained:
            module.eval()
        with _silent(), TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            exported = torch.onnx.export(
                module,
                tuple(args),
                kwargs=dict(kwargs or {}),
                dynamo=True,
                verbose=False,
                dynamic_shapes=dynamic_shapes,
                input_names=input_names,
                output_names=output_names,
            )
            exported.save(path, external_data=True)
            return imported(path, {}, {}, named="<torch>")[0]
    except cvm.Error:
        raise
    except Exception as e:  # of torch, whose exporter raises many kinds
        raise cvm.Error(f"torch cannot export the module: {_reason(e)}") from e
    finally:
        for m in trained:
            m.training = True


@contextmanager
def _silent() -> Iterator[None]:
    """Leave out all that the exporter prints, logs and warns of: its errors say the same."""
    logged = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logged)


def _reason(error: BaseException) -> str:
    """The message of the first error, which later ones wrap, and its line where torch says it."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error)
    said = next(filter(None, map(str.strip, text.splitlines())), type(error).__name__)
    places = re.findall(r'File "([^"]+)", line (\d+), in (\w+)', text)
    return printable(said) + "".join(f" ({Path(p[0]).name}:{p[1]}, {p[2]})" for p in places[-1:])
