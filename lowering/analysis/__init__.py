"""Analyses: facts about kernels and formulas that passes read; nothing here changes a program.

In: a kernel, a block of statements or an expression. Out: linear forms, intervals, strides, dependences, costs, or a
LoweringError. Read `affine` first, then `accesses`, `lane_offsets` and `parallel_loops` (memory),
`interval_arithmetic`, `integer_ranges` and `overflow` (values), `cost`, and `legality`, which states what a legal
kernel is.
"""
