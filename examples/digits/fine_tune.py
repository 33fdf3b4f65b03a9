"""Fine-tunes the digits network for weights of 4 bits, and compares it with the network that is
quantized as it is.

    python examples/digits/fine_tune.py [--bits 4] [--epochs 20] [--output FOLDER]

Each step computes the loss with weights that are rounded by `fake_quantize`, and changes the floats
behind these weights. FOLDER gets float.cvm with the rounded weights, for `cvm quantize`.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
from train import cross_entropy, data, scores, train

import cvm
from cvm.quantization import fake_quantize

T = cvm.theano
HERE = Path(__file__).parent


def rounded(p, bits):
    """The parameters with weights of some bits, and a scale for each channel, as `cvm quantize`
    chooses it.
    """
    found = dict(p)
    for name in (n for n in p if n.endswith(".weight")):
        w = p[name]
        axes = tuple(range(1, len(w.shape)))
        largest = T.max(T.abs_(w), axis=axes)
        scale = T.dimshuffle(largest, 0, *["x"] * len(axes)) / float(2 ** (bits - 1) - 1)
        found[name] = fake_quantize(w, cvm.stop_gradient(scale), bits=bits, narrow=True)
    return found


def quantized(folder, images, labels, bits, **options):
    """The held-back images that the integers read right, and the signal to noise ratio of the
    scores on the images for calibration.
    """
    made = cvm.quantize(
        folder / "float.cvm",
        HERE / "calibration.npz",
        "tflite",
        weight_bits=bits,
        float_io=True,
        **options,
    )
    answers = cvm.compile(made)(images.astype(np.float32)).argmax(axis=1)
    return int((answers == labels).sum()), made.report.results[0].snr


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--bits", type=int, default=4, choices=(4, 8))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, metavar="FOLDER")
    options = parser.parse_args()

    images, test_images, labels, test_labels = data()
    p = dict(np.load(HERE / "float.npz"))
    count = len(test_labels)
    answers = cvm.compile(scores)(p, test_images.astype(np.float32)).argmax(axis=1)
    print(f"float: {(answers == test_labels).sum()} of {count} held-back images right")
    right, ratio = quantized(HERE, test_images, test_labels, options.bits)
    print(f"{options.bits} bits: {right} right; scores {ratio:.1f} dB from their floats")

    def loss(p, *given):
        return cross_entropy(rounded(p, options.bits), *given)

    rng = np.random.default_rng(options.seed)
    p = train(p, loss, images.astype(np.float32), labels, options.epochs, rng, rate=1e-3)
    p = cvm.compile(lambda p: rounded(p, options.bits))(p)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "float.cvm", folder)
        np.savez_compressed(folder / "float.npz", **p)
        right, ratio = quantized(folder, test_images, test_labels, options.bits, equalized=False)
    print(f"{options.bits} bits, fine-tuned: {right} right; scores {ratio:.1f} dB")


if __name__ == "__main__":
    main()
