"""Quantized models as ONNX graphs, for the peers that read them: the layers of examples/networks,
and single operations.

Tensors are u8, around 128 where elements may be negative, weights i8. One step of a tensor is worth
1, of weights 2**-shift, so that a convolution's result is what our shift leaves of its sum, but for
halves, which go to even numbers here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from contenders import Found
from side_by_side import installed

SCRIPT = Path(__file__).parent.parent / "examples" / "networks" / "networks.py"
MIDDLE = 128  # what stands for 0 where elements may be negative
INEXACT = {"onnxruntime": "halves to even", "openvino": "halves to even", "torch": "halves to even"}


def networks() -> Any:
    """The module that describes the networks."""
    if "networks" not in sys.modules:
        spec = importlib.util.spec_from_file_location("networks", SCRIPT)
        assert spec is not None and spec.loader is not None
        sys.modules["networks"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["networks"]


class Graph:
    """A graph being made, of float operations between quantized tensors, which peers fuse into
    integer ones.
    """

    def __init__(self, shape: tuple[int, ...], zero: int = MIDDLE) -> None:
        self.onnx = installed("onnx")
        self.shape = shape
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.steps: dict[str, tuple[float, int]] = {
            "image": (1.0, zero)
        }  # of each quantized tensor: scale and zero

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = attributes.pop("output", f"n{len(self.nodes)}")
        self.nodes.append(
            self.onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes)
        )
        return name

    def read(self, name: str) -> str:
        scale, zero = self.steps[name]
        return self.node(
            "DequantizeLinear",
            name,
            self.constant(np.float32(scale)),
            self.constant(np.uint8(zero)),
        )

    def weight(self, values: np.ndarray, scale: float) -> str:
        zero = self.constant(np.zeros((), values.dtype))
        return self.node(
            "DequantizeLinear", self.constant(values), self.constant(np.float32(scale)), zero
        )

    def quantised(self, name: str, value: str, scale: float, zero: int) -> None:
        self.steps[name] = (scale, zero)
        self.node(
            "QuantizeLinear",
            value,
            self.constant(np.float32(scale)),
            self.constant(np.uint8(zero)),
            output=name,
        )

    def conv(self, layer: Any, weight: np.ndarray, bias: np.ndarray | None) -> None:
        scale = 2.0**-layer.shift
        given = [self.read(layer.inputs[0]), self.weight(weight, scale)]
        if bias is not None:
            given.append(self.weight(bias.astype(np.int32), scale))
        side = [layer.stride] * 2
        y = self.node(
            "Conv",
            *given,
            kernel_shape=[layer.kernel] * 2,
            strides=side,
            pads=[layer.padding] * 4,
            group=layer.groups,
        )
        self.ending(layer, y)

    def ending(self, layer: Any, y: str) -> None:
        if layer.relu:
            y = self.node("Relu", y)
        self.quantised(layer.name, y, 1.0, 0 if layer.relu else MIDDLE)

    def add(self, layer: Any) -> None:
        self.ending(layer, self.node("Add", *map(self.read, layer.inputs)))

    def pool(self, layer: Any) -> None:
        y = self.node(
            "MaxPool",
            self.read(layer.inputs[0]),
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
        )
        self.quantised(layer.name, y, *self.steps[layer.inputs[0]])

    def average(self, layer: Any, size: int) -> None:
        scale = 2.0**layer.shift / size
        self.quantised("mean", self.node("GlobalAveragePool", self.read(layer.inputs[0])), scale, 0)
        self.quantised(layer.name, self.node("Flatten", self.read("mean")), scale, 0)

    def dense(self, layer: Any, weight: np.ndarray, bias: np.ndarray) -> str:
        scale = self.steps[layer.inputs[0]][0]
        given = (
            self.read(layer.inputs[0]),
            self.weight(weight, 1 / scale),
            self.weight(bias.astype(np.int32), 1.0),
        )
        return self.node("Gemm", *given, transB=1)

    def model(self, result: str, shape: tuple[int, ...]) -> bytes:
        onnx = self.onnx
        kind = onnx.TensorProto.UINT8 if result in self.steps else onnx.TensorProto.FLOAT
        value = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            self.nodes,
            "model",
            [value("image", onnx.TensorProto.UINT8, self.shape)],
            [value(result, kind, shape)],
            self.constants,
        )
        made = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8
        )
        onnx.checker.check_model(made)
        return made.SerializeToString()


def network(net: Any) -> bytes:
    """The graph of a network of examples/networks."""
    weights, graph = net.weights(), Graph((1, 3, net.size, net.size))
    last = ""
    for layer in net.layers.values():
        match layer.kind:
            case "conv":
                graph.conv(layer, weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"])
            case "add":
                graph.add(layer)
            case "pool":
                graph.pool(layer)
            case "average":
                graph.average(layer, int(np.prod(net.layers[layer.inputs[0]].shape[1:])))
            case "dense":
                last = graph.dense(
                    layer, weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"]
                )
    return graph.model(last, (1, net.layers["scores"].shape[0]))


def product(b: np.ndarray, rows: int) -> bytes:
    """x @ b in f32."""
    onnx = installed("onnx")
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["image", "b"], ["y"])],
        "model",
        [value("image", kind, (rows, b.shape[0]))],
        [value("y", kind, (rows, b.shape[1]))],
        [onnx.numpy_helper.from_array(b, "b")],
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()


def integer_product(b: np.ndarray, rows: int) -> bytes:
    """x @ b of u8 and i8 as i32."""
    onnx = installed("onnx")
    value, proto = onnx.helper.make_tensor_value_info, onnx.TensorProto
    zeros = [
        onnx.numpy_helper.from_array(np.uint8(MIDDLE), "za"),
        onnx.numpy_helper.from_array(np.int8(0), "zb"),
    ]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["image", "b", "za", "zb"], ["y"])],
        "model",
        [value("image", proto.UINT8, (rows, b.shape[0]))],
        [value("y", proto.INT32, (rows, b.shape[1]))],
        [onnx.numpy_helper.from_array(b, "b"), *zeros],
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()


def largest_of_windows(shape: tuple[int, ...], size: int, stride: int, padding: int) -> bytes:
    """A pool of f32, as a model."""
    onnx = installed("onnx")
    value, real = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    at = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
    nodes = [onnx.helper.make_node("MaxPool", ["image"], ["y"], **at)]
    graph = onnx.helper.make_graph(
        nodes, "model", [value("image", real, shape)], [value("y", real, None)]
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()


Form = Callable[[np.ndarray], np.ndarray]


def on_onnxruntime(
    found: Found, model: bytes, x: np.ndarray, threads: int = 1, form: Form = np.asarray
) -> None:
    if ort := installed("onnxruntime"):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = (
            threads,
            1,
            3,
        )
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        found["onnxruntime"] = lambda: form(session.run(None, {name: x})[0])


def on_openvino(
    found: Found, model: bytes, x: np.ndarray, threads: int = 1, form: Form = np.asarray
) -> None:
    if ov := installed("openvino"):
        core = ov.Core()
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        settings["INFERENCE_PRECISION_HINT"] = "f32"  # not bf16
        request = core.compile_model(core.read_model(model), "CPU", settings).create_infer_request()
        tensor = ov.Tensor(x, shared_memory=True)

        def run() -> np.ndarray:
            request.infer([tensor], share_outputs=True)
            return form(request.get_output_tensor(0).data)

        found["openvino"] = run
