"""GPU passes: kernels mapped to a grid of thread blocks, with tiles in shared memory and on tensor cores.

In: a plan of plain nests, before CPU passes. Out: kernels of one parallel loop, one loop of blocks, or serial code.
Read `map_to_grid` first; it tries `mma`, `tiled_product` (both on `block_tiles`), `shared_memory_transpose`,
`block_reduce` and `vectorize_accesses`.
"""
