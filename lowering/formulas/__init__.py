"""Formulas: a function as index notation, one formula per tensor, and the passes over formulas.

In: a verified function after graph passes. Out: fused formulas, from which `loops.build_loops`
makes one kernel each. Read `build_formulas`, then `fuse`; `propagate_constants`, `rounding_shift`,
`simplify_with_ranges` and `share_subexpressions` simplify single formulas, `overflow` warns of
values beyond their types, and `printer` shows formulas.
"""
