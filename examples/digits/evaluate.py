"""Compiles digits.cvm, reads the held-back test images with it in one call, and reports how many it
got right. Exit status 1 below 96 %. Needs cvm and NumPy, nothing of train.py.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import cvm

HERE = Path(__file__).parent
REQUIRED = 0.96


def picture(path, images, labels, answers, columns=24):
    """One picture of all test images, the answer above each; a wrong one is framed in red with
    `answer, not label`.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    rows = -(-len(images) // columns)
    cell = (
        images.shape[2] + 4
    )  # an image, two pixels of margin on each side, its answer in the upper ones
    sheet = np.zeros((rows * (cell + 1), columns * cell))
    figure = Figure(figsize=(columns / 2, rows * 0.55), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    for n, (image, label, answer) in enumerate(zip(images[:, 0], labels, answers, strict=True)):
        top, left = n // columns * (cell + 1) + 3, n % columns * cell + 2
        sheet[top : top + 8, left : left + 8] = image
        right = label == answer
        axes.text(
            left + 3.5,
            top - 2.2,
            f"{answer}" if right else f"{answer}, not {label}",
            ha="center",
            va="center",
            size=7,
            color="gray" if right else "red",
            weight="normal" if right else "bold",
        )
        if not right:
            axes.add_patch(
                Rectangle((left - 1, top - 1), 9, 9, fill=False, color="red", linewidth=1.5)
            )
    axes.imshow(sheet, cmap="gray_r")
    figure.suptitle(f"digits.cvm: {(labels == answers).sum()} of {len(labels)} right")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--target", default="cpu", help="cpu, cuda, cuda-sim or reference (default: %(default)s)"
    )
    parser.add_argument(
        "--picture", type=Path, metavar="OUT.png", help="draw images and answers (needs matplotlib)"
    )
    options = parser.parse_args()

    with np.load(HERE / "test.npz") as test:
        images, labels, float_right = test["images"], test["labels"], int(test["float_right"])
    program = cvm.load(HERE / "digits.cvm")
    pixels = program.functions["main"].arguments[0].attributes  # of a pixel q: q * scale
    inputs = np.clip(np.rint(images / pixels["scale"]), *pixels["range"]).astype(np.int32)
    answers = cvm.compile(program, target=options.target)(inputs).argmax(axis=1)

    right = int((answers == labels).sum())
    print(
        f"digits: {right} of {len(labels)} right ({100 * right / len(labels):.1f} %), "
        f"float original {100 * float_right / len(labels):.1f} %"
    )
    if options.picture:
        picture(options.picture, images, labels, answers)
    return 0 if right >= REQUIRED * len(labels) else 1


if __name__ == "__main__":
    sys.exit(main())
