"""Models that CVM-Runtime's own Python interface wrote, translated to programs: they need no operator we do not have.

A folder of `models/` holds a graph (`symbol`, JSON), its constants (`params`), an input and the runtime's output.
"""

from __future__ import annotations

import ast
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm

MODELS = sorted(Path(__file__).with_name("models").iterdir())


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_the_model_gives_what_the_runtime_gave(model: Path, target: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "params.npz", allow_pickle=False, **read_params((model / "params").read_bytes()))
    program = tmp_path / f"{model.name}.cvm"
    program.write_text(translate(json.loads((model / "symbol").read_text())))
    got = cvm.compile(program, target=target)(np.load(model / "data.npy"))
    np.testing.assert_array_equal(got, np.load(model / "result_full_int32.npy"), strict=True)


def read_params(data: bytes) -> dict[str, np.ndarray]:
    """The constants by name, widened to i32. (Little endian; the writer may leave other bytes after them.)"""
    at = 16

    def read(format: str) -> tuple[Any, ...]:
        nonlocal at
        found = struct.unpack_from("<" + format, data, at)
        at += struct.calcsize("<" + format)
        return found

    assert struct.unpack_from("<Q", data) == (0xF7E58D4F05049CB7,)
    names = [read(f"{read('Q')[0]}s")[0].decode() for _ in range(read("Q")[0])]
    params = {}
    for name, _ in zip(names, range(read("Q")[0]), strict=True):
        magic, _, _, _, rank, code, bits, lanes = read("QQiiiBBH")
        assert (magic, code, lanes) == (0xDD5E40F096B4A13F, 0, 1)
        shape, (size,) = read(f"{rank}q"), read("q")
        params[name] = np.frombuffer(data, f"<i{bits // 8}", size * 8 // bits, at).reshape(shape).astype(np.int32)
        at += size
    return params


# What the runtime calls differently. `flatten` and `reshape` become a reshape to the shape that the graph states.
OPERATORS = {
    "flatten": "reshape",
    "get_valid_counts": "get_valid_count",
    "strided_slice": "slice",
}
ATTRIBUTES = {
    "conv2d": {"strides": "stride"},
    "max": {"axis": "axes"},
    "reshape": {"shape": "target_shape"},
    "slice_like": {"axis": "axes"},
    "squeeze": {"axis": "axes"},
    "strided_slice": {"stride": "strides"},
    "sum": {"axis": "axes"},
}
DROPPED = {  # what our operators infer, or have no choice in
    "conv2d": {"channels", "kernel_size", "use_bias", "layout", "kernel_layout", "out_layout", "out_dtype"},
    "dense": {"units", "use_bias"},
    "max_pool2d": {"layout"},
    "non_max_suppression": {"coord_start", "id_index", "invalid_to_bottom", "return_indices", "score_index"},
}
DEFAULTS = {  # which differ from ours
    "concatenate": {"axis": "1"},
    "repeat": {"axis": "0"},
    "strided_slice": {"begin": "[0]", "end": "[1]"},
}


def translate(symbol: dict[str, Any]) -> str:
    """A graph as a program, every operation with the types that the graph states."""
    shapes = symbol["attrs"]["shape"][1]
    rows = symbol["node_row_ptr"]
    lines, argument = [], ""
    for n, (node, own) in enumerate(zip(symbol["nodes"], symbol["attrs"]["op_attrs"][1], strict=True)):
        entries = range(rows[n], rows[n + 1])
        types = [tensor(shapes[e]) for e in entries]
        if node["op"] == "null":
            if node["name"] == "data":
                argument = f"%{entries[0]}: {types[0]}"
            else:
                lines.append(f'%{entries[0]} = const file("params.npz", "{node["name"]}") : {types[0]}')
            continue
        operands = [rows[i] + entry for i, entry, *_ in node["inputs"]]
        name, attributes = translated(node["attrs"]["func_name"], json.loads(own), shapes[entries[0]])
        if name == "cvm_lut":
            operands.reverse()  # the runtime has the indices first
        results, given = (", ".join(f"%{e}" for e in es) for es in (entries, operands))
        signature = f"({', '.join(tensor(shapes[o]) for o in operands)}) -> ({', '.join(types)})"
        lines.append(f"{results} = cvm.{name} {given} {{{attributes}}} : {signature}")
    heads = [rows[i] + entry for i, entry, *_ in symbol["heads"]]
    lines.append("return " + ", ".join(f"%{e}" for e in heads))
    body = "\n".join(f"  {line}" for line in lines)
    return f"func @main({argument}) -> ({', '.join(tensor(shapes[e]) for e in heads)}) {{\n{body}\n}}\n"


def translated(function: str, given: dict[str, str], shape: list[int]) -> tuple[str, str]:
    """The operator of a runtime function, and its attributes as text."""
    if function in ("flatten", "reshape"):
        return "reshape", f"target_shape = {shape}"
    kept = {k: v for k, v in {**DEFAULTS.get(function, {}), **given}.items() if k not in DROPPED.get(function, set())}
    renamed = ATTRIBUTES.get(function, {})
    return OPERATORS.get(function, function), ", ".join(f"{renamed.get(k, k)} = {value(v)}" for k, v in kept.items())


def value(text: str) -> str:
    """An attribute's value: `(1, 2)`, `5`, `True` or `None` there, `[1, 2]`, `5`, `true` or `none` here."""
    found = ast.literal_eval(text.capitalize() if text in ("true", "false") else text)
    return str(list(found)) if isinstance(found, (tuple, list)) else str(found).lower()


def tensor(shape: list[int]) -> str:
    return f"tensor<{'x'.join([*map(str, shape), 'i32'])}>"
