"""Programs of int8 contractions that several lowerings are tested with."""

from __future__ import annotations

PROGRAMS = {
    "dense": ("cvm.dense %x, %w", (7, 40), (16, 40)),
    "dense, odd sizes": ("cvm.dense %x, %w", (13, 37), (11, 37)),
    "1x1": ("cvm.conv2d %x, %w", (1, 16, 3, 5), (13, 16, 1, 1)),
    "1x1, odd sizes": ("cvm.conv2d %x, %w", (2, 11, 3, 5), (8, 11, 1, 1)),
    "strided": (
        "cvm.conv2d %x, %w {padding = [1, 1], stride = [2, 2]}",
        (1, 8, 9, 26),
        (7, 8, 3, 3),
    ),
    "strided, 3 channels": (
        "cvm.conv2d %x, %w {padding = [3, 3], stride = [2, 2]}",
        (1, 3, 11, 20),
        (6, 3, 7, 7),
    ),
    "dilated": (
        "cvm.conv2d %x, %w {padding = [1, 4], dilation = [1, 4]}",
        (1, 6, 4, 12),
        (4, 6, 3, 3),
    ),
    "groups": ("cvm.conv2d %x, %w {padding = [2, 2], groups = 3}", (2, 24, 5, 17), (15, 8, 5, 5)),
    "1x1, deep": ("cvm.conv2d %x, %w", (1, 264, 3, 5), (8, 264, 1, 1)),
    "strided, deep": (
        "cvm.conv2d %x, %w {padding = [1, 1], stride = [2, 2]}",
        (1, 32, 9, 17),
        (14, 32, 3, 3),
    ),
    "groups, deep": ("cvm.conv2d %x, %w {groups = 2}", (1, 128, 4, 10), (12, 64, 2, 2)),
    "7x7 pixels": ("cvm.conv2d %x, %w {padding = [1, 1]}", (1, 5, 7, 7), (8, 5, 3, 3)),
}
