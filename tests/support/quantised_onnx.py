"""Networks quantized by onnxruntime in every way it has, and whether what is imported of them gives
its bits.

python tests/support/quantised_onnx.py        a line for each of the 15 models
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]

import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import cvm  # noqa: E402


class Net:
    """A float network while it is made."""

    def __init__(self, seed: int) -> None:
        self.random, self.nodes, self.initializers = np.random.default_rng(seed), [], []

    def weight(self, *shape: int, spread: float | None = None) -> str:
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else shape[0]
        array = self.random.normal(
            0, spread if spread is not None else (2 / fan) ** 0.5, shape
        ).astype(np.float32)
        return self.constant(array)

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, inputs, [name], name=f"{op}{len(self.nodes)}", **attributes)
        )
        return name

    def conv(self, x: str, ic: int, oc: int, k: int, stride: int = 1, group: int = 1) -> str:
        pads = [k // 2] * 4
        w, b = self.weight(oc, ic // group, k, k), self.weight(oc, spread=0.1)
        return self.add(
            "Conv", x, w, b, kernel_shape=[k, k], strides=[stride, stride], pads=pads, group=group
        )

    def model(self, shape: list[int], output: str, out: list[int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, out)],
            self.initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def cnn() -> onnx.ModelProto:
    net = Net(1)
    x = net.add("Relu", net.conv("x", 3, 16, 3))
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = net.add("Relu", net.conv(x, 16, 16, 3))
    x = net.add("Relu", net.add("Add", x, net.conv(y, 16, 16, 3)))
    x = net.add("Relu", net.conv(x, 16, 32, 3, stride=2))
    x = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    x = net.add("Gemm", x, net.weight(10, 32), net.weight(10, spread=0.1), transB=1)
    return net.model([1, 3, 32, 32], x, [1, 10])


def mobilenet() -> onnx.ModelProto:
    net = Net(2)

    def relu6(x: str) -> str:
        return net.add("Clip", x, net.constant(np.float32(0)), net.constant(np.float32(6)))

    x = relu6(net.conv("x", 3, 16, 3, stride=2))
    channels = 16
    for out, stride in ((16, 1), (24, 2), (24, 1)):
        y = relu6(net.conv(x, channels, 4 * channels, 1))
        y = relu6(net.conv(y, 4 * channels, 4 * channels, 3, stride, group=4 * channels))
        y = net.conv(y, 4 * channels, out, 1)
        x, channels = (net.add("Add", x, y) if out == channels and stride == 1 else y), out
    x = net.add(
        "Flatten", net.add("GlobalAveragePool", relu6(net.conv(x, channels, 64, 1))), axis=1
    )
    x = net.add("Gemm", x, net.weight(10, 64), net.weight(10, spread=0.1), transB=1)
    return net.model([1, 3, 32, 32], x, [1, 10])


def transformer() -> onnx.ModelProto:
    """A block that normalizes before the attention and before the two linear layers."""
    net, width, heads, length = Net(3), 32, 2, 8

    def linear(x: str, n: int, m: int) -> str:
        return net.add(
            "Add", net.add("MatMul", x, net.weight(n, m, spread=n**-0.5)), net.weight(m, spread=0.1)
        )

    def split(x: str, perm: list[int]) -> str:
        shape = net.constant(np.array([1, length, heads, width // heads]))
        return net.add("Transpose", net.add("Reshape", x, shape), perm=perm)

    def norm(x: str) -> str:
        return net.add(
            "LayerNormalization",
            x,
            net.constant(np.ones(width, np.float32)),
            net.weight(width, spread=0.1),
            axis=-1,
        )

    x = norm("x")
    q, k, v = (linear(x, width, width) for _ in range(3))
    scores = net.add("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
    scores = net.add(
        "Softmax",
        net.add("Mul", scores, net.constant(np.float32((width // heads) ** -0.5))),
        axis=-1,
    )
    mixed = net.add(
        "Transpose", net.add("MatMul", scores, split(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3]
    )
    mixed = net.add("Reshape", mixed, net.constant(np.array([1, length, width])))
    x = net.add("Add", "x", linear(mixed, width, width))
    y = linear(net.add("Relu", linear(norm(x), width, 64)), 64, width)
    return net.model([1, length, width], net.add("Add", x, y), [1, length, width])


NETWORKS = {"cnn": cnn, "mobilenet": mobilenet, "transformer": transformer}
WAYS = ("qdq_u8s8", "qdq_s8s8_channels", "qoperator_u8u8", "qoperator_u8s8_channels", "dynamic")


def inputs(model: onnx.ModelProto, seed: int) -> np.ndarray:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def quantised(model: onnx.ModelProto, way: str, folder: Path) -> bytes:
    """The model quantized by onnxruntime's tool."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter([{"x": inputs(model, seed)} for seed in range(8)])

        def get_next(self) -> Any:
            return next(self.rest, None)

    source, target = folder / "float.onnx", folder / f"{way}.onnx"
    onnx.save(model, source)
    if way == "dynamic":
        quantize_dynamic(source, target, weight_type=QuantType.QInt8)
        return target.read_bytes()
    format = QuantFormat.QDQ if way.startswith("qdq") else QuantFormat.QOperator
    activations = QuantType.QInt8 if "s8s8" in way else QuantType.QUInt8
    weights = QuantType.QUInt8 if "u8u8" in way else QuantType.QInt8
    quantize_static(
        source,
        target,
        Reader(),
        quant_format=format,
        activation_type=activations,
        weight_type=weights,
        per_channel="channels" in way,
        reduce_range=False,
    )
    return target.read_bytes()


def onnxruntime_result(model: bytes, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def outcomes(seeds: range) -> Iterator[tuple[str, str]]:
    """For each model, and the largest difference of its results in their scale."""
    with tempfile.TemporaryDirectory() as folder:
        for network, make in NETWORKS.items():
            model = make()
            for way in WAYS:
                name = f"{network} {way}"
                given = quantised(model, way, Path(folder))
                try:
                    run = cvm.compile(cvm.from_onnx(given))
                except cvm.Error as e:
                    yield name, f"refused: {e} {[n.message for n in e.diagnostics[0].notes]}"
                    continue
                wrong, most = 0, 0.0
                for seed in seeds:
                    x = inputs(model, 100 + seed)
                    wanted, found = onnxruntime_result(given, x), run(x)
                    wrong += int((wanted.view(np.int32) != found.view(np.int32)).sum())
                    most = max(most, float(abs(wanted - found).max() / abs(wanted).max()))
                yield (
                    name,
                    "equal"
                    if not wrong
                    else f"{wrong} elements differ, by {most:.2e} of the largest",
                )


def main() -> int:
    for name, outcome in outcomes(range(20)):
        print(f"{name:36} {outcome}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
