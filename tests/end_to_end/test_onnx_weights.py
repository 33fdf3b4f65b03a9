"""The weights of ONNX models are read once, from any place, and released."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_process import run_script
from cvm.dialect.builtin import Const

import cvm

onnx = pytest.importorskip("onnx")

MODEL = """
import gc, sys
from pathlib import Path
import numpy as np
import onnx
from onnx import helper as h, numpy_helper as n
import cvm

def megabytes(field):
    status = Path("/proc/self/status").read_text()
    return int(status.partition(field)[2].split()[0]) >> 10

def save(path, quantized):
    rng, size, layers = np.random.default_rng(0), 2048 << quantized, 8
    nodes, name = [], "x"
    weights = [n.from_array(np.float32(0.05), "s"), n.from_array(np.int8(0), "z")]
    for k in range(layers):
        w = rng.integers(-127, 127, (size, size), np.int8)
        w = w if quantized else w.astype(np.float32)
        weights.append(n.from_array(w, f"w{k}"))
        if quantized:
            nodes.append(h.make_node("QuantizeLinear", [name, "s", "z"], [f"q{k}"]))
            nodes.append(h.make_node("DequantizeLinear", [f"q{k}", "s", "z"], [f"d{k}"]))
            nodes.append(h.make_node("DequantizeLinear", [f"w{k}", "s", "z"], [f"v{k}"]))
            nodes.append(h.make_node("MatMul", [f"d{k}", f"v{k}"], [f"m{k}"]))
        else:
            nodes.append(h.make_node("MatMul", [name, f"w{k}"], [f"m{k}"]))
        name = f"m{k}"
    if quantized:
        nodes.append(h.make_node("QuantizeLinear", [name, "s", "z"], ["q"]))
        name = "q"
    kind = 3 if quantized else 1
    ends = h.make_tensor_value_info("x", 1, [1, size]), h.make_tensor_value_info(name, kind, None)
    graph = h.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)

if sys.argv[2] == "save":
    save(sys.argv[1], sys.argv[3] == "1")
else:
    before = megabytes("VmRSS:")
    module = cvm.from_onnx(sys.argv[1])
    print("peak", megabytes("VmHWM:") - before)
    del module
    gc.collect()
    print("left", megabytes("VmRSS:") - before)
"""


@pytest.mark.parametrize("quantized", [False, True])
def test_an_import_takes_the_memory_of_the_weights(quantized: bool, tmp_path: Path) -> None:
    """128 MB of weights, one copy of a layer, and the imported modules."""
    file = str(tmp_path / "m.onnx")
    run_script(MODEL, file, "save", str(int(quantized)))
    said = run_script(MODEL, file, "import").split()
    assert int(said[1]) < 230, said
    assert int(said[3]) < 100, said


def weights(size: int = 64) -> Any:
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    arrays = {
        "f": rng.standard_normal((size, size), np.float32),
        "d": rng.standard_normal((size, size)),
        "h": rng.standard_normal((size, size)).astype(np.float16),
        "i": rng.integers(-9, 9, (size, size)),
        "b": rng.integers(0, 2, (size, size)).astype(bool),
        "e": np.zeros((0, 3), np.float32),
    }
    initializers = [numpy_helper.from_array(a, f"w{n}") for n, a in arrays.items()]
    nodes = [helper.make_node("Identity", [f"w{n}"], [n]) for n in arrays]
    ends = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in arrays.items()
    ]
    graph = helper.make_graph(nodes, "g", [], ends, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("given", ["proto", "bytes", "file", "text", "external", "mapped"])
def test_weights_are_those_of_the_model(given: str, tmp_path: Path) -> None:
    model, path = weights(), tmp_path / "m.onnx"
    wanted = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer]
    match given:
        case "proto":
            module = cvm.from_onnx(model)
        case "bytes":
            module = cvm.from_onnx(model.SerializeToString())
        case "text":
            onnx.save(model, tmp_path / "m.textproto")
            module = cvm.from_onnx(tmp_path / "m.textproto")
        case "file":
            onnx.save(model, path)
            module = cvm.from_onnx(path)
        case _:
            onnx.save(model, path, save_as_external_data=True, location="w", size_threshold=0)
            module = cvm.from_onnx(path, mmap=given == "mapped")
    found = cvm.compile(module, target="reference")()
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    constants = [
        o.operator.data.array
        for o in module.functions["main"].operations
        if isinstance(o.operator, Const)
    ]
    assert any(isinstance(c.base, np.memmap) for c in constants) == (given == "mapped")


def test_a_tensor_of_too_few_bytes() -> None:
    model = weights()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    with pytest.raises(cvm.Error, match=r"'wf' of shape \[64, 64\] needs 16384 bytes.* 16380"):
        cvm.from_onnx(model)
