"""Normalizes and adjusts a batch of images with normalise.cvm and adjust.cvm, and with the same
written in Python; both give the same bits. Exit status 1 if they do not. Needs cvm and NumPy; the
picture needs nothing more.
"""

import argparse
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

import cvm

HERE = Path(__file__).parent
GAIN = np.float32([1.2, 1.0, 0.8])  # warmer
GAMMA = np.float32([0.6, 1.0, 1.6, 1.0]).reshape(-1, 1, 1, 1)  # one for each image


def normalise(images):
    mean, deviation = np.float32([123.675, 116.28, 103.53]), np.float32([58.395, 57.12, 57.375])
    return (images - mean) / deviation


def adjust(images, gain, gamma, rows, columns):
    light = images * gain / 255
    contrast = cvm.clamp((light - 0.5) * 1.25 + 0.5, 0.0, 1.0)
    corners = 1.0 - 0.35 * (rows * rows + columns * columns)
    return 255 * corners * contrast**gamma


def landscapes(count=4, height=120, width=180):
    """Images to work on: hills before a sky with a sun, each a little hazier than the one
    before.
    """
    random = np.random.default_rng(7)
    y, x = np.mgrid[0:height, 0:width].astype(float) / height
    images = []
    for n in range(count):
        image = (
            np.array([110, 150, 205])
            + (np.array([215, 200, 180]) - [110, 150, 205]) * y[..., None] * 1.2
        )
        image += (
            90
            * np.exp(-60 * ((x - 0.3 - 0.25 * n) ** 2 + (y - 0.3) ** 2))[..., None]
            * [1, 0.9, 0.6]
        )
        for depth in range(4):
            ridge = (
                0.45
                + 0.13 * depth
                + sum(0.07 / k * np.sin(k * (5 * x + random.uniform(0, 6))) for k in (1, 2, 5, 9))
            )
            colour = (
                np.array([150, 165, 175])
                + (np.array([35, 60, 30]) - [150, 165, 175]) * (depth + 1) / 4
            )
            image = np.where(
                (y > ridge)[..., None], colour + random.normal(0, 3, (height, width, 1)), image
            )
        haze = 0.12 * n
        images.append(image * (1 - haze) + 190 * haze)
    return np.clip(images, 0, 255).astype(np.uint8)


def write_png(path, image):
    """A color image as a PNG file."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width, _ = image.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (
        chunk(b"IHDR", head),
        chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
        chunk(b"IEND", b""),
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def sheet(*rows):
    """Batches of images, one under the other, on white."""
    _, height, width, _ = rows[0].shape
    page = np.full((len(rows) * (height + 6) + 6, len(rows[0]) * (width + 6) + 6, 3), 255, np.uint8)
    for r, images in enumerate(rows):
        for c, image in enumerate(images):
            top, left = 6 + r * (height + 6), 6 + c * (width + 6)
            page[top : top + height, left : left + width] = image
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--target", default="cpu", help="cpu, cuda, cuda-sim or reference (default: %(default)s)"
    )
    parser.add_argument(
        "--picture", type=Path, metavar="OUT.png", help="write the images before and after"
    )
    options = parser.parse_args()

    images = landscapes()
    _, height, width, _ = images.shape
    rows = np.linspace(-1, 1, height, dtype=np.float32).reshape(-1, 1, 1)
    columns = np.linspace(-1, 1, width, dtype=np.float32).reshape(-1, 1)
    arguments = images, GAIN, GAMMA, rows, columns

    def compiled(program):
        return cvm.compile(program, target=options.target)

    normalised, adjusted = (
        compiled(HERE / "normalise.cvm")(images),
        compiled(HERE / "adjust.cvm")(*arguments),
    )
    same = np.array_equal(normalised, compiled(normalise)(images))
    same = same and np.array_equal(adjusted, compiled(adjust)(*arguments))
    print(f"normalised: mean {normalised.mean():.3f}, deviation {normalised.std():.3f}")
    print(
        f"adjusted: from {images.mean(axis=(0, 1, 2)).round(1)} to "
        f"{adjusted.mean(axis=(0, 1, 2)).round(1)} on average"
    )
    print(f"text and Python give {'the same bits' if same else 'different values'}")
    if options.picture:
        write_png(options.picture, sheet(images, adjusted.round().astype(np.uint8)))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
