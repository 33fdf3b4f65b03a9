"""Models of CVM-Runtime to programs: a graph in JSON (`symbol`) and its constants (`params`) to
.cvm text and arrays.

The runtime's names and defaults become the language's. What the graph says of shapes is stated in
the program, so that it is verified against what the operators infer; precisions of operations are
left to that, too. Nothing of a file is trusted: names are quoted or replaced, sizes are held
against the bytes there are.
"""

import ast
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cvm.dialect.types.attributes import quoted
from cvm.importers import refuse
from cvm.importers.flatbuffer import contents

VERSIONS = ("cvm_1.0.0", "cvm_1.1.0")
TOP_KEYS = {"nodes", "heads", "attrs", "arg_nodes", "node_row_ptr", "version", "postprocess"}
GRAPH_KEYS = {"storage_id", "shape", "op_attrs", "dltype", "precision", "dtype", "device_index"}
NODE_KEYS = {"op", "name", "inputs", "attrs", "precision"}
LISTS_MAGIC, ARRAY_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F

# What the runtime calls differently. `flatten` and `reshape` become a reshape to the shape that the
# graph states.
OPERATORS = {"flatten": "reshape", "get_valid_counts": "get_valid_count", "strided_slice": "slice"}
ATTRIBUTES = {
    "conv2d": {"strides": "stride"},
    "max": {"axis": "axes"},
    "slice_like": {"axis": "axes"},
    "squeeze": {"axis": "axes"},
    "strided_slice": {"stride": "strides"},
    "sum": {"axis": "axes"},
}
DROPPED = {  # what our operators infer, or have no choice in
    "conv2d": {
        "channels",
        "kernel_size",
        "use_bias",
        "layout",
        "kernel_layout",
        "out_layout",
        "out_dtype",
    },
    "dense": {"units", "use_bias"},
    "max_pool2d": {"layout"},
    "non_max_suppression": {
        "coord_start",
        "id_index",
        "invalid_to_bottom",
        "return_indices",
        "score_index",
    },
}
DEFAULTS = {  # which differ from ours
    "concatenate": {"axis": "1"},
    "repeat": {"axis": "0"},
    "strided_slice": {"begin": "[0]", "end": "[1]"},
}


@dataclass(frozen=True)
class Model:
    """A graph as it was read, held against the format: types are shapes of i32."""

    nodes: Sequence[Mapping[str, Any]]
    rows: Sequence[int]  # the first entry of each node, and of none
    shapes: Sequence[Sequence[int]]
    attributes: Sequence[Mapping[str, str]]  # of each node, as the runtime writes them
    heads: Sequence[int]
    precision: int | None  # of the input
    constants: Mapping[str, np.ndarray]


def read_model(path: Path) -> Model:
    """The model of a folder with `symbol` and `params`, or of a graph with its params beside it."""
    symbol = path / "symbol" if path.is_dir() else path
    params = symbol.with_name("params" if symbol.name == "symbol" else f"{symbol.stem}.params")
    return _Graph(str(symbol), contents(symbol, "")[1]).model(
        read_params(contents(params, "")[1], str(params))
    )


# The graph


def hold(filename: str, condition: bool, message: str) -> None:
    if not condition:
        refuse(filename, message)


class _Graph:
    def __init__(self, filename: str, data: bytes) -> None:
        self.hold = partial(hold, filename)
        try:
            self.tree = json.loads(data)
        except (ValueError, RecursionError) as e:
            refuse(
                filename,
                f"a model is .onnx, .tflite, .tosa or else CVM-Runtime's graph in JSON: {e}",
            )

    def keys(
        self, fields: Any, allowed: set[str], required: Sequence[str], subject: str
    ) -> Mapping[str, Any]:
        self.hold(isinstance(fields, dict), f"{subject} is an object")
        for key in fields:
            self.hold(
                key in allowed, f"{subject} has no {key!r}; it has {', '.join(sorted(allowed))}"
            )
        for key in required:
            self.hold(key in fields, f"{subject} needs {key!r}")
        return fields

    def integers(self, items: Any, subject: str) -> list[int]:
        good = isinstance(items, list) and all(type(i) is int and 0 <= i < 1 << 40 for i in items)
        self.hold(
            good, f"{subject} is a list of integers that are not negative, got {_short(items)}"
        )
        return items

    def model(self, constants: Mapping[str, np.ndarray]) -> Model:
        top = self.keys(self.tree, TOP_KEYS, ("nodes", "heads", "attrs"), "the graph")
        version = top.get("version", VERSIONS[0])
        self.hold(
            version in VERSIONS, f"expected version {' or '.join(VERSIONS)}, got {_short(version)}"
        )
        graph = self.keys(top["attrs"], GRAPH_KEYS, ("storage_id", "shape", "op_attrs"), "attrs")
        self.hold(isinstance(top["nodes"], list), "nodes is a list")
        nodes = [
            self.keys(n, NODE_KEYS, ("op", "name", "inputs"), f"node {i}")
            for i, n in enumerate(top["nodes"])
        ]
        rows = [0]
        for n, node in enumerate(nodes):
            rows.append(rows[-1] + self.outputs(n, node))
            self.hold(isinstance(node["inputs"], list), f"the inputs of node {n} are a list")
            for entry in node["inputs"]:
                self.entry(entry, rows, n, f"an input of node {n}")
        if version == VERSIONS[0]:
            self.hold(
                top.get("node_row_ptr", rows) == rows, f"node_row_ptr is {rows} for these nodes"
            )
            variables = [n for n, node in enumerate(nodes) if node["op"] == "null"]
            self.hold(
                top.get("arg_nodes", variables) == variables,
                f"arg_nodes is {variables} for these nodes",
            )
        shapes = [self.integers(s, "a shape") for s in self.listed(graph, "shape", rows[-1])]
        attributes = [
            self.op_attributes(n, a)
            for n, a in enumerate(self.listed(graph, "op_attrs", len(nodes)))
        ]
        heads = [
            self.entry(h, rows, len(nodes), "a head")
            for h in self.listed({"heads": top["heads"]}, "heads", None)
        ]
        self.variables(nodes, rows, shapes, constants)
        precisions = self.listed(graph, "precision", rows[-1]) if "precision" in graph else []
        at = next((rows[n] for n, node in enumerate(nodes) if node["name"] == "data"), None)
        precision = precisions[at] if at is not None and precisions else None
        input_precision = precision if type(precision) is int and 1 <= precision <= 32 else None
        return Model(nodes, rows, shapes, attributes, heads, input_precision, constants)

    def listed(self, fields: Mapping[str, Any], key: str, count: int | None) -> list[Any]:
        """A list of `count` items, or the pair of a kind and such a list."""
        if isinstance(items := fields[key], list) and len(items) == 2 and isinstance(items[0], str):
            items = items[1]
        self.hold(isinstance(items, list), f"{key} is a list")
        self.hold(
            count is None or len(items) == count, f"{key} has {count} items, got {len(items)}"
        )
        return items

    def outputs(self, n: int, node: Mapping[str, Any]) -> int:
        kind, name = node["op"], node["name"]
        self.hold(kind in ("null", "cvm_op"), f"node {n} is a null or a cvm_op, got {_short(kind)}")
        self.hold(isinstance(name, str), f"node {n} has a name")
        if kind == "null":
            return 1
        attrs: Any = node.get("attrs")
        self.hold(
            isinstance(attrs, dict) and isinstance(attrs.get("func_name"), str),
            f"node {n} needs a func_name",
        )
        count = str(attrs.get("num_outputs", "1"))
        self.hold(count in ("1", "2"), f"node {n} has 1 or 2 outputs, got {_short(count)}")
        return int(count)

    def entry(self, pair: Any, rows: Sequence[int], nodes: int, subject: str) -> int:
        good = isinstance(pair, list) and len(pair) in (2, 3) and all(type(i) is int for i in pair)
        self.hold(good, f"{subject} is [node, output], got {_short(pair)}")
        self.hold(0 <= pair[0] < nodes, f"{subject} is of an earlier node, got {pair[0]}")
        at = rows[pair[0]] + pair[1]
        self.hold(
            pair[1] >= 0 and at < rows[pair[0] + 1],
            f"{subject}: node {pair[0]} has no output {pair[1]}",
        )
        return at

    def op_attributes(self, n: int, text: Any) -> Mapping[str, str]:
        try:
            attributes: Any = json.loads(text) if isinstance(text, str) and text else {}
        except (ValueError, RecursionError):
            attributes = None
        good = isinstance(attributes, dict) and all(isinstance(v, str) for v in attributes.values())
        self.hold(good, f"the op_attrs of node {n} are an object of strings, got {_short(text)}")
        return attributes

    def variables(
        self,
        nodes: Sequence[Mapping[str, Any]],
        rows: Sequence[int],
        shapes: Sequence[Sequence[int]],
        constants: Mapping[str, np.ndarray],
    ) -> None:
        names = [(node["name"], rows[n]) for n, node in enumerate(nodes) if node["op"] == "null"]
        self.hold(
            len({name for name, _ in names}) == len(names), "the names of variables are distinct"
        )
        for name, entry in names:
            if name == "data":
                continue
            self.hold(name in constants, f"variable {_short(name)} is not among the params")
            stated, actual = tuple(shapes[entry]), constants[name].shape
            self.hold(
                stated == actual,
                f"variable {_short(name)} has shape {stated}, but the params have {actual}",
            )
        more = sorted(set(constants) - {name for name, _ in names})
        self.hold(
            not more,
            f"the graph has no variable {_short(more[0]) if more else ''}, but the params do",
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# The constants


def read_params(data: bytes, filename: str = "params") -> dict[str, np.ndarray]:
    """The constants by name, widened to i32. Little endian; the runtime's writer may leave other
    bytes after them.
    """
    at = 0

    def read(format: str) -> tuple[Any, ...]:
        nonlocal at
        size = struct.calcsize("<" + format)
        if len(data) - at < size:
            refuse(filename, f"the params end after {len(data)} bytes, in the middle of something")
        numbers = struct.unpack_from("<" + format, data, at)
        at += size
        return numbers

    expect = partial(hold, filename)
    expect(read("QQ")[0] == LISTS_MAGIC, "the params begin as those of CVM-Runtime do not")
    (count,) = read("Q")
    names: list[str] = []
    for _ in range(min(count, len(data))):
        (length,) = read("Q")
        expect(length <= len(data), f"a name of {length} bytes is longer than the params")
        names.append(read(f"{length}s")[0].decode("utf-8", "replace"))
    expect(len(set(names)) == len(names), "the names of params are distinct")
    (arrays,) = read("Q")
    expect(arrays == len(names), f"expected {len(names)} arrays, as there are names, got {arrays}")
    params: dict[str, np.ndarray] = {}
    for name in names:
        magic, _, _, _, rank, code, bits, lanes = read("QQiiiBBH")
        expect(magic == ARRAY_MAGIC, f"param {_short(name)} does not begin as an array does")
        good, layout = (
            code == 0 and lanes == 1 and bits in (8, 32),
            f"code {code}, {bits} bits, {lanes} lanes",
        )
        expect(good, f"param {_short(name)}: expected integers of 8 or 32 bits, got {layout}")
        expect(0 <= rank <= 6, f"param {_short(name)}: expected a rank from 0 to 6, got {rank}")
        shape, (size,) = read(f"{rank}q"), read("q")
        byte_count = bits // 8
        for d in shape:
            expect(
                0 <= d <= len(data),
                f"param {_short(name)}: a size of {d} is more than there are bytes",
            )
            byte_count *= d
        expect(
            size == byte_count,
            f"param {_short(name)}: expected {byte_count} bytes for its shape, got {size}",
        )
        (elements,) = read(f"{size}s")
        params[name] = np.frombuffer(elements, f"<i{bits // 8}").reshape(shape).astype(np.int32)
    return params


# The program


def program_text(model: Model, archive: str | None) -> str:
    """The model as a function @main. Its constants are in the archive, or where there is none in
    the text.
    """
    names = _names(model)
    shapes = model.shapes
    lines, arguments = [], []
    for n, node in enumerate(model.nodes):
        entries = range(model.rows[n], model.rows[n + 1])
        if node["op"] == "null":
            type = _tensor(shapes[entries[0]])
            if node["name"] == "data":
                arguments.append(f"{names[entries[0]]}: {type}{_range(model.precision)}")
            else:
                name = node["name"]
                literal = (
                    f"file({quoted(archive)}, {quoted(name)})"
                    if archive
                    else _dense(model.constants[name])
                )
                lines.append(f"{names[entries[0]]} = const {literal} : {type}")
            continue
        operands = [model.rows[i] + entry for i, entry, *_ in node["inputs"]]
        function = re.sub(r"_\d+$", "", node["attrs"]["func_name"])
        name, attributes = _operator(function, model.attributes[n], shapes[entries[0]])
        if name == "cvm_lut":
            operands.reverse()  # the runtime has the indices first
        results, inputs = (", ".join(names[e] for e in es) for es in (entries, operands))
        takes, gives = (", ".join(_tensor(shapes[e]) for e in es) for es in (operands, entries))
        signature = f"({takes}) -> {gives if len(entries) == 1 else f'({gives})'}"
        written = f" {{{attributes}}}" if attributes else ""
        lines.append(f"{results} = cvm.{name} {inputs}{written} : {signature}")
    lines.append("return " + ", ".join(names[e] for e in model.heads))
    outcome = ", ".join(_tensor(shapes[e]) for e in model.heads)
    body = "\n".join(f"  {line}" for line in lines)
    outcome = outcome if len(model.heads) == 1 else f"({outcome})"
    return f"func @main({', '.join(arguments)}) -> {outcome} {{\n{body}\n}}\n"


def _names(model: Model) -> list[str]:
    """A name for every entry: its node's, as far as the language takes it."""
    names: dict[str, None] = {}
    for n, node in enumerate(model.nodes):
        for output in range(model.rows[n + 1] - model.rows[n]):
            plain = re.sub(r"[^A-Za-z0-9_]", "_", node["name"])
            name = (
                f"%{plain}"
                if re.match("[A-Za-z_]", plain) and len(plain) < 64
                else f"%v_{len(names)}"
            )
            name = f"{name}_{output}" if output else name
            name = name if name not in names else f"%v_{len(names)}"
            while name in names:  # a node has that name
                name += "_"
            names[name] = None
    return [*names]


def _range(precision: int | None) -> str:
    """A precision of p bits is a magnitude below 2^(p - 1)."""
    if precision is None or precision < 2:
        return ""
    most = (1 << (precision - 1)) - 1
    return f" {{range = [{-most}, {most}]}}"


def _operator(
    function: str, attributes: Mapping[str, str], shape: Sequence[int]
) -> tuple[str, str]:
    if function in ("flatten", "reshape"):
        return "reshape", f"target_shape = {list(shape)}"
    defaults, dropped = DEFAULTS.get(function, {}), DROPPED.get(function, ())
    attrs = {k: v for k, v in {**defaults, **attributes}.items() if k not in dropped}
    renamed = ATTRIBUTES.get(function, {})
    return OPERATORS.get(function, function), ", ".join(
        f"{renamed.get(k, k)} = {_value(v)}" for k, v in attrs.items()
    )


def _value(text: str) -> str:
    """An attribute's value: `(1, 2)`, `5`, `True` or `None` there, `[1, 2]`, `5`, `true` or `none`
    here.
    """
    try:
        value = ast.literal_eval(text.capitalize() if text in ("true", "false") else text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return quoted(text)
    if isinstance(value, (tuple, list)):
        return str(list(value)) if all(type(i) is int for i in value) else quoted(text)
    return (
        str(value).lower()
        if value is None or isinstance(value, (bool, int, float))
        else quoted(text)
    )


def _tensor(shape: Sequence[int]) -> str:
    return f"tensor<{'x'.join([*map(str, shape), 'i32'])}>"


def _dense(array: np.ndarray) -> str:
    return f"dense<{json.dumps(array.tolist())}>"
