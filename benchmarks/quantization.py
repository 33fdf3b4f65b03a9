"""Compare cvm's quantization with onnxruntime's: accuracy and error on scikit-learn's digits, by the
network of examples/digits, and the time of a network of MobileNetV2's size with random
weights. Needs onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import cvm

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
DIGITS = ROOT / "examples" / "digits"
BLOCKS = (  # of MobileNetV2: expansion, channels, repetitions, stride
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def digits() -> tuple[onnx.ModelProto, np.ndarray, np.ndarray, np.ndarray]:
    """The float network, the images for calibration, the held-back images and their labels."""
    with np.load(DIGITS / "test.npz") as test:
        held_back, answers = test["images"].astype(np.float32), test["labels"]
    images = np.load(DIGITS / "calibration.npz")["images"].astype(np.float32)
    weights = dict(np.load(DIGITS / "float.npz"))
    make, f32 = onnx.helper.make_node, onnx.TensorProto.FLOAT
    nodes = [
        make("Conv", ["images", "conv1.weight", "conv1.bias"], ["sum1"], pads=[1] * 4),
        make("Relu", ["sum1"], ["layer1"]),
        make("Conv", ["layer1", "conv2.weight", "conv2.bias"], ["sum2"], pads=[1] * 4),
        make("Relu", ["sum2"], ["layer2"]),
        make("MaxPool", ["layer2"], ["blocks"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Flatten", ["blocks"], ["rows"]),
        make("Gemm", ["rows", "dense.weight", "dense.bias"], ["scores"], transB=1),
    ]
    info, array = onnx.helper.make_tensor_value_info, onnx.numpy_helper.from_array
    graph = onnx.helper.make_graph(
        nodes,
        "digits",
        [info("images", f32, ["N", 1, 8, 8])],
        [info("scores", f32, ["N", 10])],
        [array(w, name) for name, w in weights.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    return model, images, held_back, answers


class Images(CalibrationDataReader):
    def __init__(self, images: np.ndarray) -> None:
        self.batches = iter(np.array_split(images, 10))

    def get_next(self) -> Any:
        batch = next(self.batches, None)
        return None if batch is None else {"images": batch}


def run_onnx(model: bytes, images: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options).run(None, {"images": images})[0]


def quantized(
    model: onnx.ModelProto, images: np.ndarray, held_back: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """The scores of each way to quantize the network."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, before)
        for by_channel in (False, True):
            quantize_static(
                before,
                after,
                Images(images),
                quant_format=QuantFormat.QDQ,
                per_channel=by_channel,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
            )
            way = "channel" if by_channel else "tensor"
            yield f"onnxruntime, by {way}", run_onnx(after.read_bytes(), held_back)
    program = cvm.from_onnx(model)
    for scheme in ("tflite", "tosa", "cvm"):
        for method in ("mse", "minmax", "percentile"):
            made = cvm.quantize(program, images, scheme, method=method, float_io=True)
            yield f"{scheme}, {method}", cvm.compile(made)(held_back)


def mobilenet() -> onnx.ModelProto:
    from quantised_onnx import Net

    net = Net(0)

    def relu6(x: str) -> str:
        return net.add("Clip", x, net.constant(np.float32(0)), net.constant(np.float32(6)))

    x, channels = relu6(net.conv("x", 3, 32, 3, stride=2)), 32
    for expansion, out, repetitions, first in BLOCKS:
        for stride in (first, *(1,) * (repetitions - 1)):
            wide = expansion * channels
            y = relu6(net.conv(x, channels, wide, 1)) if expansion > 1 else x
            y = net.conv(relu6(net.conv(y, wide, wide, 3, stride, group=wide)), wide, out, 1)
            x, channels = (net.add("Add", x, y) if out == channels and stride == 1 else y), out
    x = net.add("Flatten", net.add("GlobalAveragePool", relu6(net.conv(x, 320, 1280, 1))), axis=1)
    x = net.add("Gemm", x, net.weight(1000, 1280), net.weight(1000, spread=0.1), transB=1)
    return net.model([1, 3, 224, 224], x, [1, 1000])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100, help="for MobileNetV2 (default: 100)")
    options = parser.parse_args()
    model, images, held_back, answers = digits()
    exact = run_onnx(model.SerializeToString(), held_back)
    right = (exact.argmax(1) == answers).sum()
    print(f"float: {right} of {len(answers)} right")
    for name, scores in quantized(model, images, held_back):
        right = (scores.argmax(1) == answers).sum()
        same = (scores.argmax(1) == exact.argmax(1)).sum()
        ratio = np.square(exact).sum() / np.square(scores - exact).sum()
        print(f"{name}: {right} right, {same} as float, {10 * np.log10(ratio):.1f} dB")
    program = cvm.from_onnx(mobilenet())
    shape = (options.images, 3, 224, 224)
    given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    began = time.perf_counter()
    cvm.quantize(program, given)
    print(f"MobileNetV2: {options.images} images in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
