"""`cvm import`: convert a model of another system to a program, with its constants in an
archive.
"""

import io
import json
import zipfile
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.lib.format import write_array

import cvm
from cvm.dialect.builtin import Const, Data
from cvm.dialect.ir.function import Operation
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.support.array_files import read_arrays
from cvm.dialect.support.entry_points import load_offered
from cvm.importers import IMPORTERS, printable
from cvm.importers.cvm_runtime import program_text, read_model
from cvm.importers.exactness import Imported
from cvm.terminal.files import write
from cvm.terminal.usage import Usage

INLINE = 8  # elements of a constant that stays in the text


def importing(options: Namespace) -> int:
    inline = options.output == "-"
    output = Path(options.output)
    if not inline and output.suffix != ".cvm":
        raise Usage(f"-o is a program, .cvm; got {options.output}")
    archive = output.with_suffix(".npz")
    text, constants = _program(options, None if inline else archive.name)
    if not inline and constants:
        write(str(archive), archive_of(constants))
    write(options.output, text.encode())
    cvm.parse(text, options.model) if inline else cvm.load(output)
    return 0


def _program(options: Namespace, archive: str | None) -> tuple[str, Mapping[str, np.ndarray]]:
    """The text, and the constants that it reads from the archive."""
    path = Path(options.model)
    if (suffix := path.suffix.lower()) == ".onnx":
        from cvm.importers.onnx import imported

        module, renamed = imported(
            path, dict(map(_size, options.size)), dict(map(_constant, options.constant))
        )
        return _onnx_text(module, renamed, archive)
    if options.constant:
        raise Usage("--constant is of ONNX models")
    if suffix == ".tflite":
        from cvm.importers.tflite import imported as read_tflite

        sizes = {name: [n] if isinstance(n, int) else n for name, n in map(_size, options.size)}
        return _onnx_text(*read_tflite(path, sizes, options.rounding or "tflite_double"), archive)
    if options.size or options.rounding:
        raise Usage("--size is of ONNX and .tflite models, --rounding of the latter")
    load_offered("cvm.importers", suffix.removeprefix("."))
    readers = {"tosa": cvm.from_tosa, "mlir": cvm.from_mlir, **IMPORTERS}
    if (reader := readers.get(suffix.removeprefix("."))) is not None:
        return _onnx_text(reader(path), {}, archive)
    model = read_model(path)
    return program_text(model, archive), model.constants


def _onnx_text(
    module: Module, renamed: Mapping[str, str], archive: str | None
) -> tuple[str, Mapping[str, np.ndarray]]:
    """The program with its large constants in the archive; ONNX's names of values are comments
    where the language has others, and so are labels whose indices are results.
    """
    labels = module.labels if isinstance(module, Imported) else {}
    module, constants = with_archive(module, archive)
    main = module.functions["main"]
    pairs = (
        (o, renamed if f is main else {}) for f in module.functions.values() for o in f.operations
    )
    notes = {o: note for o, names in pairs if (note := _note(o, names))}
    head = [
        f"// %{a.name} is {printable(renamed[a.name])}\n"
        for a in main.arguments
        if a.name in renamed
    ]
    head += [
        f"// {printable(name)} is an index of {json.dumps(strings)}\n"
        for name, strings in labels.items()
    ]
    return "".join(head) + print_module(module, notes=notes), constants


def with_archive(module: Module, archive: str | None) -> tuple[Module, dict[str, np.ndarray]]:
    """The program whose large constants are read from an archive, and these by their names there;
    the program as it is without an archive.
    """
    constants: dict[str, np.ndarray] = {}

    def archived(function: str, operation: Operation) -> Operation:
        const = operation.operator
        if (
            archive is None
            or not isinstance(const, Const)
            or const.data.array.size <= INLINE
            or const.data.splat
        ):
            return operation
        name = (
            operation.results[0].name
            if function == "main"
            else f"{function}.{operation.results[0].name}"
        )
        constants[name] = const.data.array
        return replace(
            operation, operator=replace(const, data=Data(constants[name], (archive, name)))
        )

    changed = (
        (n, f, tuple(archived(n, o) for o in f.operations)) for n, f in module.functions.items()
    )
    functions = {n: replace(f, operations=operations) for n, f, operations in changed}
    return module.with_functions(functions), constants


def _note(operation: Operation, renamed: Mapping[str, str]) -> str:
    """The node that an operation stems from, and ONNX's name of its result where the language has
    another.
    """
    node = operation.span.source.line(operation.span.line).rpartition("  // ")[2]
    name = printable(renamed.get(operation.results[0].name, ""))
    return f"{node}: {name}" if name and node else name or node


def _size(text: str) -> tuple[str, int | list[int]]:
    name, equals, value = text.rpartition("=")
    try:
        first, *more = [int(n) for n in value.split(",") if equals]
        return name, [first, *more] if more else first
    except ValueError:
        raise Usage(
            f"--size is a name and a size, N=1, or sizes, image=1,3,224,224; got {text}"
        ) from None


def _constant(text: str) -> tuple[str, np.ndarray]:
    name, equals, value = text.partition("=")
    try:
        if value.endswith(".npy") and isinstance(held := read_arrays(value), np.ndarray):
            return name, held
        array = np.asarray(json.loads(value))
    except (OSError, ValueError, RecursionError) as e:
        raise Usage(f"--constant {name}: {str(e).splitlines()[0]}") from None
    if not equals or array.dtype.kind not in "biuf":
        raise Usage(
            f"--constant is a name and numbers, axes=[0,2], or a file, table=FILE.npy; got {text}"
        )
    return name, array


def archive_of(constants: Mapping[str, np.ndarray]) -> bytes:
    """An .npz of the constants, each in its narrowest type: the language widens what it reads."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in constants.items():
            narrow = array.astype(np.int8) if array.dtype == np.int32 else array
            with archive.open(f"{name}.npy", "w") as member:
                write_array(
                    member, narrow if np.array_equal(narrow, array) else array, allow_pickle=False
                )
    return file.getvalue()
