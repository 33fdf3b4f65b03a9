"""Trains the float network of float.cvm on scikit-learn's digits (8x8 images), and writes its
weights, float.npz, the images that `cvm quantize` calibrates on, and those that are held back.

    python examples/digits/train.py
    cvm quantize examples/digits/float.cvm --data examples/digits/calibration.npz --scheme cvm \
        -o examples/digits/digits.cvm

The loss is ordinary Python on arrays; `cvm.value_and_grad` derives it.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # read when NumPy is imported; one thread sums in one order

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import cvm

try:
    from tqdm import tqdm
except ImportError:

    def tqdm(steps, **_):
        return steps


T = cvm.theano
CHANNELS = (16, 32)  # of the two convolutions
FEATURES = CHANNELS[1] * 16  # of the dense layer
CALIBRATED = 500  # images


def scores(p, images, kept=1.0):
    """The network of float.cvm; `kept` are factors of the dense layer's inputs, for dropout."""
    x = cvm.relu(cvm.conv2d(images, p["conv1.weight"], p["conv1.bias"], padding=(1, 1)))
    x = cvm.relu(cvm.conv2d(x, p["conv2.weight"], p["conv2.bias"], padding=(1, 1)))
    x = cvm.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    rows = cvm.reshape(x, target_shape=(-1, FEATURES)) * kept
    return cvm.dense(rows, p["dense.weight"], p["dense.bias"])


def cross_entropy(p, images, targets, kept):
    """The mean of -log softmax at the right digits; targets are rows with a 1 there."""
    found = scores(p, images, kept)
    shifted = found - T.dimshuffle(T.max(found, axis=(1,)), 0, "x")
    log_total = T.log(T.sum(T.exp(shifted), axis=(1,)))
    return T.sum(log_total - T.sum(shifted * targets, axis=(1,))) / len(targets)


def initial(rng):
    """He's initialization: the variance of a layer's output does not depend on the number of its
    inputs.
    """
    c1, c2 = CHANNELS
    shapes = {"conv1": (c1, 1, 3, 3), "conv2": (c2, c1, 3, 3), "dense": (10, FEATURES)}
    p = {}
    for layer, shape in shapes.items():
        fan_in = np.prod(shape[1:])
        p[f"{layer}.weight"] = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        p[f"{layer}.bias"] = np.zeros(shape[0], np.float32)
    p["conv1.weight"] /= 16  # pixels lie from 0 to 16
    return p


def moved(images, rng):
    """Every image shifted by up to one pixel in each direction, so that the network does not rely
    on exact places.
    """
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, images.shape[2:], axis=(2, 3))
    return windows[
        np.arange(len(images)), :, rng.integers(0, 3, len(images)), rng.integers(0, 3, len(images))
    ]


def train(p, loss, images, labels, epochs, rng, batch=64, rate=3e-3, decay=1e-2):
    """Adam with decoupled weight decay and a rate that falls to zero along a cosine; half of the
    dense layer's inputs are dropped.
    """
    step = cvm.compile(cvm.value_and_grad(loss))
    targets = np.eye(10, dtype=np.float32)[labels]
    mean = {name: np.zeros_like(value) for name, value in p.items()}
    square = {name: np.zeros_like(value) for name, value in p.items()}
    n, steps = 0, epochs * (len(images) // batch)
    for _ in tqdm(range(epochs), desc="training", unit="epoch"):
        order = rng.permutation(len(images))
        for start in range(0, len(images) - batch + 1, batch):
            chosen = order[start : start + batch]
            kept = 2 * (rng.random((batch, FEATURES)) < 0.5).astype(np.float32)
            _, g = step(p, moved(images[chosen], rng), targets[chosen], kept)
            now = rate * (1 + np.cos(np.pi * n / steps)) / 2
            n += 1
            for name in p:
                mean[name] += 0.1 * (g[name] - mean[name])
                square[name] += 0.001 * (g[name] ** 2 - square[name])
                scale = np.sqrt(square[name] / (1 - 0.999**n)) + 1e-8
                direction = mean[name] / (1 - 0.9**n) / scale
                p[name] = p[name] - np.float32(now) * (direction + decay * p[name])
    return p


def data():
    """Images and labels for training, and those that are held back; the split is always the
    same.
    """
    found = load_digits()
    images = found.images.astype(np.int8)[:, None]
    return train_test_split(
        images, found.target, test_size=0.2, random_state=0, stratify=found.target
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
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

    images, test_images, labels, test_labels = data()
    rng = np.random.default_rng(options.seed)
    as_float = images.astype(np.float32)
    p = train(initial(rng), cross_entropy, as_float, labels, options.epochs, rng)
    answers = cvm.compile(scores)(p, test_images.astype(np.float32)).argmax(axis=1)
    right = int((answers == test_labels).sum())
    share = 100 * right / len(test_labels)
    print(f"float: {right} of {len(test_labels)} held-back images right ({share:.1f} %)")

    options.output.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.output / "float.npz", **p)
    np.savez_compressed(options.output / "calibration.npz", images=images[:CALIBRATED])
    test = {
        "images": test_images,
        "labels": test_labels.astype(np.int64),
        "float_right": np.int64(right),
    }
    np.savez_compressed(options.output / "test.npz", **test)


if __name__ == "__main__":
    main()
