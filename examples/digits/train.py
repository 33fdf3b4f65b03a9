"""Turns scikit-learn's digits (8x8 images) into digits.cvm: trains a small CNN in float with plain
NumPy, rounds it to int8 with power-of-two scales, and writes the program, weights.npz and test.npz.
The cvm package takes no part in it.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # read when NumPy is imported; one thread sums in one order

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    from tqdm import tqdm
except ImportError:

    def tqdm(steps, **_):
        return steps


CHANNELS = (16, 32)  # of the two convolutions
PIXEL_BITS = 4  # a pixel is an integer in [0, 16] that stands for pixel / 2**4
LIMIT = 127  # of an int8 weight or activation; -128 is not used

PROGRAM = """\
// digits.cvm: a small convolutional network that reads hand-written digits, in whole numbers only
// written by train.py; try it: python examples/digits/evaluate.py
//
// It was trained in float. Every weight v of the trained network then became the integer v * 2**bits, rounded and kept
// in [-127, 127]; the number of bits differs from layer to layer. Products of such integers need more than 8 bits, so
// they are summed in i32, and cvm.cvm_right_shift brings each sum back to 8 bits: it divides by 2**shift_bit, rounds to
// the nearest integer (halves upwards) and clips to [-127, 127].

// images: any number N of them, one channel, 8 rows, 8 columns; a pixel is 0 (paper) to 16 (ink)
// result: for every image ten scores; the digit with the largest score is the answer
func @main(%images: tensor<?N x 1x8x8xi32> {{range = [0, 16]}}) -> tensor<?N x 10xi32> {{
  // The weights lie beside this file as int8, the biases as int32; all of them are widened to i32 here.
  %w1 = const file("weights.npz", "conv1.weight") : tensor<{c1}x1x3x3xi32>
  %b1 = const file("weights.npz", "conv1.bias") : tensor<{c1}xi32>
  %w2 = const file("weights.npz", "conv2.weight") : tensor<{c2}x{c1}x3x3xi32>
  %b2 = const file("weights.npz", "conv2.bias") : tensor<{c2}xi32>
  %w3 = const file("weights.npz", "dense.weight") : tensor<10x{k}xi32>
  %b3 = const file("weights.npz", "dense.bias") : tensor<10xi32>

  // {c1} filters of 3x3 pixels; a border of one zero keeps the size: N x {c1}x8x8
  %sum1 = cvm.conv2d %images, %w1, %b1 {{padding = [1, 1]}}
  %short1 = cvm.cvm_right_shift %sum1 {{precision = 8, shift_bit = {shift1}}}
  %layer1 = cvm.relu %short1

  // {c2} filters that each look at all {c1} channels of the first layer: N x {c2}x8x8
  %sum2 = cvm.conv2d %layer1, %w2, %b2 {{padding = [1, 1]}}
  %short2 = cvm.cvm_right_shift %sum2 {{precision = 8, shift_bit = {shift2}}}
  %layer2 = cvm.relu %short2

  // the largest of every 2x2 block: N x {c2}x4x4
  %blocks = cvm.max_pool2d %layer2 {{pool_size = [2, 2], strides = [2, 2]}}

  // one row of {c2} * 4 * 4 = {k} numbers for each image (-1: as many rows as there are), and ten weighted sums of it
  %rows = cvm.reshape %blocks {{target_shape = [-1, {k}]}}
  %scores = cvm.dense %rows, %w3, %b3
  return %scores
}}
"""


# The network in float. Each step has a backward partner that returns the cotangents of its inputs.


def patches(x):
    """(N, C, H, W) -> (N, H, W, C * 9): the 3x3 surroundings of every pixel, zeros outside the
    image.
    """
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
    return windows.reshape(*windows.shape[:3], -1)


def patches_backward(gradient, channels):
    n, height, width, _ = gradient.shape
    windows = gradient.reshape(n, height, width, channels, 3, 3).transpose(0, 3, 1, 2, 4, 5)
    padded = np.zeros((n, channels, height + 2, width + 2), gradient.dtype)
    for i in range(3):
        for j in range(3):
            padded[:, :, i : i + height, j : j + width] += windows[..., i, j]
    return padded[:, :, 1:-1, 1:-1]


def weighted(columns, weight, bias):
    """(N, H, W, K) patches and (OC, ...) filters -> (N, OC, H, W)."""
    return (columns @ weight.reshape(len(weight), -1).T + bias).transpose(0, 3, 1, 2)


def weighted_backward(gradient, columns, weight):
    rows = gradient.transpose(0, 2, 3, 1).reshape(-1, len(weight))
    flat = columns.reshape(len(rows), -1)
    return (
        (rows @ weight.reshape(len(weight), -1)).reshape(columns.shape),
        (rows.T @ flat).reshape(weight.shape),
        rows.sum(axis=0),
    )


def blocks(x):
    """(N, C, 8, 8) -> (N, C, 4, 4, 4): the four pixels of every 2x2 block on a last axis of their
    own.
    """
    n, c, height, width = x.shape
    tiles = x.reshape(n, c, height // 2, 2, width // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return tiles.reshape(n, c, height // 2, width // 2, 4)


def blocks_backward(gradient):
    n, c, height, width, _ = gradient.shape
    tiles = gradient.reshape(n, c, height, width, 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return tiles.reshape(n, c, height * 2, width * 2)


def scores(p, images):
    """The float network: the two hidden layers, which the quantization looks at, and the scores."""
    layer1 = np.maximum(weighted(patches(images), p["conv1.weight"], p["conv1.bias"]), 0)
    layer2 = np.maximum(weighted(patches(layer1), p["conv2.weight"], p["conv2.bias"]), 0)
    rows = blocks(layer2).max(axis=-1).reshape(len(images), -1)
    return layer1, layer2, rows @ p["dense.weight"].T + p["dense.bias"]


def gradients(p, images, labels, rng):
    """The gradient of the mean cross entropy of a batch by every parameter; half of the dense
    inputs are dropped.
    """
    columns1 = patches(images)
    layer1 = np.maximum(weighted(columns1, p["conv1.weight"], p["conv1.bias"]), 0)
    columns2 = patches(layer1)
    layer2 = np.maximum(weighted(columns2, p["conv2.weight"], p["conv2.bias"]), 0)
    pooled = blocks(layer2)
    largest = pooled.argmax(axis=-1)[..., None]
    rows = np.take_along_axis(pooled, largest, axis=-1).reshape(len(images), -1)
    kept = 2 * (rng.random(rows.shape) < 0.5).astype(np.float32)
    logits = (rows * kept) @ p["dense.weight"].T + p["dense.bias"]

    g = {}
    gradient = np.exp(logits - logits.max(axis=1, keepdims=True))
    gradient /= gradient.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    gradient /= len(labels)
    g["dense.weight"], g["dense.bias"] = gradient.T @ (rows * kept), gradient.sum(axis=0)
    gradient = ((gradient @ p["dense.weight"]) * kept).reshape(largest.shape)
    gradient = blocks_backward(np.where(largest == np.arange(4), gradient, 0)) * (layer2 > 0)
    gradient, g["conv2.weight"], g["conv2.bias"] = weighted_backward(
        gradient, columns2, p["conv2.weight"]
    )
    gradient = patches_backward(gradient, layer1.shape[1]) * (layer1 > 0)
    _, g["conv1.weight"], g["conv1.bias"] = weighted_backward(gradient, columns1, p["conv1.weight"])
    return g


# Training


def initial(rng):
    """He's initialization: the variance of a layer's output does not depend on the number of its
    inputs.
    """
    c1, c2 = CHANNELS
    shapes = {"conv1": (c1, 1, 3, 3), "conv2": (c2, c1, 3, 3), "dense": (10, c2 * 16)}
    p = {}
    for layer, shape in shapes.items():
        fan_in = np.prod(shape[1:])
        p[f"{layer}.weight"] = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        p[f"{layer}.bias"] = np.zeros(shape[0], np.float32)
    return p


def moved(images, rng):
    """Every image shifted by up to one pixel in each direction, so that the network does not rely
    on exact places.
    """
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, images.shape[2:], axis=(2, 3))
    return windows[
        np.arange(len(images)), :, rng.integers(0, 3, len(images)), rng.integers(0, 3, len(images))
    ]


def train(images, labels, epochs, rng, batch=64, rate=3e-3, decay=1e-2):
    """Adam with decoupled weight decay and a rate that falls to zero along a cosine."""
    p = initial(rng)
    mean = {name: np.zeros_like(value) for name, value in p.items()}
    square = {name: np.zeros_like(value) for name, value in p.items()}
    step, steps = 0, epochs * -(-len(images) // batch)
    for _ in tqdm(range(epochs), desc="training", unit="epoch"):
        order = rng.permutation(len(images))
        for start in range(0, len(images), batch):
            chosen = order[start : start + batch]
            g = gradients(p, moved(images[chosen], rng), labels[chosen], rng)
            now = rate * (1 + np.cos(np.pi * step / steps)) / 2
            step += 1
            for name in p:
                mean[name] += 0.1 * (g[name] - mean[name])
                square[name] += 0.001 * (g[name] ** 2 - square[name])
                direction = (
                    mean[name]
                    / (1 - 0.9**step)
                    / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
                )
                p[name] -= np.float32(now) * (direction + decay * p[name])
    return p


# From float to integers


def integers(values, bits):
    return np.clip(np.floor(values * 2.0**bits + 0.5), -LIMIT, LIMIT).astype(np.int64)


def best_bits(values):
    """The power of two for which `values`, kept as 8-bit integers, come back with the least squared
    error.
    """
    return min(
        range(-8, 16),
        key=lambda bits: float(np.square(integers(values, bits) / 2.0**bits - values).mean()),
    )


def quantise(p, images):
    """The integer weights and the two shifts. `images` show how large the activations grow."""
    layer1, layer2, _ = scores(p, images)
    into = PIXEL_BITS  # the bits of what enters a layer
    q, shifts = {}, []
    for layer, result in (("conv1", layer1), ("conv2", layer2), ("dense", None)):
        weight, bias = p[f"{layer}.weight"], p[f"{layer}.bias"]
        bits = best_bits(weight)
        q[f"{layer}.weight"] = integers(weight, bits).astype(np.int8)
        q[f"{layer}.bias"] = np.round(bias * 2.0 ** (into + bits)).astype(
            np.int32
        )  # it joins the sum before the shift
        if result is not None:
            out = best_bits(result)
            shifts.append(into + bits - out)
            into = out
    return q, shifts


def right_shift(x, shift):
    """cvm.cvm_right_shift {precision = 8}: round half up, then clip."""
    return np.clip(((x >> (shift - 1)) + 1) >> 1, -LIMIT, LIMIT)


def integer_scores(q, shifts, images):
    """The scores of digits.cvm, in int64, with a check that every sum fits i32."""
    p = {name: value.astype(np.int64) for name, value in q.items()}
    for layer, largest in (("conv1", 2**PIXEL_BITS), ("conv2", LIMIT), ("dense", LIMIT)):
        weight = p[f"{layer}.weight"]
        bound = np.abs(weight.reshape(len(weight), -1)).sum(axis=1) * largest + np.abs(
            p[f"{layer}.bias"]
        )
        assert bound.max() < 2**31, (
            f"expected the sums of {layer} to fit in i32, they may reach {bound.max()}"
        )
    x = images.astype(np.int64)
    for layer, shift in zip(("conv1", "conv2"), shifts, strict=True):
        x = np.maximum(
            right_shift(weighted(patches(x), p[f"{layer}.weight"], p[f"{layer}.bias"]), shift), 0
        )
    rows = blocks(x).max(axis=-1).reshape(len(x), -1)
    return rows @ p["dense.weight"].T + p["dense.bias"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    here = Path(__file__).parent
    parser.add_argument(
        "--epochs",
        type=int,
        default=40,
        help="passes over the training images (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of everything drawn at random (default: %(default)s)"
    )
    parser.add_argument(
        "--output", type=Path, default=here, help="folder for the files (default: this script's)"
    )
    options = parser.parse_args()

    data = load_digits()
    images = data.images.astype(np.int8)[:, None]
    images, test_images, labels, test_labels = train_test_split(
        images, data.target, test_size=0.2, random_state=0, stratify=data.target
    )  # the split does not follow --seed: the held-back images stay the same
    as_float = images.astype(np.float32) / 2**PIXEL_BITS
    p = train(as_float, labels, options.epochs, np.random.default_rng(options.seed))
    q, shifts = quantise(p, as_float)

    _, _, float_scores = scores(p, test_images.astype(np.float32) / 2**PIXEL_BITS)
    float_right = int((float_scores.argmax(axis=1) == test_labels).sum())
    integer_right = int(
        (integer_scores(q, shifts, test_images).argmax(axis=1) == test_labels).sum()
    )
    for name, right in (("float", float_right), ("int8", integer_right)):
        share = 100 * right / len(test_labels)
        print(f"{name:5}: {right} of {len(test_labels)} held-back images right ({share:.1f} %)")

    options.output.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.output / "weights.npz", **q)
    test = {
        "images": test_images,
        "labels": test_labels.astype(np.int64),
        "float_right": np.int64(float_right),
    }
    np.savez_compressed(options.output / "test.npz", **test)
    c1, c2 = CHANNELS
    program = PROGRAM.format(c1=c1, c2=c2, k=c2 * 16, shift1=shifts[0], shift2=shifts[1])
    (options.output / "digits.cvm").write_text(program, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
