"""Networks of f32, batch 1, on one thread and on two, and their convolutions: examples/networks
beside the same steps as ONNX.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx_models import on_onnxruntime, on_openvino
from side_by_side import Case, installed, strategies
from whole_networks import alone

import cvm

SCRIPT = Path(__file__).parent.parent / "examples" / "networks" / "float_networks.py"


def described() -> Any:
    """The module that describes the networks."""
    if "networks_in_f32" not in sys.modules:
        spec = importlib.util.spec_from_file_location("networks_in_f32", SCRIPT)
        assert spec is not None and spec.loader is not None
        sys.modules["networks_in_f32"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["networks_in_f32"]


NODES: dict[
    str, Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]
] = {  # operators of ONNX, and their attributes
    "conv": lambda at: (
        "Conv",
        {"pads": [at["pad"]] * 4, "strides": [at["stride"]] * 2, "group": at["groups"]},
    ),
    "relu": lambda at: ("Relu", {}),
    "relu6": lambda at: ("Clip", {}),
    "pool": lambda at: ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
    "add": lambda at: ("Add", {}),
    "sum": lambda at: ("ReduceSum", {"keepdims": 0}),
    "scale": lambda at: ("Div", {}),
    "dense": lambda at: ("Gemm", {"transB": 1}),
    "transpose": lambda at: ("Transpose", {"perm": at["perm"]}),
    "reshape": lambda at: ("Reshape", {}),
    "matmul": lambda at: ("MatMul", {}),
    "softmax": lambda at: ("Softmax", {}),
    "gelu": lambda at: ("Gelu", {}),
    "norm": lambda at: ("LayerNormalization", {}),
}


def model(net: Any, result: str) -> bytes:
    """The steps of a network, as an ONNX model."""
    onnx = installed("onnx")
    value, real = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    constants = {
        **net.weights,
        "low": np.float32(0),
        "high": np.float32(6),
        "axes": np.array([2, 3]),
    }
    more = {"relu6": ["low", "high"], "sum": ["axes"]}
    nodes = []
    for kind, name, operands, attributes in net.steps:
        operator, given = NODES[kind](attributes)
        inputs = [*operands, *more.get(kind, ())]
        if kind == "scale":
            constants[f"{name}.over"] = np.float32(attributes["over"])
            inputs.append(f"{name}.over")
        if kind == "reshape":
            constants[f"{name}.shape"] = np.array(attributes["target"])
            inputs.append(f"{name}.shape")
        if kind == "norm":
            constants[f"{name}.one"] = np.ones(net.shapes[name][1:], np.float32)
            inputs.append(f"{name}.one")
        nodes.append(onnx.helper.make_node(operator, inputs, [name], **given))
    used = {name for node in nodes for name in node.input}
    weights = [
        onnx.numpy_helper.from_array(np.asarray(a), name)
        for name, a in constants.items()
        if name in used
    ]
    ends = [value("image", real, net.shapes["image"])], [value(result, real, net.shapes[result])]
    graph = onnx.helper.make_graph(nodes, net.name, *ends, weights)
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9
    )
    return made.SerializeToString()


def beside(net: Any, result: str, threads: int = 1) -> Case:
    with tempfile.TemporaryDirectory() as folder:
        f = cvm.compile(described().write(net, result, Path(folder)))
    image = np.random.default_rng(1).normal(size=net.shapes["image"]).astype(np.float32)
    out = np.empty(net.shapes[result], np.float32)
    case = Case(
        {"cvm": lambda: f(image, out=out)}, out=out, tolerance=1e-4, strategies=strategies(f)
    )
    if installed("onnx"):
        steps = model(net, result)
        on_onnxruntime(case.contenders, steps, image, threads)
        on_openvino(case.contenders, steps, image, threads)
    case.before = {name: alone(run, threads) for name, run in case.contenders.items()}
    return case


def layer(
    channels: int,
    size: int,
    out: int,
    kernel: int,
    stride: int = 1,
    depthwise: bool = False,
    images: int = 1,
) -> Case:
    net = described().Network("layer", size, channels=channels)
    net.shapes["image"] = images, channels, size, size
    y = net.conv("image", out, kernel, stride, channels if depthwise else 1)
    case = beside(net, y)
    case.operations, case.kind = 2 * np.prod(net.shapes[y]) * net.weights["w0"][0].size, "f32"
    return case


LAYERS = {
    "conv 3x3, 64 channels of 56x56": (64, 56, 64, 3),
    "conv 3x3, 128 of 28x28": (128, 28, 128, 3),
    "conv 3x3, 256 of 14x14": (256, 14, 256, 3),
    "conv 3x3, 512 of 7x7": (512, 7, 512, 3),
    "conv 3x3 stride 2, 64 to 128 of 56x56": (64, 56, 128, 3, 2),
    "conv 1x1, 256 to 1024 of 14x14": (256, 14, 1024, 1),
    "first layer 7x7 stride 2, 3 to 64 of 224x224": (3, 224, 64, 7, 2),
    "conv 3x3, 8 images of 64 channels of 56x56": (64, 56, 64, 3, 1, False, 8),
    "conv 3x3, 256 of 2x2": (256, 2, 256, 3),
    "depthwise 3x3, 256 of 28x28": (256, 28, 256, 3, 1, True),
    "depthwise 3x3 stride 2, 144 of 56x56": (144, 56, 144, 3, 2, True),
    "depthwise 5x5, 256 of 28x28": (256, 28, 256, 5, 1, True),
    "depthwise 7x7, 384 of 14x14": (384, 14, 384, 7, 1, True),
    "depthwise 7x7, 768 of 7x7": (768, 7, 768, 7, 1, True),
}
POOLS = {
    "max pool 3x3 stride 2, 64 of 112x112": (64, 112),
    "max pool 3x3 stride 2, 256 of 28x28": (256, 28),
}


def pool(channels: int, size: int) -> Case:
    net = described().Network("pool", size, channels=channels)
    return beside(net, net.pool("image"))


WORK = {
    **{title: lambda shape=shape: layer(*shape) for title, shape in LAYERS.items()},
    **{title: lambda shape=shape: pool(*shape) for title, shape in POOLS.items()},
    **{
        f"{title}, {threads} thread{'s' * (threads > 1)}": lambda name=name, threads=threads: (
            beside(*described().NETWORKS[name](), threads)
        )
        for title, name in (
            ("ResNet-50", "resnet50"),
            ("MobileNetV2", "mobilenet_v2"),
            ("encoder of 128 tokens", "encoder"),
        )
        for threads in (1, 2)
    },
}
