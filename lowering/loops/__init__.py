"""Loop passes: kernels of the loop language to faster kernels with the same results.

In: one plain nest per formula, made by `build_loops`. Out: kernels whose innermost loops are vector
loops and whose outermost loops are parallel. Read `build_loops` and `fuse_kernels` first;
`collapse`, `loop_partition`, `index_set_split`, `tighten_bounds` and `simplify_with_bounds` remove
guards and index arithmetic; `vectorize`, `unroll`, `nontemporal_stores` and `parallelize`
follow.
"""
