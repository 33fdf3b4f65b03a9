"""ONNX models as they are given: files with what they refer to in their folder, bytes, or models of
the `onnx` package.
"""

from collections.abc import Iterator
from io import BufferedIOBase, BytesIO
from itertools import count
from math import prod
from mmap import ACCESS_READ, mmap as mmap_file
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import cvm
from cvm.dialect.builtin import owned
from cvm.importers import unreadable

from .elements import CODES, element_of

Arrays: TypeAlias = dict[int, np.ndarray]
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # numbers of fields in onnx.proto
LEAST = 1 << 12  # bytes of a tensor that is read by itself: a page


def read_model(model: Any, mmap: bool = False) -> tuple[str, Any, Arrays]:
    """The model's file name, the model, whole and checked, and the elements of its larger
    initializers by their number, of which the model keeps empty ones.
    """
    try:
        import onnx
    except ImportError:
        raise cvm.Error("ONNX models need the onnx package: pip install 'cvm-lang[onnx]'") from None
    folder: Path | None = None
    filename = "<onnx>"
    try:
        if isinstance(model, onnx.ModelProto):
            proto, arrays = parsed(model.SerializeToString())
        elif isinstance(model, bytes):
            proto, arrays = parsed(model)
        elif isinstance(model, (str, PathLike)):
            filename, folder = str(model), Path(model).parent
            proto, arrays = load(Path(model))
        else:
            kind = type(model).__name__
            raise cvm.Error(
                f"expected the path of a model, its bytes or an onnx.ModelProto, got {kind}"
            )
        for number, tensor in enumerate(proto.graph.initializer):
            if tensor.data_location == onnx.TensorProto.EXTERNAL and is_plain(tensor):
                path, start, length = external(tensor, folder)
                with path.open("rb") as file:
                    arrays[number] = elements(tensor, file, start, length, mmap)
                empty(tensor)
        for tensor in tensors(proto.graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                read_external(tensor, folder)
        state_outputs(proto.graph)
        state_domains(proto)
        check(proto)
    except cvm.Error:
        raise
    except OSError as e:
        unreadable(filename, e)
    except Exception as e:  # whatever the package finds wrong with a file
        unreadable(filename, (str(e).strip().splitlines() or [type(e).__name__])[0])
    return filename, proto, arrays


def load(path: Path) -> tuple[Any, Arrays]:
    """A model's file; a text format is the package's work."""
    import onnx
    from onnx.serialization import registry

    if registry.get_format_from_file_extension(path.suffix) not in (None, "protobuf"):
        proto = onnx.load(str(path), load_external_data=False)
        return parsed(proto.SerializeToString())
    with path.open("rb") as file:
        if path.stat().st_size < LEAST:
            return parsed(file.read())
        with mmap_file(file.fileno(), 0, access=ACCESS_READ) as data:
            return parsed(data, file)


def parsed(data: bytes | mmap_file, file: BufferedIOBase | None = None) -> tuple[Any, Arrays]:
    """A serialized model. Raw data of initializers does not go through protobuf, which would hold
    the whole file and a copy: the elements are read into their arrays.
    """
    import onnx

    kept, arrays = bytearray(), {}
    number = count()
    try:
        for field, head, body, stop in fields(data, 0, len(data)):
            if field != GRAPH:
                kept += data[head:stop]
                continue
            graph = bytearray()
            for inner, start, first, end in fields(data, body, stop):
                at = next(number) if inner == INITIALIZER else 0
                stub = None
                if inner == INITIALIZER and end - first >= LEAST:
                    stub = without_elements(data, first, end, file)
                if stub is None:
                    graph += data[start:end]
                else:
                    text, arrays[at] = stub
                    graph += bytes([INITIALIZER << 3 | 2]) + varint(len(text)) + text
            kept += bytes([GRAPH << 3 | 2]) + varint(len(graph)) + graph
    except IndexError:  # the package says what is wrong
        return onnx.ModelProto.FromString(bytes(data)), {}
    return onnx.ModelProto.FromString(bytes(kept)), arrays


def without_elements(
    data: bytes | mmap_file, start: int, end: int, file: BufferedIOBase | None
) -> tuple[bytes, np.ndarray] | None:
    """A serialized tensor without its raw data, and that; None for one that is held otherwise."""
    import onnx

    parts = list(fields(data, start, end))
    raw = [(first, last) for field, _, first, last in parts if field == RAW_DATA]
    if len(raw) != 1 or sum(last - at for f, at, _, last in parts if f != RAW_DATA) > LEAST:
        return None
    tensor = onnx.TensorProto.FromString(
        b"".join(data[at:last] for field, at, _, last in parts if field != RAW_DATA)
    )
    values = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    if not is_plain(tensor) or tensor.data_location or any(getattr(tensor, v) for v in values):
        return None
    first, last = raw[0]
    source = file or BytesIO(memoryview(data)[first:last])
    array = elements(tensor, source, first if file else 0, last - first)
    empty(tensor)
    return tensor.SerializeToString(), array


def is_plain(tensor: Any) -> bool:
    """Test whether raw data is the elements as arrays hold them."""
    import onnx

    name = {c: n for n, c in onnx.TensorProto.DataType.items()}.get(tensor.data_type, "")
    return name in CODES and name != "BOOL"


def elements(
    tensor: Any, file: BufferedIOBase, start: int, length: int, mmap: bool = False
) -> np.ndarray:
    """The elements of a tensor out of a file, read or, where they are aligned, mapped."""
    shape, dtype = tuple(tensor.dims), element_of(tensor.data_type).dtype
    if (needed := prod(shape) * dtype.itemsize) != length or min(shape, default=0) < 0:
        raise ValueError(
            f"tensor {tensor.name!r} of shape {list(shape)} needs {needed} bytes, but it has "
            f"{length}"
        )
    if mmap and length and start % dtype.itemsize == 0:
        return np.asarray(np.memmap(file, dtype, "r", start, shape))
    array = np.empty(shape, dtype)
    file.seek(start)
    if length and file.readinto(array.reshape(-1).view(np.uint8).data) != length:
        raise ValueError(f"tensor {tensor.name!r} ends early")
    return owned(array)


def empty(tensor: Any) -> None:
    """Let a tensor have no elements, as the checker knows it, which reads those that there are."""
    import onnx

    tensor.dims[:] = [0]
    tensor.raw_data = b""
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def fields(data: bytes | mmap_file, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a serialized message: number, start, start of the contents, end; IndexError
    where it is none (protobuf's encoding: https://protobuf.dev/programming-guides/encoding).
    """
    while start < end:
        tag, first = read_varint(data, start)
        match tag & 7:
            case 0:
                last = read_varint(data, first)[1]
            case 2:
                size, first = read_varint(data, first)
                last = first + size
            case 1 | 5 as kind:
                last = first + (8 if kind == 1 else 4)
            case _:
                raise IndexError
        if last > end:
            raise IndexError
        yield tag >> 3, start, first, last
        start = last


def read_varint(data: bytes | mmap_file, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, the lowest first, and where it ends."""
    number = 0
    for shift in range(0, 64, 7):
        byte = data[at + shift // 7]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + shift // 7 + 1
    raise IndexError


def varint(number: int) -> bytes:
    more = -(-max(number.bit_length(), 1) // 7) - 1
    return bytes(number >> 7 * n & 127 | (128 if n < more else 0) for n in range(more + 1))


def state_outputs(graph: Any) -> None:
    """Give outputs without a type or a shape some, which the checker demands and nothing reads."""
    for output in graph.output:
        if output.type.WhichOneof("value") in (None, "tensor_type"):
            tensor = output.type.tensor_type
            tensor.elem_type = tensor.elem_type  # is then there, if as 0
            tensor.shape.SetInParent()


def state_domains(proto: Any) -> None:
    """Give onnxruntime's operators that it writes without a domain theirs."""
    domain = "com.microsoft"
    for node in proto.graph.node:
        if node.op_type == "SimplifiedLayerNormalization" and not node.domain:
            node.domain = domain
            if all(o.domain != domain for o in proto.opset_import):
                proto.opset_import.add(domain=domain, version=1)


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


def external(tensor: Any, folder: Path | None) -> tuple[Path, int, int]:
    """The file of a tensor's data, which lies in the model's folder, and the first byte and the
    number of bytes there.
    """
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
    return path, start, length


def read_external(tensor: Any, folder: Path | None) -> None:
    """Read a tensor's data from its file."""
    import onnx

    path, start, length = external(tensor, folder)
    with path.open("rb") as file:
        file.seek(start)
        tensor.raw_data = file.read(length)
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]
