"""ResNet-18 and MobileNetV2 of 224 by 224 pixels with random weights, quantized by onnxruntime's
tool, for the times of quantized ONNX.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / "support")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from quantised_onnx import Net, quantised  # noqa: E402

INVERTED = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def head(net: Net, x: str, channels: int) -> onnx.ModelProto:
    x = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    x = net.add("Gemm", x, net.weight(1000, channels), net.weight(1000, spread=0.1), transB=1)
    return net.model([1, 3, 224, 224], x, [1, 1000])


def resnet18() -> onnx.ModelProto:
    net = Net(18)
    x = net.add("Relu", net.conv("x", 3, 64, 7, stride=2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for out, strides in ((64, (1, 1)), (128, (2, 1)), (256, (2, 1)), (512, (2, 1))):
        for stride in strides:
            y = net.add("Relu", net.conv(x, channels, out, 3, stride))
            y = net.conv(y, out, out, 3)
            x = x if channels == out else net.conv(x, channels, out, 1, stride)
            x, channels = net.add("Relu", net.add("Add", x, y)), out
    return head(net, x, channels)


def mobilenet_v2() -> onnx.ModelProto:
    net = Net(2)

    def relu6(x: str) -> str:
        return net.add("Clip", x, net.constant(np.float32(0)), net.constant(np.float32(6)))

    x, channels = relu6(net.conv("x", 3, 32, 3, stride=2)), 32
    for expansion, out, count, first in INVERTED:
        for stride in (first, *[1] * (count - 1)):
            wide = expansion * channels
            y = x if expansion == 1 else relu6(net.conv(x, channels, wide, 1))
            y = net.conv(relu6(net.conv(y, wide, wide, 3, stride, group=wide)), wide, out, 1)
            x, channels = (net.add("Add", x, y) if out == channels and stride == 1 else y), out
    return head(net, relu6(net.conv(x, channels, 1280, 1)), 1280)


NETWORKS = {"ResNet-18": resnet18, "MobileNetV2": mobilenet_v2}
WAYS = ("qdq_u8s8", "qoperator_u8s8_channels")


def write(folder: Path) -> list[Path]:
    """The files of all networks, each quantized in these ways."""
    paths = []
    for name, make in NETWORKS.items():
        for way in WAYS:
            paths.append(folder / f"{name} {way}.onnx")
            paths[-1].write_bytes(quantised(make(), way, folder))
    return paths
