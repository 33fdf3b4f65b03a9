"""Dense layers and convolutions of int8 values, requantized: ours on i32 tensors with exact sums,
peers' on u8 and i8.

A peer that says `exact` gave the very integers; others may round halves to even numbers or let
pairs of products saturate at 16 bits. Activations are those after a relu, in [0, 127], but for the
first layers, whose image is in [-127, 127].
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx_models import MIDDLE, Graph, integer_product, on_onnxruntime, on_openvino
from side_by_side import Case, installed, strategies

import cvm

SHARE = 40.0  # the standard deviation of what the shift leaves


@dataclass(frozen=True)
class Conv:
    """A convolution of a square image, in the terms that onnx_models.Graph reads."""

    c: int
    oc: int
    size: int
    kernel: int
    stride: int = 1
    groups: int = 1
    low: int = 0
    inputs: tuple[str, ...] = ("image",)
    name: str = "y"
    relu: bool = False

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def terms(self) -> int:
        return self.c // self.groups * self.kernel**2

    @property
    def shift(self) -> int:
        return round(math.log2(math.sqrt(self.terms) * 73 * 73 / SHARE))

    @property
    def out(self) -> int:
        return -(-self.size // self.stride)


def conv(layer: Conv) -> Case:
    random = np.random.default_rng(0)
    x = random.integers(layer.low, 128, (1, layer.c, layer.size, layer.size)).astype(np.int32)
    w = random.integers(
        -127, 128, (layer.oc, layer.c // layer.groups, layer.kernel, layer.kernel)
    ).astype(np.int8)
    out = np.empty((1, layer.oc, layer.out, layer.out), np.int32)
    case = Case(
        {},
        out=out,
        operations=2 * out.size * layer.terms,
        kind="i8",
        inexact=dict.fromkeys(("onnxruntime", "openvino", "torch"), "rounds or saturates"),
    )
    found = case.contenders
    for name, declared in (("cvm", f" {{range = [{layer.low}, 127]}}"), ("cvm, range unknown", "")):
        f = cvm.compile(text(layer, w, declared))
        found[name] = lambda f=f: f(x, out=out)
        case.strategies = case.strategies or strategies(f)
    zero = MIDDLE if layer.low else 0
    graph, bytes_ = Graph(x.shape, zero), (x + zero).astype(np.uint8)
    graph.conv(layer, w, None)
    model = graph.model("y", out.shape)
    for add in (on_onnxruntime, on_openvino):
        add(found, model, bytes_)
        add(case.results, model, bytes_, form=lambda y: y.astype(np.int32) - MIDDLE)
    on_quantised_torch(case, layer, bytes_, zero, w)
    case.results = {**{n: c for n, c in found.items() if n.startswith("cvm")}, **case.results}
    return case


def text(layer: Conv, w: np.ndarray, declared: str) -> str:
    shape = "x".join(map(str, (1, layer.c, layer.size, layer.size)))
    p, s = layer.padding, layer.stride
    return (
        f"func @main(%x: tensor<{shape}xi32>{declared}) {{\n"
        f"%w = const dense<{w.tolist()}> : tensor<{'x'.join(map(str, w.shape))}xi32>\n"
        f"%s = cvm.conv2d %x, %w {{padding = [{p}, {p}], stride = [{s}, {s}], groups = "
        f"{layer.groups}}}\n"
        f"%y = cvm.cvm_right_shift %s {{precision = 8, shift_bit = {layer.shift}}}\nreturn %y\n}}\n"
    )


def on_quantised_torch(case: Case, layer: Conv, x: np.ndarray, zero: int, w: np.ndarray) -> None:
    """torch's quantized convolution, by oneDNN."""
    torch = installed("torch")
    if not torch:
        return
    warnings.filterwarnings("ignore", message=".*quantized tensor creation")
    torch.backends.quantized.engine = "onednn"
    weight = torch._make_per_tensor_quantized_tensor(torch.from_numpy(w), 2.0**-layer.shift, 0)
    side = [layer.stride] * 2, [layer.padding] * 2, [1, 1]
    packed = torch.ops.quantized.conv2d_prepack(weight, None, *side, layer.groups)
    given = torch._make_per_tensor_quantized_tensor(torch.from_numpy(x), 1.0, zero)

    def run() -> Any:
        return torch.ops.quantized.conv2d(given, packed, 1.0, MIDDLE)

    case.contenders["torch"] = run
    case.results["torch"] = lambda: run().int_repr().numpy().astype(np.int32) - MIDDLE


def dense(m: int, k: int, n: int) -> Case:
    """Exact sums, not requantized: what MatMulInteger gives."""
    random = np.random.default_rng(0)
    x = random.integers(-127, 128, (m, k)).astype(np.int32)
    w = random.integers(-127, 128, (n, k)).astype(np.int8)
    out = np.empty((m, n), np.int32)
    case = Case(
        {}, out=out, operations=2 * m * k * n, kind="i8", inexact={"onnxruntime": "saturates"}
    )
    found = case.contenders
    for name, declared in (("cvm", " {range = [-127, 127]}"), ("cvm, range unknown", "")):
        f = cvm.compile(
            f"func @main(%x: tensor<{m}x{k}xi32>{declared}) {{\n"
            f"%w = const dense<{w.tolist()}> : tensor<{n}x{k}xi32>\n%y = cvm.dense %x, %w\n"
            f"return %y\n}}\n"
        )
        found[name] = lambda f=f: f(x, out=out)
        case.strategies = case.strategies or strategies(f)
    on_onnxruntime(
        found, integer_product(np.ascontiguousarray(w.T), m), (x + MIDDLE).astype(np.uint8)
    )
    return case


SHAPES = {
    "conv 3x3, 64 channels of 56x56": Conv(64, 64, 56, 3),
    "conv 3x3, 128 of 28x28": Conv(128, 128, 28, 3),
    "conv 3x3, 256 of 14x14": Conv(256, 256, 14, 3),
    "conv 3x3, 512 of 7x7": Conv(512, 512, 7, 3),
    "conv 3x3 stride 2, 128 of 56x56": Conv(64, 128, 56, 3, 2),
    "conv 1x1, 256 to 1024 of 14x14": Conv(256, 1024, 14, 1),
    "depthwise 3x3, 256 of 28x28": Conv(256, 256, 28, 3, groups=256),
    "depthwise 3x3 stride 2, 64 of 112x112": Conv(64, 64, 112, 3, 2, groups=64),
    "first layer 3x3 stride 2, 3 to 32 of 224x224": Conv(3, 32, 224, 3, 2, low=-127),
    "first layer 7x7 stride 2, 3 to 64 of 224x224": Conv(3, 64, 224, 7, 2, low=-127),
}
WORK = {
    **{title: lambda layer=layer: conv(layer) for title, layer in SHAPES.items()},
    **{
        f"dense {m} x {k} by {k} x {n}": lambda m=m, k=k, n=n: dense(m, k, n)
        for m, k, n in ((64, 1024, 1024), (512, 512, 512), (1024, 1024, 1024))
    },
}
