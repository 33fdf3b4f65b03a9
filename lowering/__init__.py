"""Lowering: verified programs to scheduled kernels, through graph passes, formulas and loop passes.

Read `pipeline`, which lists the passes in their order, then the packages in the order of the data: `graph`, `formulas`,
`loops`, `reductions`, `contraction`, `layout`, `storage`, and `gpu` or `stepping`. `analysis` has facts that passes
read, `math` the transcendental functions, `text` the printed form of kernels, and `processor` the description of the
machine.
"""
