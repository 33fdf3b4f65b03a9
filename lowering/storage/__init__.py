"""Storage: types and places of intermediate arrays.

In: a plan of kernels in order. Out: the plan with results in place, narrower arrays, and offsets in
one workspace. Read `in_place`, `narrow_storage`, then `place_buffers`.
"""
