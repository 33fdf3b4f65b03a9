"""Writes ResNet-50, MobileNetV2 and a BERT-like encoder as programs in f32, with random weights
beside them.

    python examples/networks/float_networks.py resnet50 --folder networks [--size 224] [--width 1]

Convolutions have a bias, into which a batch normalization is folded, as networks are when they are
used.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np

Shape = tuple[int, ...]


class Network:
    """A program written line by line, its weights, and the same steps as a list that other tools
    can be given.
    """

    def __init__(
        self, name: str, size: int, width: float = 1, seed: int = 0, channels: int = 3
    ) -> None:
        self.name, self.width, self.random = name, width, np.random.default_rng(seed)
        self.lines: list[str] = []
        self.weights: dict[str, np.ndarray] = {}
        self.shapes: dict[str, Shape] = {"image": (1, channels, size, size)}
        self.steps: list[
            tuple[str, str, tuple[str, ...], dict[str, Any]]
        ] = []  # kind, result, operands, attributes

    def weight(self, kind: str, shape: Shape, spread: float) -> str:
        """A constant with random numbers; its name."""
        name = f"{kind}{len(self.weights)}"
        self.weights[name] = (self.random.standard_normal(shape) * spread).astype(np.float32)
        written = "x".join(map(str, shape))
        self.lines.append(
            f'%{name} = const file("{self.name}.npz", "{name}") : tensor<{written}xf32>'
        )
        return name

    def step(
        self, kind: str, operands: tuple[str, ...], shape: Shape, *lines: str, **attributes: Any
    ) -> str:
        """An operation in the language, or several whose results are {a}, {b} and so on, and among
        the steps; the name of its result.
        """
        name = f"{kind}_{len(self.steps)}"
        inner = {
            letter: f"%{name}{letter}"
            for letter, _ in zip(ascii_lowercase, lines[1:], strict=False)
        }
        for result, line in zip([*inner.values(), f"%{name}"], lines, strict=True):
            self.lines.append(f"{result} = {line.format(*(f'%{o}' for o in operands), **inner)}")
        self.steps.append((kind, name, operands, attributes))
        self.shapes[name] = shape
        return name

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        top: float = math.inf,
    ) -> str:
        """A convolution, and what limits it from below by 0 and from above by `top`, unless that is
        0.
        """
        n, c, h, w = self.shapes[x]
        channels = channels if groups > 1 else round(channels * self.width)
        spread = math.sqrt((2 if top else 1) * groups / (c * kernel * kernel))
        operands = (
            x,
            self.weight("w", (channels, c // groups, kernel, kernel), spread),
            self.weight("b", (channels,), 0.1),
        )
        shape, pad = (n, channels, -(-h // stride), -(-w // stride)), kernel // 2
        how = f"padding = [{pad}, {pad}], stride = [{stride}, {stride}], groups = {groups}"
        y = self.step(
            "conv",
            operands,
            shape,
            f"cvm.conv2d {{}}, {{}}, {{}} {{{{{how}}}}}",
            pad=pad,
            stride=stride,
            groups=groups,
        )
        if not top:
            return y
        line = "cvm.relu {}" if math.isinf(top) else f"dali.clamp {{}}, 0.0, {top}"
        return self.step("relu" if math.isinf(top) else "relu6", (y,), shape, line)

    def pool(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        how = "pool_size = [3, 3], strides = [2, 2], padding = [1, 1]"
        return self.step(
            "pool", (x,), (n, c, -(-h // 2), -(-w // 2)), f"cvm.max_pool2d {{}} {{{{{how}}}}}"
        )

    def add(self, x: str, y: str) -> str:
        return self.step("add", (x, y), self.shapes[x], "dali.add {}, {}")

    def relu(self, x: str) -> str:
        return self.step("relu", (x,), self.shapes[x], "cvm.relu {}")

    def average(self, x: str) -> str:
        n, c, h, w = self.shapes[x]
        total = self.step("sum", (x,), (n, c), "theano.sum {} {{axis = [2, 3], acc_dtype = f32}}")
        return self.step("scale", (total,), (n, c), f"dali.mul {{}}, {1 / (h * w)!r}", over=h * w)

    def dense(self, x: str, units: int) -> str:
        n, c = self.shapes[x]
        operands = (
            x,
            self.weight("w", (units, c), math.sqrt(1 / c)),
            self.weight("b", (units,), 0.1),
        )
        return self.step("dense", operands, (n, units), "cvm.dense {}, {}, {}")

    def turned(self, x: str, order: Shape) -> str:
        shape = tuple(self.shapes[x][n] for n in order)
        return self.step(
            "transpose", (x,), shape, f"cvm.transpose {{}} {{{{axes = {[*order]}}}}}", perm=[*order]
        )

    def reshaped(self, x: str, *shape: int) -> str:
        line = f"cvm.reshape {{}} {{{{target_shape = {[*shape]}}}}}"
        return self.step("reshape", (x,), shape, line, target=[*shape])

    def matmul(self, x: str, y: str) -> str:
        """A product of matrices, one for each head."""
        (h, n, _), (_, _, m) = self.shapes[x], self.shapes[y]
        lines = (
            'theano.dimshuffle {0} {{new_order = [0, 1, 2, "x"]}}',
            'theano.dimshuffle {1} {{new_order = [0, "x", 1, 2]}}',
            'theano.elemwise {a}, {b} {{scalar_op = "mul"}}',
            "theano.sum {c} {{axis = [2], acc_dtype = f32}}",
        )
        return self.step("matmul", (x, y), (h, n, m), *lines)

    def softmax(self, x: str) -> str:
        lines = (
            "theano.max {0} {{axis = [2]}}",
            'theano.dimshuffle {a} {{new_order = [0, 1, "x"]}}',
            'theano.elemwise {0}, {b} {{scalar_op = "sub"}}',
            'theano.elemwise {c} {{scalar_op = "exp"}}',
            "theano.sum {d} {{axis = [2], acc_dtype = f32}}",
            'theano.dimshuffle {e} {{new_order = [0, 1, "x"]}}',
            'theano.elemwise {d}, {f} {{scalar_op = "true_div"}}',
        )
        return self.step("softmax", (x,), self.shapes[x], *lines)

    def normalized(self, x: str) -> str:
        """A layer normalization, whose scale and shift are part of what follows."""
        over = repr(1 / self.shapes[x][1])
        lines = (
            "theano.sum {0} {{axis = [1], acc_dtype = f32}}",
            "dali.mul {a}, " + over,
            'theano.dimshuffle {b} {{new_order = [0, "x"]}}',
            'theano.elemwise {0}, {c} {{scalar_op = "sub"}}',
            'theano.elemwise {d} {{scalar_op = "sqr"}}',
            "theano.sum {e} {{axis = [1], acc_dtype = f32}}",
            "dali.mul {f}, " + over,
            "dali.add {g}, 0.00001",
            'theano.elemwise {h} {{scalar_op = "sqrt"}}',
            'theano.dimshuffle {i} {{new_order = [0, "x"]}}',
            'theano.elemwise {d}, {j} {{scalar_op = "true_div"}}',
        )
        return self.step("norm", (x,), self.shapes[x], *lines)

    def gelu(self, x: str) -> str:
        lines = (
            "dali.mul {0}, 0.7071067811865476",
            'theano.elemwise {a} {{scalar_op = "erf"}}',
            "dali.add {b}, 1.0",
            'theano.elemwise {0}, {c} {{scalar_op = "mul"}}',
            "dali.mul {d}, 0.5",
        )
        return self.step("gelu", (x,), self.shapes[x], *lines)

    def program(self, result: str) -> str:
        shapes = ["x".join(map(str, self.shapes[name])) for name in ("image", result)]
        head = f"// {self.name}.cvm: written by float_networks.py, with random weights\n\n"
        head += f"func @main(%image: tensor<{shapes[0]}xf32>) -> tensor<{shapes[1]}xf32> {{\n"
        return head + "".join(f"  {line}\n" for line in self.lines) + f"  return %{result}\n}}\n"


def resnet50(size: int = 224, width: float = 1) -> tuple[Network, str]:
    """Sixteen blocks of a 1x1, a 3x3 and a 1x1 convolution (He et al., 2015)."""
    net = Network("resnet50", size, width)
    x = net.pool(net.conv("image", 64, 7, 2))
    for channels, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for n in range(blocks):
            stride = 1 if n else first
            around = x if n else net.conv(x, 4 * channels, 1, stride, top=0)
            y = net.conv(
                net.conv(net.conv(x, channels, 1), channels, 3, stride), 4 * channels, 1, top=0
            )
            x = net.relu(net.add(y, around))
    return net, net.dense(net.average(x), 1000)


def mobilenet_v2(size: int = 224, width: float = 1) -> tuple[Network, str]:
    """Seventeen inverted residuals: 1x1, depthwise 3x3, and 1x1 without a limit (Sandler et al.,
    2018).
    """
    net = Network("mobilenet_v2", size, width)
    x = net.conv("image", 32, 3, 2, top=6)
    groups = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for factor, channels, blocks, first in groups:
        for n in range(blocks):
            y = net.conv(x, round(net.shapes[x][1] / width) * factor, 1, top=6) if factor > 1 else x
            wide = net.shapes[y][1]
            y = net.conv(net.conv(y, wide, 3, 1 if n else first, wide, top=6), channels, 1, top=0)
            x = net.add(x, y) if n else y
    return net, net.dense(net.average(net.conv(x, 1280, 1, top=6)), 1000)


def encoder(size: int = 128, width: float = 1) -> tuple[Network, str]:
    """Twelve layers of attention and of two dense layers over so many tokens, as in BERT (Devlin et
    al., 2018).
    """
    net, units, depth = Network("encoder", size, width), round(768 * width), 64
    heads = units // depth
    net.shapes["image"] = size, units
    x = "image"
    for _ in range(12):
        query, key, value = (
            net.turned(net.reshaped(net.dense(x, units), size, heads, depth), order)
            for order in ((1, 0, 2), (1, 2, 0), (1, 0, 2))
        )
        scores = net.matmul(query, key)
        scores = net.step("scale", (scores,), net.shapes[scores], "dali.mul {}, 0.125", over=8)
        mixed = net.reshaped(
            net.turned(net.matmul(net.softmax(scores), value), (1, 0, 2)), size, units
        )
        x = net.normalized(net.add(x, net.dense(mixed, units)))
        x = net.normalized(net.add(x, net.dense(net.gelu(net.dense(x, 4 * units)), units)))
    return net, x


NETWORKS: dict[str, Callable[..., tuple[Network, str]]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "encoder": encoder,
}


def write(net: Network, result: str, folder: Path) -> Path:
    """The program and its weights in a folder; the program's path."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{net.name}.npz", allow_pickle=False, **net.weights)
    path = folder / f"{net.name}.cvm"
    path.write_text(net.program(result), "utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write a network in f32 as a program with random weights."
    )
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--folder", type=Path, default=Path("networks"))
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument(
        "--width", type=float, default=1, help="ratio of channels to those of the paper"
    )
    given = parser.parse_args()
    print(write(*NETWORKS[given.network](given.size, given.width), given.folder))


if __name__ == "__main__":
    main()
