"""Index notation and the loop language: the expressions and statements that operators define and
passes transform.

Read `scalars` (the table of scalar functions), `index`, `loops`, then `traverse`; `formulas` and
`plan` are whole
functions in this notation, and `printer` shows kernels.
"""
