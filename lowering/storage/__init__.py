"""Storage: types and places of intermediate arrays.

In: kernels in order. Out: a `Plan`, with every array in an argument, a constant, a result or the workspace. Read
`plan`, then `inplace` and `narrow_storage`.
"""
