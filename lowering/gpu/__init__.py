"""GPU passes: kernels mapped to a grid of thread blocks, with tiles in shared memory and on tensor
cores.

In: a plan of plain nests, before CPU passes. Out: kernels of one parallel loop, one loop of blocks,
or serial code. Read `map_to_grid` first, which maps what no other pass has mapped; before it `mma`
and `tiled_product` (both on `thread_block_tile`), `tiled_window`, `shared_memory_transpose`,
`warp_reduce` and `vectorize_accesses`, for nests from `loop_fission`.
"""
