"""Verified programs to kernels: graph passes, formulas and fusion, loop nests, loop passes and the plan of storage.

`pipeline` has the passes in their order. Those over operations are in `graph`; `formulas`, `fuse` and `nests` make loops;
`schedule` has the passes over loops, of which `contraction`, `folds` and `movement` are families, and `gpu` those for a
GPU. `ranges` tells what integers may be, `clocked` makes ticks of graphs, and `polynomials` has the transcendental functions.
"""
