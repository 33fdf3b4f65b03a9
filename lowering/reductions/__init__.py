"""Reductions other than contractions: in blocks, by lanes, by rows and by columns.

In: kernels with accumulators in loops. Out: the same reductions in the documented order of float
sums, in parallel where the order allows. Read `blocked_sums` and `lane_reduction` first: they
define that order. `reduction_versions` selects it for unknown sizes; `split_reduction`,
`partition_reduction` and `column_reduction` create parallelizm; `fuse_rows` and `cache_row` keep
rows in cache.
"""
