"""Plot arrays with matplotlib: images pixel by pixel, curves, and animations of fields over
time.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import cvm
from cvm.dialect.support.files import write_file

SMALLEST = 256  # pixels of a picture's longer side: one of fewer is enlarged by a whole factor
MAP = "viridis"
MATRIX = (
    32  # rows and columns of a matrix that is drawn with axes and a scale, instead of as an image
)
NUMBERED = 12  # and of one whose elements are written in it
CHANNELS = (1, 3, 4)
PAUSE = 40  # milliseconds between the pictures of a .gif

Readings = Mapping[str, Sequence[np.ndarray]]  # maps a name to its array at every reading


def plot(path: str, readings: Readings, times: Sequence[int] = (0,)) -> None:
    """Write a picture of the readings: animated as a .gif, else the last reading of arrays, and
    curves of numbers.
    """
    try:
        import matplotlib  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise cvm.Error("pictures need matplotlib: pip install 'cvm-lang[plot]'") from None
    matplotlib.use("Agg")
    images = {name: found for name, arrays in readings.items() if (found := pictures(arrays))}
    first, kind = next(iter(images.values()), []), Path(path).suffix.lower()
    file = BytesIO()
    try:
        if kind == ".gif":
            if not images:
                raise cvm.Error(
                    f"nothing to show in {path}: {_shapes(readings)}, and no reading is "
                    "like an image"
                )
            frames = _images(first)
            frames[0].save(
                file, format="GIF", save_all=True, append_images=frames[1:], duration=PAUSE, loop=0
            )
        elif len(readings) == 1 and images and kind == ".png" and not _is_matrix(first[-1]):
            _images(first[-1:])[0].save(file, "PNG", optimize=True)
        else:
            _figure(file, kind, readings, images, times)
        write_file(path, file.getbuffer())
    except OSError as e:
        raise cvm.Error(f"{path} cannot be written: {(e.strerror or str(e)).lower()}") from None
    except ValueError as e:  # matplotlib does not know the kind of file
        raise cvm.Error(f"{path} cannot be written: {str(e).splitlines()[0][:200]}") from None


def pictures(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays as grayscale or RGB images; empty if they are no images."""
    found = [p for a in arrays if (p := _picture(a)) is not None]
    return found if len(found) == len(arrays) else []


def _picture(array: np.ndarray) -> np.ndarray | None:
    """Rows and columns, with colors last if there are any: from a batch the first image, from
    complex numbers their size.
    """
    if array.dtype.kind == "c":
        array = np.abs(array)
    if array.ndim == 4:
        array = array[0] if len(array) else array
    if array.ndim == 3 and array.shape[2] not in CHANNELS:
        array = (
            np.moveaxis(array, 0, 2)
            if array.shape[0] in CHANNELS
            else array[0]
            if len(array)
            else array
        )
    if array.ndim == 3 and array.shape[2] in CHANNELS:
        array = array[:, :, 0] if array.shape[2] == 1 else array[:, :, :3]
    image = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    return array if image and min(array.shape[:2]) > 1 else None


def _levels(images: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Images as bytes from dark to light, on one scale."""
    whole = np.stack(images).astype(np.float64)
    finite = whole[np.isfinite(whole)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if whole.ndim == 4:  # colors are in 0 to 1 or in 0 to 255
        low, high = min(low, 0.0), (255.0 if high > 1 else 1.0)
    scaled = np.clip(np.nan_to_num((whole - low) / ((high - low) or 1.0)), 0, 1)
    return list((scaled * 255).round().astype(np.uint8))


def _images(arrays: Sequence[np.ndarray]) -> list[Any]:
    """Pictures of a whole number of pixels for each element; numbers are colored from dark to
    light.
    """
    import matplotlib  # pyright: ignore[reportMissingImports]
    from PIL import Image  # matplotlib brings it

    colours = (matplotlib.colormaps[MAP](np.arange(256))[:, :3] * 255).round().astype(np.uint8)
    found = []
    for levels in _levels(arrays):
        factor = max(1, SMALLEST // max(levels.shape[:2]))
        image = Image.fromarray(np.ascontiguousarray(levels.repeat(factor, 0).repeat(factor, 1)))
        if levels.ndim == 2:
            image.putpalette(colours.tobytes())
        found.append(image)
    return found


def _figure(
    file: BytesIO,
    kind: str,
    readings: Readings,
    images: Mapping[str, Sequence[np.ndarray]],
    times: Sequence[int],
) -> None:
    """A panel for each reading: an image, the curve of a vector, or of a number over time."""
    from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]

    if not (shown := [n for n, arrays in readings.items() if n in images or arrays[-1].ndim <= 1]):
        raise cvm.Error(f"nothing to show: {_shapes(readings)}")
    figure = Figure(figsize=(5 * min(len(shown), 3), 4 * -(-len(shown) // 3)), layout="constrained")
    panels = figure.subplots(-(-len(shown) // 3), min(len(shown), 3), squeeze=False)
    for name, panel in zip(shown, panels.flat, strict=False):
        panel.set_title(name)
        if name in images and _is_matrix(images[name][-1]):
            _matrix(figure, panel, images[name][-1])
        elif name in images:
            panel.imshow(_images(images[name][-1:])[0].convert("RGB"))
            panel.set_axis_off()
        elif readings[name][-1].ndim == 1:
            panel.plot(_real(readings[name][-1]))
        else:
            panel.plot(
                times, [_real(a) for a in readings[name]], marker="." if len(times) < 50 else ""
            )
            panel.set_xlabel("tick")
    for panel in panels.flat[len(shown) :]:
        panel.remove()
    figure.savefig(file, format=kind.removeprefix(".") or "png")


def _is_matrix(array: np.ndarray) -> bool:
    return array.ndim == 2 and max(array.shape) <= MATRIX


def _matrix(figure: Any, panel: Any, array: np.ndarray) -> None:
    """A matrix by its colors, with axes and a scale, and its values where they can be read."""
    shown = panel.imshow(array.astype(np.float64), cmap=MAP)
    figure.colorbar(shown, ax=panel, fraction=0.046, pad=0.04)
    for axis, size in ((panel.xaxis, array.shape[1]), (panel.yaxis, array.shape[0])):
        axis.set_ticks(range(0, size, 1 if size <= NUMBERED else 4))
    if max(array.shape) <= NUMBERED:
        for (row, column), value in np.ndenumerate(array):
            colour = "black" if shown.norm(value) > 0.6 else "white"
            panel.text(
                column, row, f"{value:.3g}", ha="center", va="center", color=colour, fontsize=7
            )


def _real(array: np.ndarray) -> np.ndarray:
    return np.abs(array) if array.dtype.kind == "c" else array


def _shapes(readings: Readings) -> str:
    return (
        ", ".join(f"{n} has shape {list(a[-1].shape)}" for n, a in readings.items())
        or "nothing is read"
    )
