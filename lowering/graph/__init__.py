"""Graph passes: a function of operations to a smaller function with the same results.

In: a verified function. Out: the function inlined, differentiated, canonicalized. Read
`inline`, `differentiate`, `simplify`, `fold_constants`, `cse` and `dce`.
"""
