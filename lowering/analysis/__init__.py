"""Analyzes: facts about kernels and formulas that passes read; nothing here changes a program.

In: a kernel, a block of statements or an expression. Out: intervals, strides, dependences, costs,
or a LoweringError. Read `accesses`, `lane_offsets`, `vector_alignment` and `parallel_loops`
(memory), `reduction_order`, `interval_arithmetic` and `integer_ranges` (values), `cost`, and
`legality`, which states what a legal kernel is.
"""
