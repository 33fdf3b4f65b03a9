"""Data movement: transposes, short innermost axes, and planes that become interleaved elements.

In: a kernel of plain loops that only moves elements, or computes along a short axis. Out: loops
over tiles and whole vectors. Read `vectorize_short_axis`, then `interleave_planes`, which it uses,
and `tiled_transpose`.
"""
