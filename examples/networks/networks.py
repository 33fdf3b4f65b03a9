"""Writes ResNet-18 and MobileNetV1 as programs of whole numbers, with random int8 weights beside
them: what such networks cost, not what they know.

    python examples/networks/networks.py resnet18 --folder networks [--size 224] [--width 1]

An architecture is a list of layers. Every convolution is summed in i32 and brought back to 8 bits
by a shift that suits the spread of its sums, and the identity of a residual block is added in 8
bits.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SPREAD = 24  # the standard deviation that a convolution's 8-bit result has
WEIGHT = math.sqrt((127 * 128) / 3)  # that of weights drawn evenly from [-127, 127]


@dataclass(frozen=True)
class Layer:
    """A layer by its kind - conv, pool, add, average or dense -, the layers it reads, and the shape
    of its result.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    relu: bool = False
    shift: int = 0
    spread: float = SPREAD  # of the result, as a root mean square

    @property
    def padding(self) -> int:
        return self.kernel // 2


@dataclass
class Network:
    """The layers of a network so far. The first is the image, 3 channels of numbers in [-127,
    127].
    """

    name: str
    size: int
    width: float = 1
    layers: dict[str, Layer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layers["image"] = Layer("image", "image", (), (3, self.size, self.size), spread=WEIGHT)

    def add(self, layer: Layer) -> str:
        self.layers[layer.name] = layer
        return layer.name

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        depthwise: bool = False,
        relu: bool = True,
    ) -> str:
        c, h, w = self.layers[x].shape
        oc = c if depthwise else round(channels * self.width)
        groups = c if depthwise else 1
        sums = math.sqrt(c // groups * kernel * kernel) * WEIGHT * self.layers[x].spread
        shift = max(1, round(math.log2(sums / SPREAD)))
        spread = sums / 2**shift * (math.sqrt(0.5) if relu else 1)
        shape = (oc, -(-h // stride), -(-w // stride))
        name = f"conv{sum(layer.kind == 'conv' for layer in self.layers.values()) + 1}"
        return self.add(
            Layer(name, "conv", (x,), shape, kernel, stride, groups, relu, shift, spread)
        )

    def pool(self, x: str) -> str:
        c, h, w = self.layers[x].shape
        shape = (c, -(-h // 2), -(-w // 2))
        return self.add(Layer("pool", "pool", (x,), shape, 3, 2, spread=2 * self.layers[x].spread))

    def residual(self, x: str, y: str) -> str:
        spread = math.hypot(self.layers[x].spread, self.layers[y].spread) * math.sqrt(0.5)
        name = f"block{sum(layer.kind == 'add' for layer in self.layers.values()) + 1}"
        return self.add(Layer(name, "add", (x, y), self.layers[x].shape, relu=True, spread=spread))

    def average(self, x: str) -> str:
        c, h, w = self.layers[x].shape
        shift = max(1, round(math.log2(h * w)))
        return self.add(
            Layer("average", "average", (x,), (c,), shift=shift, spread=self.layers[x].spread)
        )

    def dense(self, x: str, classes: int) -> str:
        return self.add(Layer("scores", "dense", (x,), (round(classes * self.width),)))

    def weights(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Weights in [-127, 127], and biases of a quarter of the sums' spread."""
        random = np.random.default_rng(seed)
        found: dict[str, np.ndarray] = {}
        for layer in self.layers.values():
            if layer.kind not in ("conv", "dense"):
                continue
            given = self.layers[layer.inputs[0]].shape[0] // layer.groups
            kernel = (layer.kernel, layer.kernel) if layer.kind == "conv" else ()
            found[f"{layer.name}.weight"] = random.integers(
                -127, 128, (layer.shape[0], given, *kernel), np.int8
            )
            found[f"{layer.name}.bias"] = (
                random.normal(size=layer.shape[0]) * 2**layer.shift * SPREAD / 4
            ).astype(np.int32)
        return found

    def program(self, file: str = "weights.npz") -> str:
        """The network in the language, its weights in a file."""
        lines: list[str] = []
        for layer in self.layers.values():
            lines += LINES[layer.kind](layer, tuple(f"%{i}" for i in layer.inputs), self, file)
        image = f"tensor<1x3x{self.size}x{self.size}xi32>"
        last = list(self.layers.values())[-1]
        head = f"// {self.name}.cvm: written by networks.py, with random weights\n\n"
        head += (
            f"func @main(%image: {image} {{range = [-127, 127]}}) -> "
            f"tensor<1x{last.shape[0]}xi32> {{\n"
        )
        return head + "".join(f"  {line}\n" for line in lines) + f"  return %{last.name}\n}}\n"


def _constants(layer: Layer, net: Network, file: str) -> list[str]:
    given = net.layers[layer.inputs[0]].shape[0] // layer.groups
    kernel = (layer.kernel, layer.kernel) if layer.kind == "conv" else ()
    shape = "x".join(map(str, (layer.shape[0], given, *kernel)))
    return [
        f'%{layer.name}.w = const file("{file}", "{layer.name}.weight") : tensor<{shape}xi32>',
        f'%{layer.name}.b = const file("{file}", "{layer.name}.bias") : '
        f"tensor<{layer.shape[0]}xi32>",
    ]


def _ending(layer: Layer, line: str, value: str) -> list[str]:
    """The operations that requantize a value to 8 bits, then its maximum with zero."""
    short = f"%{layer.name}.short" if layer.relu else f"%{layer.name}"
    lines = [line.format(f"%{layer.name}.sum"), f"{short} = {value.format(f'%{layer.name}.sum')}"]
    return [*lines, f"%{layer.name} = cvm.relu {short}"] if layer.relu else lines


def _conv(layer: Layer, inputs: tuple[str, ...], net: Network, file: str) -> list[str]:
    p, s = layer.padding, layer.stride
    attributes = f"padding = [{p}, {p}], stride = [{s}, {s}], groups = {layer.groups}"
    line = f"{{}} = cvm.conv2d {inputs[0]}, %{layer.name}.w, %{layer.name}.b {{{{{attributes}}}}}"
    return [*_constants(layer, net, file), *_ending(layer, line, _shifted(layer.shift))]


def _shifted(bits: int) -> str:
    return f"cvm.cvm_right_shift {{}} {{{{precision = 8, shift_bit = {bits}}}}}"


def _average(layer: Layer, inputs: tuple[str, ...], net: Network, file: str) -> list[str]:
    return _ending(
        layer, f"{{}} = cvm.sum {inputs[0]} {{{{axes = [2, 3]}}}}", _shifted(layer.shift)
    )


LINES: dict[str, Callable[[Layer, tuple[str, ...], Network, str], list[str]]] = {
    "image": lambda *_: [],
    "conv": _conv,
    "pool": lambda layer, inputs, *_: [
        f"%{layer.name} = cvm.max_pool2d {inputs[0]} {{pool_size = [3, 3], strides = [2, "
        f"2], padding = [1, 1]}}"
    ],
    "add": lambda layer, inputs, *_: _ending(
        layer, f"{{}} = cvm.elemwise_add {', '.join(inputs)}", "cvm.cvm_clip {} {{precision = 8}}"
    ),
    "average": _average,
    "dense": lambda layer, inputs, net, file: [
        *_constants(layer, net, file),
        f"%{layer.name} = cvm.dense {inputs[0]}, %{layer.name}.w, %{layer.name}.b",
    ],
}


def resnet18(size: int = 224, width: float = 1) -> Network:
    """Sixteen 3x3 convolutions in eight residual blocks (He et al., 2015)."""
    net = Network("resnet18", size, width)
    x = net.pool(net.conv("image", 64, 7, 2))
    for channels, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            around = x if stride == 1 else net.conv(x, channels, 1, stride, relu=False)
            x = net.residual(
                net.conv(net.conv(x, channels, 3, stride), channels, 3, relu=False), around
            )
    net.dense(net.average(x), 1000)
    return net


def mobilenet(size: int = 224, width: float = 1) -> Network:
    """Thirteen pairs of a depthwise 3x3 and a 1x1 convolution (Howard et al., 2017)."""
    net = Network("mobilenet", size, width)
    x = net.conv("image", 32, 3, 2)
    pairs = [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *5 * [(512, 1)],
        (1024, 2),
        (1024, 1),
    ]
    for channels, stride in pairs:
        x = net.conv(net.conv(x, 0, 3, stride, depthwise=True), channels, 1)
    net.dense(net.average(x), 1000)
    return net


NETWORKS = {"resnet18": resnet18, "mobilenet": mobilenet}


def image(size: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-127, 128, (1, 3, size, size), np.int32)


def write(net: Network, folder: Path) -> Path:
    """The program and its weights in a folder; the program's path."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{net.name}.npz", allow_pickle=False, **net.weights())
    path = folder / f"{net.name}.cvm"
    path.write_text(net.program(f"{net.name}.npz"), encoding="utf-8", newline="\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument(
        "--folder", type=Path, default=Path("networks"), help="for the files (default: %(default)s)"
    )
    parser.add_argument("--size", type=int, default=224, help="of the image (default: %(default)s)")
    parser.add_argument(
        "--width", type=float, default=1, help="how many times the channels (default: %(default)s)"
    )
    options = parser.parse_args()
    print(write(NETWORKS[options.network](options.size, options.width), options.folder))


if __name__ == "__main__":
    main()
