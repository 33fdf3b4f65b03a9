"""ONNX models as they are given: files with what they refer to in their folder, bytes, or models of
the `onnx` package.
"""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import cvm
from cvm.importers import unreadable


def read_model(model: Any) -> tuple[str, Any]:
    """The model's file name, and the model, whole and checked."""
    try:
        import onnx
    except ImportError:
        raise cvm.Error("ONNX models need the onnx package: pip install 'cvm-lang[onnx]'") from None
    folder: Path | None = None
    filename = "<onnx>"
    try:
        if isinstance(model, onnx.ModelProto):
            proto = onnx.ModelProto()
            proto.CopyFrom(model)
        elif isinstance(model, bytes):
            proto = onnx.load_model_from_string(model)
        elif isinstance(model, (str, PathLike)):
            filename, folder = str(model), Path(model).parent
            proto = onnx.load(filename, load_external_data=False)
        else:
            kind = type(model).__name__
            raise cvm.Error(
                f"expected the path of a model, its bytes or an onnx.ModelProto, got {kind}"
            )
        for tensor in tensors(proto.graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                read_external(tensor, folder)
        state_outputs(proto.graph)
        check(proto)
    except cvm.Error:
        raise
    except OSError as e:
        unreadable(filename, e)
    except Exception as e:  # whatever the package finds wrong with a file
        unreadable(filename, (str(e).strip().splitlines() or [type(e).__name__])[0])
    return filename, proto


def state_outputs(graph: Any) -> None:
    """Give outputs without a type or a shape some, which the checker demands and nothing reads."""
    for output in graph.output:
        if output.type.WhichOneof("value") in (None, "tensor_type"):
            tensor = output.type.tensor_type
            tensor.elem_type = tensor.elem_type  # is then there, if as 0
            tensor.shape.SetInParent()


def check(proto: Any) -> None:
    """Check the assumptions of the rules: every node has its own outputs, and its inputs come
    before it.
    """
    import onnx

    if not proto.HasField("graph"):
        raise ValueError("it has no graph")
    if any(
        isinstance(t, bytes) for t in texts(proto)
    ):  # which protobuf gives where a text cannot be decoded
        raise ValueError("a name in it is not UTF-8")
    if proto.ByteSize() < 1 << 28:
        onnx.checker.check_model(proto)


def texts(message: Any) -> Iterator[Any]:
    for field, value in message.ListFields():
        values = value if hasattr(value, "append") else [value]
        if field.type == field.TYPE_STRING:
            yield from values
        elif field.type == field.TYPE_MESSAGE:
            for part in values:
                yield from texts(part)


def tensors(graph: Any) -> Iterator[Any]:
    import onnx

    yield from graph.initializer
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.TENSOR:
                yield a.t
            yield from a.tensors
            for g in [a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs:
                yield from tensors(g)


def read_external(tensor: Any, folder: Path | None) -> None:
    """Reads a tensor's data from a file that lies in the model's folder."""
    import onnx

    entries = {e.key: e.value for e in tensor.external_data}
    name = entries.get("location", "")
    if folder is None:
        raise ValueError(
            f"tensor {tensor.name!r} is in another file, {name!r}, but the model comes "
            "without a folder"
        )
    path, root = (folder / name).resolve(), folder.resolve()
    if not name or Path(name).is_absolute() or root not in path.parents or not path.is_file():
        raise ValueError(
            f"tensor {tensor.name!r} is in {name!r}, which is no file in the model's folder"
        )
    start, size = int(entries.get("offset", 0)), path.stat().st_size
    length = int(entries.get("length", size - start))
    if start < 0 or length < 0 or start + length > size:
        where = f"{name!r} at {start} to {start + length}"
        raise ValueError(f"tensor {tensor.name!r} is in {where}, but it has {size} bytes")
    with path.open("rb") as file:
        file.seek(start)
        tensor.raw_data = file.read(length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
